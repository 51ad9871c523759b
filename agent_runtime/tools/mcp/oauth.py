"""OAuth: a login's tokens in the user's state folder, and the login in a browser."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_thread
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from agent_runtime.tools.mcp.records import TOKENS, delete_record, read_record, write_record
from agent_runtime.tools.mcp.server import McpServer

AskedToLogIn = Callable[[str], Awaitable[None]]
LoginAnswer = Callable[[], Awaitable[AuthorizationCodeResult]]


class LoginNeeded(Exception):
    """A server asks for a login, and nobody can log in from here."""


class StoredTokens(TokenStorage):
    """The tokens of one server's address, with what is needed to renew them.

    They are bound to the address: whoever changes a definition's URL gets none of them.
    """

    def __init__(self, server: McpServer) -> None:
        # By address: a token of one server must not be sent to another of the same name.
        self._key = f"{server.name} {server.url}"
        self.provider: OAuthClientProvider | None = None
        self._record: dict[str, Any] = {}

    async def load(self) -> bool:
        """Read the record; return whether there are tokens."""
        self._record = await anyio.to_thread.run_sync(read_record, TOKENS, self._key) or {}
        return "tokens" in self._record

    async def forget(self) -> bool:
        """Delete the record; return whether there was one."""
        self._record = {}
        return await anyio.to_thread.run_sync(delete_record, TOKENS, self._key)

    def restore(self, provider: OAuthClientProvider) -> None:
        """Give a provider what it needs to renew tokens of an earlier process."""
        self.provider = provider
        expires = self._record.get("expires_at")
        # The SDK knows it only of tokens that it has got itself, and would send an expired one
        # first.
        provider.context.token_expiry_time = expires if isinstance(expires, float) else None
        if "metadata" in self._record:
            provider.context.oauth_metadata = _read(OAuthMetadata, self._record["metadata"])

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens."""
        return _read(OAuthToken, self._record.get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens."""
        self._record["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        lasting = tokens.expires_in
        self._record["expires_at"] = None if lasting is None else time.time() + lasting
        found = self.provider.context.oauth_metadata if self.provider else None
        if found is not None:
            self._record["metadata"] = found.model_dump(mode="json", exclude_none=True)
        await self._save()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the stored registration of this client."""
        return _read(OAuthClientInformationFull, self._record.get("client"))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the registration of this client."""
        self._record["client"] = client_info.model_dump(mode="json", exclude_none=True)
        await self._save()

    async def _save(self) -> None:
        await anyio.to_thread.run_sync(write_record, TOKENS, self._key, dict(self._record))


def _read(kind: Any, value: Any) -> Any:
    try:
        return None if value is None else kind.model_validate(value)
    except ValidationError:
        return None


async def stored_login(server: McpServer) -> OAuthClientProvider | None:
    """Return what authorizes requests by an earlier login; None if there was none."""
    storage = StoredTokens(server)
    if not await storage.load():
        return None

    async def refuse(url: str) -> None:
        raise LoginNeeded

    async def never() -> AuthorizationCodeResult:
        raise LoginNeeded

    return _provider(server, storage, "http://127.0.0.1/callback", refuse, never)


async def new_login(
    server: McpServer, redirect: str, show: AskedToLogIn, answer: LoginAnswer
) -> OAuthClientProvider:
    """Return what logs in again: it shows a URL, and awaits what comes back to `redirect`."""
    storage = StoredTokens(server)
    # A registration names its address for the answer, and the old one had another port.
    await storage.forget()
    return _provider(server, storage, redirect, show, answer)


def _provider(
    server: McpServer, storage: StoredTokens, redirect: str, show: AskedToLogIn, answer: LoginAnswer
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(
        client_name="agent-runtime",
        redirect_uris=[AnyUrl(redirect)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    provider = OAuthClientProvider(server.url, metadata, storage, show, answer)
    storage.restore(provider)
    return provider
