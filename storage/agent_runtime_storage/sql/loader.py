"""The SQL of a dialect, read from the `.sql` files beside this module.

A file holds named blocks, each of one statement: `-- name: branch` begins one.  `{other}` in a
block stands for the text of another block.  Every dialect has the same block names, so the store
is written once.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Literal

SqlDialect = Literal["sqlite", "postgres"]

_NAME = re.compile(r"^-- name: ([a-z_0-9]+)$", re.MULTILINE)
_INCLUDE = re.compile(r"\{([a-z_0-9]+)\}")
_MIGRATION = re.compile(r"(\d{4})_([a-z_0-9]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema.

    Attributes:
        checksum: SHA-256 of the file, so that a later change of it is noticed.
    """

    version: int
    name: str
    checksum: str
    statements: tuple[str, ...]


def parse_blocks(text: str) -> dict[str, str]:
    """Return the named blocks of a file, in their order, without comments and final semicolons.

    Raises:
        ValueError: a name occurs twice.
    """
    _, *parts = _NAME.split(text)
    blocks: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in blocks:
            raise ValueError(f"the SQL block {name!r} is defined twice")
        lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
        blocks[name] = "\n".join(lines).strip().removesuffix(";")
    return blocks


def _folder(dialect: SqlDialect) -> Traversable:
    return resources.files("agent_runtime_storage").joinpath("sql", dialect)


@functools.cache
def load_queries(dialect: SqlDialect) -> Mapping[str, str]:
    """Return every query of the dialect by its name; read once for each process.

    Raises:
        ValueError: a name occurs twice.
        KeyError: a block stands for one that is not there.
    """
    blocks: dict[str, str] = {}
    for file in sorted(_folder(dialect).iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            found = parse_blocks(file.read_text("utf-8"))
            if twice := blocks.keys() & found.keys():
                raise ValueError(f"the SQL block {min(twice)!r} is defined twice")
            blocks.update(found)

    def expand(match: re.Match[str]) -> str:
        return _INCLUDE.sub(expand, blocks[match[1]])

    return MappingProxyType({name: _INCLUDE.sub(expand, sql) for name, sql in blocks.items()})


@functools.cache
def load_migrations(dialect: SqlDialect) -> tuple[Migration, ...]:
    """Return the dialect's migrations in rising order."""
    found: list[Migration] = []
    for file in _folder(dialect).joinpath("migrations").iterdir():
        if match := _MIGRATION.fullmatch(file.name):
            content = file.read_bytes()
            found.append(
                Migration(
                    version=int(match[1]),
                    name=match[2],
                    checksum=hashlib.sha256(content).hexdigest(),
                    statements=tuple(parse_blocks(content.decode("utf-8")).values()),
                )
            )
    return tuple(sorted(found, key=lambda migration: migration.version))
