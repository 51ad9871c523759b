"""How libpq is to connect: what the URL says, and what it leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agent_runtime_storage.contract.errors import StoreError

CONNECT_SECONDS = 10
_DEFAULTS: Mapping[str, str | int] = {
    "application_name": "agent_runtime",
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_SECONDS,
    # Notice a peer that vanished after a minute; the system's default is two hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


def parse_url(url: str, shown: str) -> str:
    """Return libpq's connection string for a URL.

    Args:
        shown: the URL as it may be shown.

    Raises:
        StoreError: libpq cannot read it.
    """
    unreadable = StoreError(
        f"The database URL {shown} cannot be read.",
        cure="Write postgresql://user:password@host:port/database; in user and password write "
        "special characters as %XX.",
    )
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        # libpq's message quotes the part of the URL that it cannot parse.
        raise unreadable from None
    # If a password has an unescaped `@` or `/`, libpq takes a part of it for one of these, and
    # would show it in its error.
    named = {name: str(parameters.get(name) or "") for name in ("host", "port", "dbname")}
    if "@" in named["host"] + named["dbname"] or not re.fullmatch(r"[\d,]*", named["port"]):
        raise unreadable
    return make_conninfo("", **{**_DEFAULTS, **parameters})
