"""Compatible servers whose answers break off: they never count as answers."""

from __future__ import annotations

import pytest

from agent_runtime.errors import ModelProtocolError, ModelUnavailable
from agent_runtime.testing.providers.compatible import Compatible, Quirks
from agent_runtime.testing.providers.server import Call, Say, StrictServer, Turn
from tests.models.conftest import READ, Transport, request

BROKEN = {
    "no-finish-reason": Quirks(finish=False),
    "no-finish-reason-nor-end": Quirks(finish=False, done=False, usage="none"),
    "error-after-200": Quirks(failure="The worker crashed."),
}
TURNS: dict[str, Turn] = {
    "text": (Say("Half of an answer, and the other half."),),
    "call": (Call("read", {"path": "notes.md"}),),
}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_breaks_off_fails(name: str, turn: str, transport: Transport) -> None:
    provider = Compatible(BROKEN[name])
    async with StrictServer(provider, lambda child, n: TURNS[turn]) as server:
        model = transport("openai/test", base_url=f"{server.url}/v1", api_key="sk-x", retries=0)
        with pytest.raises((ModelProtocolError, ModelUnavailable)):
            async with model.stream(request(tools=(READ,))) as events:
                _ = [event async for event in events]
