"""A server over HTTP that asks for a login, and the one that gives its tokens."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.http_server import serving


class Guarded:
    """What the server knows.

    Attributes:
        valid: the tokens that it takes.
        lasting: seconds that a new token lasts.
        granted: the kinds of grants that gave tokens.
        odd: what is wrong with its answers: `huge` or `packed`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.valid: set[str] = set()
        self.lasting = 3600
        self.granted: list[str] = []
        self.odd = ""

    def token(self, form: dict[str, list[str]]) -> dict[str, Any]:
        """Return new tokens."""
        self.granted.append(form["grant_type"][0])
        token = f"token-{len(self.valid)}-secret"
        self.valid.add(token)
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.lasting,
                "refresh_token": "refresh-secret"}  # fmt: skip

    def about(self, path: str) -> dict[str, Any] | None:
        """Return the documents that tell how to log in."""
        if path.startswith("/.well-known/oauth-protected-resource"):
            return {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        if path.startswith("/.well-known/oauth-authorization-server"):
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/oauth/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        return None


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Answer a message of the protocol."""
    if "id" not in message:
        return None
    whole: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            about: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                     "serverInfo": {"name": "guarded", "version": "1"}}  # fmt: skip
            return whole | {"result": about}
        case "tools/list":
            tool = {"name": "whoami", "inputSchema": {"type": "object"}}
            return whole | {"result": {"tools": [tool]}}
        case "tools/call":
            return whole | {"result": {"content": [{"type": "text", "text": "you"}]}}
        case _:
            return whole | {"error": {"code": -32601, "message": "no such method"}}


@contextmanager
def guarded() -> Generator[Guarded]:
    """Run the server in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

        def reply(self, status: int, value: Any = None, **headers: str) -> None:
            body = b"" if value is None else json.dumps(value).encode()
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name.replace("_", "-"), text)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            if (about := state.about(parts.path)) is not None:
                self.reply(200, about)
            elif parts.path == "/authorize":
                asked = urllib.parse.parse_qs(parts.query)
                back = urllib.parse.urlencode({"code": "c", "state": asked["state"][0]})
                self.reply(302, Location=f"{asked['redirect_uri'][0]}?{back}")
            else:
                self.reply(404)

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/register":
                self.reply(201, json.loads(data) | {"client_id": "me"})
            elif self.path == "/oauth/token":
                self.reply(200, state.token(urllib.parse.parse_qs(data.decode())))
            elif self.headers.get("Authorization", "")[7:] not in state.valid:
                self.reply(401, {"error": "no token"}, WWW_Authenticate="Bearer")
            elif (found := answer(json.loads(data))) is None:
                self.reply(202)
            elif state.odd == "packed":
                self.reply(200, found, Content_Encoding="gzip")
            else:
                self.reply(200, found | {"more": "x" * (9 << 20)} if state.odd else found)

    with serving(Handler) as url:
        state = Guarded(url)
        yield state
