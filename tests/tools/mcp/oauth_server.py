"""A server over HTTP made with the SDK, whose tools need a login with the SDK's own routes."""

from __future__ import annotations

import secrets
import sys
import time

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

SECONDS = 3600


class Logins(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Logs everybody in as `ada`, without a page."""

    def __init__(self, lasting: int) -> None:
        self._lasting = lasting
        self._clients: dict[str, OAuthClientInformationFull] = {}
        self._codes: dict[str, AuthorizationCode] = {}
        self._tokens: dict[str, AccessToken] = {}
        self._refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self._clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject="ada",
        )
        self._codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self._codes[authorization_code.code]
        return self._granted("code", client, authorization_code)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self._refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        # Rotated, as OAuth 2.1 asks of public clients.
        del self._refresh[refresh_token.token]
        return self._granted("refresh", client, refresh_token)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self._tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self._tokens.pop(token.token, None)

    def _granted(
        self, how: str, client: OAuthClientInformationFull, of: AuthorizationCode | RefreshToken
    ) -> OAuthToken:
        """Return new tokens; the access token's name begins with how it was got."""
        lasting = self._lasting if how == "code" else SECONDS
        client_id = str(client.client_id)
        access, renewal = f"{how}-{secrets.token_hex(16)}", secrets.token_hex(16)
        self._tokens[access] = AccessToken(
            token=access,
            client_id=client_id,
            scopes=of.scopes,
            expires_at=int(time.time()) + lasting,
            resource=of.resource,
            subject=of.subject,
        )
        self._refresh[renewal] = RefreshToken(
            token=renewal,
            client_id=client_id,
            scopes=of.scopes,
            resource=of.resource,
            subject=of.subject,
        )
        return OAuthToken(
            access_token=access,
            expires_in=lasting,
            refresh_token=renewal,
            scope=" ".join(of.scopes) or None,
        )


def main() -> None:
    """Serve on the port and with access tokens of the lasting that the arguments say."""
    port, lasting = int(sys.argv[1]), int(sys.argv[2])
    url = f"http://127.0.0.1:{port}"
    server = MCPServer(
        "guarded",
        log_level="ERROR",
        auth_server_provider=Logins(lasting),
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            validate_token_resource=True,
            required_scopes=["notes"],
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["notes"], default_scopes=["notes"]
            ),
        ),
    )

    @server.tool()
    def whoami() -> str:
        """Say who is logged in, and how."""
        token = get_access_token()
        return "nobody" if token is None else f"{token.subject} by {token.token.split('-')[0]}"

    server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
