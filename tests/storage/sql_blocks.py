"""Separate the queries of a dialect from the blocks that they include."""

from __future__ import annotations

import re
from importlib import resources

from agent_runtime_storage.sql.loader import SqlDialect, load_queries


def block_parts(dialect: SqlDialect) -> set[str]:
    """Return the names of blocks that other blocks include."""
    sql = resources.files("agent_runtime_storage").joinpath("sql")
    entries = [entry for name in ("common", dialect) for entry in sql.joinpath(name).iterdir()]
    texts = [entry.read_text() for entry in entries if entry.name.endswith(".sql")]
    return {name for text in texts for name in re.findall(r"\{([a-z_0-9]+)\}", text)}


def whole_queries(dialect: SqlDialect) -> dict[str, str]:
    """Return the complete queries by name."""
    parts = block_parts(dialect)
    return {name: sql for name, sql in load_queries(dialect).items() if name not in parts}
