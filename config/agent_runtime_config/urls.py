"""Show URLs without the secrets in them."""

from __future__ import annotations

import re

# Parameters whose value is a secret, in whatever form they are given.  No part may be of any length
# where it can begin anywhere: a text of 100 KB would take 20 s.
_SECRET = re.compile(
    r"((?:password|passwd|pwd|passphrase|secret|token|jwt|signature|\bsig|auth\w{0,40}"
    r"|(?:api_?|access_?|_)?key)\s{0,40}(?:=|%3d)\s{0,40})"
    # As in `password='a b'`; one that is not closed goes to the end.
    r"(?:'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?|[^&;,\s]+)",
    re.I | re.S,
)
# Credentials, or what remains of a scheme, in a text that has no scheme.
_MISSPELT = re.compile(r"[^\s/:]*:[^\s/]*@|[^\s/]*//[^/]*@")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def url_scheme(url: str) -> str:
    """Return the scheme in lower case, or "" for a bare path."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else ""


def redact_secrets(text: str) -> str:
    """Return a text without the values of parameters that look like secrets."""
    return _SECRET.sub(r"\1***", text)


def is_misspelt(path: str) -> bool:
    """Return whether a path looks like a URL without its scheme, and may hold credentials."""
    return bool(_MISSPELT.match(path)) or redact_secrets(path) != path


def is_not_a_model(name: str) -> bool:
    """Return whether a model's name holds parameters or an address, and so perhaps a key."""
    return any(mark in name for mark in ("?", "=", "&", "://"))


def redact_url(url: str) -> str:
    """Return the URL with credentials, query values and fragment replaced by `***`.

    If it is unclear where the credentials end (an unescaped `?`, `#` or `/` in a password), only
    the scheme is left.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        # Of a misspelt one everything before the last `@` may be credentials.
        before, _, end = url.rpartition("@")
        return f"***@{end}" if ":" in before.removeprefix("file:") else _without_values(url)
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
    return redact_secrets(shown) + ("#***" if fragment else "")


def _without_values(text: str) -> str:
    if url_scheme(text):
        text, hash_mark, _ = text.partition("#")
        if hash_mark:
            return f"{_without_values(text)}#***"
    path, mark, query = text.partition("?")
    names = (part.partition("=") for part in query.split("&"))
    shown = "&".join(f"{name}=***" if equals else "***" for name, equals, _ in names)
    return redact_secrets(path) + (f"?{shown}" if mark else "")
