"""The queries of each dialect, and its migrations, read from its `.sql` files.

A file holds named blocks, each of one statement or a part of one: `-- name: branch` begins a block.
`{other}` in a block includes the text of another block.  A dialect has the blocks of `common` and
those of its own folder, which replace blocks of the same name.  Its `dialect.sql` defines the parts
that `common` spells differently in each dialect, such as `{now}`.
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
        checksum: SHA-256 of the file, comments included, to notice later changes.
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


def _folder(name: str) -> Traversable:
    return resources.files("agent_runtime_storage").joinpath("sql", name)


def _blocks_in(folder: Traversable) -> dict[str, str]:
    texts = (file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".sql"))
    return parse_blocks("\n".join(texts))


@functools.cache
def load_queries(dialect: SqlDialect) -> Mapping[str, str]:
    """Return every query of the dialect by its name; the files are read once in each process.

    Raises:
        ValueError: a name occurs twice in one folder.
        KeyError: a block includes one that does not exist.
    """
    # The dialect's blocks replace those of the same name.
    blocks = _blocks_in(_folder("common")) | _blocks_in(_folder(dialect))

    def expand(match: re.Match[str]) -> str:
        return _INCLUDE.sub(expand, blocks[match[1]])

    return MappingProxyType({name: _INCLUDE.sub(expand, sql) for name, sql in blocks.items()})


@functools.cache
def load_migrations(dialect: SqlDialect) -> tuple[Migration, ...]:
    """Return the dialect's migrations in rising order."""
    migrations: list[Migration] = []
    for file in _folder(dialect).joinpath("migrations").iterdir():
        if match := _MIGRATION.fullmatch(file.name):
            content = file.read_bytes()
            migrations.append(
                Migration(
                    version=int(match[1]),
                    name=match[2],
                    checksum=hashlib.sha256(content).hexdigest(),
                    statements=tuple(parse_blocks(content.decode("utf-8")).values()),
                )
            )
    return tuple(sorted(migrations, key=lambda migration: migration.version))
