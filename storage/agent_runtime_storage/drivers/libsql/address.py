"""Parse libSQL URLs: the server, TLS, and the token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from agent_runtime_config.urls import redact_url
from agent_runtime_storage.contract.errors import StoreError

_PLAIN = {"libsql": "http", "http": "http", "ws": "ws"}
_TLS = {"libsql": "https", "https": "https", "wss": "wss"}
_EXAMPLE = "Write it as `libsql://host`, `http://host:8080` or `ws://host:8080`."


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server.

    Attributes:
        url: its scheme is `http`, `https`, `ws` or `wss`; no credentials, query or final slash.
        shown: the URL for messages, without secrets.
        token: the server's auth token.
        login: the name and password for basic authentication.
    """

    url: str
    shown: str
    token: str | None = field(default=None, repr=False)
    login: tuple[str, str] | None = field(default=None, repr=False)


def parse_address(url: str, *, auth_token: str | None) -> Address:
    """Read a `libsql:`, `http(s):` or `ws(s):` URL as libSQL's own clients do.

    Args:
        auth_token: the token, if the URL has no `?authToken=`.

    Raises:
        StoreError: it names no host, or has a part that libSQL URLs do not have.
    """
    shown = redact_url(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise StoreError(f"The database URL {shown} is malformed.", cure=_EXAMPLE) from error
    if not parts.hostname:
        raise StoreError(f"The database URL {shown} names no host.", cure=_EXAMPLE)
    if parts.fragment:
        raise StoreError(f"The database URL {shown} has a fragment.", cure="Remove it.")
    token, tls = auth_token or None, None
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "authToken":
            token = value or None
        elif name == "tls" and value in ("0", "1"):
            tls = value == "1"
        else:
            raise StoreError(
                f"The database URL {shown} has a parameter {name!r}, or a value of it, that no "
                "libSQL URL has.",
                cure="Use only `authToken=…`, `tls=0` and `tls=1`.",
            )
    scheme = _scheme(parts.scheme, tls, port, shown)
    # Not `parts.hostname`, which drops the port and the brackets of an IPv6 address.
    _, _, host = parts.netloc.rpartition("@")
    login = None
    if parts.username is not None:
        login = (unquote(parts.username), unquote(parts.password or ""))
    return Address(f"{scheme}://{host}{parts.path.rstrip('/')}", shown, token, login)


def _scheme(
    name: str, tls: bool | None, port: int | None, shown: str
) -> Literal["http", "https", "ws", "wss"] | str:
    schemes = _TLS if tls or (tls is None and name in _TLS) else _PLAIN
    scheme = schemes.get(name)
    if scheme is None:
        raise StoreError(
            f"The database URL {shown} contradicts itself: {name} with `tls={int(bool(tls))}`.",
            cure="Remove `tls`, or write `libsql://host:port?tls=0` for a plain connection.",
        )
    # libSQL's own clients have no default port for it either.
    if name == "libsql" and scheme == "http" and port is None:
        raise StoreError(
            f"The database URL {shown} asks for a plain connection and names no port.",
            cure="Write `libsql://host:8080?tls=0`.",
        )
    return scheme
