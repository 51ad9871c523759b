"""The page's own files: packed once, and served; or joined into one for an exported thread.

Its scripts are made from the modules in `script/` by `python -m tests.browser.bundle`.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_KINDS = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "ahead.js": "text/javascript; charset=utf-8",
    "main.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files that are served, and their types."""
_STYLE = re.compile(r'<link rel="stylesheet" href="[^"]*style\.css">')
_ICON = re.compile(r'<link rel="icon" [^>]*>\n')
_AHEAD = re.compile(r'<script src="[^"]*ahead\.js"></script>\n')
_SCRIPT = re.compile(r'<script type="module" src="[^"]*main\.js"></script>')


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the page, as it is or compressed, each with its entity tag."""

    kind: str
    plain: tuple[bytes, str]
    packed: tuple[bytes, str]

    @classmethod
    def of(cls, kind: str, body: bytes) -> _File:
        packed = gzip.compress(body, 9, mtime=0)
        return cls(kind, (body, _tag(body)), (packed, _tag(packed)))


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def page_routes() -> list[Route]:
    """Return the routes of the page and of its files; what it reads is below `/api`."""
    return [
        Route("/", _index, methods=["GET"]),
        Route("/static/{name}", _static, methods=["GET"]),
    ]


async def _index(request: Request) -> Response:
    return await _served(request, "index.html")


async def _static(request: Request) -> Response:
    name = str(request.path_params["name"])
    if name == "index.html":
        # What it names is found from `/` only.
        raise HTTPException(404)
    return await _served(request, name)


async def _served(request: Request, name: str) -> Response:
    # Once they are packed without a thread, which would wait for whatever computes there.
    known = packed_files.cache_info().currsize
    files = packed_files() if known else await anyio.to_thread.run_sync(packed_files)
    file = files.get(name)
    if file is None:
        raise HTTPException(404)
    zipped = _takes_gzip(request.headers.get("accept-encoding", ""))
    body, tag = file.packed if zipped else file.plain
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        # Another version may be installed at any time.
        "cache-control": "no-cache",
        "etag": tag,
        "vary": "accept-encoding",
    }
    held = request.headers.get("if-none-match", "").split(",")
    if tag in {one.strip().removeprefix("W/") for one in held}:
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["content-encoding"] = "gzip"
    return Response(body, headers=headers, media_type=file.kind)


def _takes_gzip(accepted: str) -> bool:
    """Return whether a header names gzip, and not as refused (`gzip;q=0`)."""
    for one in accepted.lower().split(","):
        name, _, quality = one.replace(" ", "").partition(";q=")
        if name == "gzip":
            return quality.strip("0.") != "" or not quality
    return False


@functools.cache
def packed_files() -> Mapping[str, _File]:
    """Return the files that are served; the first call packs them."""
    folder = _folder()
    return {name: _File.of(kind, _read(folder, name).encode()) for name, kind in _KINDS.items()}


def _read(folder: Traversable, name: str) -> str:
    return folder.joinpath(name).read_text("utf-8")


def _folder() -> Traversable:
    return resources.files("agent_runtime.server.inspector").joinpath("static")


@functools.cache
def joined_page(folder: Traversable | None = None) -> tuple[str, str]:
    """Return the page as one file, in two halves: data come between them.

    A policy allows this script and this style by their hashes, and nothing else.

    Raises:
        ValueError: the files cannot be joined.
    """
    folder = _folder() if folder is None else folder
    # A file has nothing to ask for.
    page = _AHEAD.sub("", _ICON.sub("", _read(folder, "index.html")))
    style = _read(folder, "style.css")
    script = _read(folder, "main.js")
    if "</script" in script or "</style" in style:
        raise ValueError("a script or the style sheet of the page would end its own element")
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src blob:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page, styles = _STYLE.subn(lambda _: f"{meta}\n<style>{style}</style>", page)
    page, scripts = _SCRIPT.subn("", page)
    before, body, after = page.partition("</body>")
    if (styles, scripts, body) != (1, 1, "</body>"):
        raise ValueError("index.html does not name its style sheet and its script once each")
    # The script comes last: it looks for the data as soon as it runs.
    return before, f'<script type="module">{script}</script>\n</body>{after}'


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
