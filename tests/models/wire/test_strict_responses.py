"""The strict server of OpenAI's Responses API refuses what OpenAI refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from agent_runtime.models.base import Json
from agent_runtime.testing.providers.responses import Responses
from agent_runtime.testing.providers.server import RefusedError, Say
from tests.models.wire.test_responses import MIXED, Talk

Spoil: TypeAlias = Callable[[Json], object]


def _spoilt(spoil: Spoil) -> str:
    talk = Talk(Responses())
    talk.turn(*MIXED)
    talk.turn(Say("Fine."))
    spoil(talk.sent)
    with pytest.raises(RefusedError) as refused:
        talk.provider.check(talk.sent, {"authorization": "Bearer x"})
    return str(refused.value)


SPOILT: list[tuple[Spoil, str]] = [
    (lambda body: body["input"].pop(1), "without its required 'reasoning' item"),
    (lambda body: body["input"].pop(2), "without its required following item"),
    (lambda body: body["input"][1].pop("summary"), "Missing required parameter"),
    (lambda body: body["input"][1].pop("encrypted_content"), "not found"),
    (lambda body: body["input"][1].update(encrypted_content="gX"), "could not be verified"),
    (lambda body: body.update(model="gpt-6-sol"), "could not be verified"),
    (lambda body: body["input"][2].pop("phase"), "phase"),
    (lambda body: body["input"][2].update(content=[]), "empty content"),
    (lambda body: body["input"][2].update(id="msg_" + "x" * 64), "Invalid 'input[2].id'"),
    (lambda body: body["input"][4].update(call_id="other"), "No tool call found"),
    (lambda body: body["input"].pop(), "No tool output found"),
    (lambda body: body.update(temperature=1), "Unsupported parameter: 'temperature'"),
    (lambda body: body.update(reasoning={"effort": "minimal"}), "Unsupported value"),
    (lambda body: body.update(stop=["x"]), "Unknown parameter: 'stop'"),
    (lambda body: body["tools"][0].pop("strict"), "additionalProperties"),
    (lambda body: body.pop("store"), "store"),
]


@pytest.mark.parametrize(("spoil", "text"), SPOILT)
def test_the_strict_provider_refuses(spoil: Spoil, text: str) -> None:
    assert text in _spoilt(spoil)
