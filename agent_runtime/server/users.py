"""Who a request is from: bearer tokens of the database, JSON Web Tokens, or a hook of one's own."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection

from agent_runtime.errors import ConfigError
from agent_runtime.server.access import runtime_of

Authenticate: TypeAlias = Callable[[HTTPConnection], Awaitable[str | None]]
"""Returns the user of a request; None if it does not say who that is."""

COOKIE = "agent_runtime_session"
PREFIX = "art_"
# Characters; a longer header is no token of anybody's, and is not worth hashing.
_LONGEST = 8_000


def new_token() -> str:
    """Return a random token of 256 bits."""
    return PREFIX + secrets.token_urlsafe(32)


def bearer_of(connection: HTTPConnection) -> str | None:
    """Return the token of a request: that of `Authorization`, or else the session's cookie."""
    given = connection.headers.getlist("authorization")
    if len(given) > 1:
        # A proxy may have looked at another one.
        return None
    if given:
        scheme, _, token = given[0].partition(" ")
        found = token.strip() if scheme.lower() == "bearer" else ""
    else:
        found = connection.cookies.get(COOKIE, "")
    return found if 0 < len(found) <= _LONGEST else None


async def by_token(connection: HTTPConnection) -> str | None:
    """Return the user to whom `agent-runtime tokens make` gave the request's token."""
    token = bearer_of(connection)
    if token is None or not token.startswith(PREFIX):
        return None
    store = runtime_of(connection).store.service
    owner = await store.token_owner(token)
    if owner is None:
        return None
    # Its last use is written now and then only: a write for each request would cost more than the
    # request.
    if owner.stale:
        await store.use_token(owner)
    return owner.user_id


def by_jwt(
    key: Any, *, algorithms: Sequence[str], audience: str, issuer: str, claim: str = "sub"
) -> Authenticate:
    """Return a hook that takes JSON Web Tokens; it needs the extra `jwt`.

    The signature, the times, the audience and the issuer of a token are checked, and it must say
    when it ends.

    Args:
        key: what the tokens are signed with: a secret or a public key, as PyJWT takes it; or a
            `jwt.PyJWKClient`, which loads the issuer's keys.
        algorithms: the only ones that are taken, such as `["RS256"]`.
        claim: names the user.

    Raises:
        ConfigError: PyJWT is not installed, or no algorithm is named.
    """
    try:
        import jwt
    except ImportError as error:
        raise ConfigError(
            "JSON Web Tokens need PyJWT.", cure="Install `agent-runtime-om[jwt]`."
        ) from error
    if not algorithms or "none" in {one.lower() for one in algorithms}:
        raise ConfigError("Unsigned tokens prove nothing.", cure="Name algorithms such as RS256.")

    def user(token: str) -> str | None:
        try:
            chosen = (
                key.get_signing_key_from_jwt(token).key if isinstance(key, jwt.PyJWKClient) else key
            )
            claims = jwt.decode(
                token, chosen, algorithms=list(algorithms), audience=audience, issuer=issuer,
                options={"require": ["exp", "aud", "iss", claim]},
            )  # fmt: skip
        except jwt.PyJWTError:
            return None
        found = claims.get(claim)
        return found if isinstance(found, str) and found else None

    async def authenticate(connection: HTTPConnection) -> str | None:
        import anyio.to_thread

        token = bearer_of(connection)
        # In a thread: a signature costs time, and the issuer's keys may have to be loaded.
        return None if token is None else await anyio.to_thread.run_sync(user, token)

    return authenticate
