"""Show URLs without the secrets in them."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def url_scheme(url: str) -> str:
    """Return the scheme in lower case, or "" for a bare path."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else ""


def redact_url(url: str) -> str:
    """Return the URL with credentials, query values and fragment replaced by `***`.

    If it is unclear where the credentials end (an unescaped `?`, `#` or `/` in a password), only
    the scheme is left.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    address, _, fragment = rest.partition("#")
    location, _, query = address.partition("?")
    authority, slash, path = location.partition("/")
    # An `@` after the host may be the real end of a password.
    if separator and "@" in f"{path}{query}{fragment}":
        return f"{scheme}://***"
    _, at, host = authority.rpartition("@")
    shown = f"{scheme}{separator}" + (f"***@{host}" if at else authority) + slash + path
    if query:
        names = (part.partition("=") for part in query.split("&"))
        shown += "?" + "&".join(f"{name}=***" if equals else "***" for name, equals, _ in names)
    return shown + ("#***" if fragment else "")
