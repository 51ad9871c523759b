"""Contents in spans: no half of a secret, and nothing that fails the call it is shown of."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agent_runtime.messages import PromptMessage
from agent_runtime.models.telemetry.contents import MOST, request_contents, shown, shown_json

SECRETS = (
    "AKIAA1B2C3D4E5F6G7H8",
    "ghp_" + "a1B2c3D4e5" * 4,
    "glpat-a1B2c3D4e5a1B2c3D4e5",
    "xoxb-123456789012-123456789012-a1B2c3D4e5",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.a1B2c3D4e5",
    "-----BEGIN RSA PRIVATE KEY-----\n" + "a1B2+c3D4/e5\n" * 40 + "-----END RSA PRIVATE KEY-----",
)


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:12])
def test_a_secret_is_masked_also_where_it_goes_over_the_end(secret: str) -> None:
    assert shown(f"TOKEN {secret} and more") == "TOKEN *** and more"
    assert shown_json({"key": secret}) == '{"key":"***"}'
    for kept in (12, 16, 20):
        text = "x" * (MOST - kept - 1) + " " + secret + " and more" * 20
        found = shown(text)
        assert secret[:12] not in found, kept
        assert found.endswith(f"… ({len(text)} characters)") and len(found) < MOST + 40


def test_what_json_cannot_hold_is_shown_all_the_same() -> None:
    deep: Any = "end"
    for _ in range(400):
        deep = [deep]
    for value in ({"n": 2**70}, {"deep": deep}, {1: "key"}, {"s": "\ud800"}, {"o": object()}):
        assert shown_json(value)
    # Without an encoding it would keep the other spans of its batch from the collector.
    half = PromptMessage("user", "a\ud800b")
    assert orjson.loads(request_contents([half])["gen_ai.input.messages"])
    assert "\ud800" not in shown("a\ud800b")
