"""A service behind a proxy that shows it below a path of its own."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Prefixed:
    """Takes requests below a prefix, whether the proxy has stripped it or kept it.

    Args:
        prefix: such as `/agents`; not empty, and without a slash at its end.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            above, path = str(scope.get("root_path", "")), str(scope["path"])
            root = above + self._prefix
            if path == root:
                # What the page names is found from below the prefix only.
                await RedirectResponse(f"{root}/", 308)(scope, receive, send)
                return
            if not path.startswith(f"{root}/"):
                path = root + path.removeprefix(above)
            scope = {**scope, "root_path": root, "path": path}
        await self._app(scope, receive, send)
