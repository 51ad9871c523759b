"""The SDK's client over streams that are open already."""

from __future__ import annotations

import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.client.client import Client
from mcp.client.session import MessageHandlerFnT

NOT_ASKED = "Questions to the user need version 2026-07-28 of the protocol, or a newer one."


def client_over(streams: TransportStreams, handler: MessageHandlerFnT) -> Client:
    """Return a client, which the caller enters."""
    return Client(
        _Given(streams),
        message_handler=handler,
        # With it the client says that questions may be asked, as results of calls.
        elicitation_callback=_not_during_a_call,
        # Answers must not outlive a change of the server's tools, which approvals are bound to.
        cache=None,
    )


async def _not_during_a_call(context: object, params: object) -> types.ErrorData:
    """Refuse what servers of older versions of the protocol ask in the middle of a call.

    The answer may come days later, from another process, and their call cannot wait for it.
    """
    del context, params
    return types.ErrorData(code=types.INVALID_REQUEST, message=NOT_ASKED)


class _Given:
    """A transport of streams that are open already."""

    def __init__(self, streams: TransportStreams) -> None:
        self._streams = streams

    async def __aenter__(self) -> TransportStreams:
        return self._streams

    async def __aexit__(self, *_: object) -> None:
        return None
