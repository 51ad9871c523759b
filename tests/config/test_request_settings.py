"""`ModelSettings` from the environment, and over the defaults."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime_config import ConfigError, load_settings
from agent_runtime_config.request_settings import ModelSettings, parse_model_settings


def test_all_fields_are_read() -> None:
    text = (
        '{"temperature": 0, "top_p": 0.5, "seed": 7, "stop": ["END"], "reasoning": 2048,'
        ' "tool_choice": "read", "parallel_calls": false, "verbosity": "low",'
        ' "service_tier": "flex", "cache_ttl": "1h", "extra_headers": {"x-team": "a"},'
        ' "extra_body": {"k": [1]}}'
    )
    assert parse_model_settings(text) == ModelSettings(
        temperature=0,
        top_p=0.5,
        seed=7,
        stop=("END",),
        reasoning=2048,
        tool_choice="read",
        parallel_calls=False,
        verbosity="low",
        service_tier="flex",
        cache_ttl="1h",
        extra_headers={"x-team": "a"},
        extra_body={"k": [1]},
    )
    assert parse_model_settings(" ") == ModelSettings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"temprature": 1}', "unknown field temprature; known are .*temperature"),
        ('{"temperature": "hot"}', "wrong temperature: it must be a number from 0 to 2"),
        ('{"temperature": NaN}', "wrong temperature"),
        ('{"top_p": true}', "wrong top_p"),
        ('{"seed": 1.5}', "wrong seed"),
        ('{"stop": "END"}', "a list of texts"),
        ('{"reasoning": "much"}', "one of none, minimal"),
        ('{"reasoning": 0}', "a number of tokens"),
        ('{"parallel_calls": 1}', "true or false"),
        ('{"verbosity": "loud"}', "one of low, medium, high"),
        ('{"extra_headers": []}', "an object"),
        ('{"tool_choice": ""}', "a text"),
    ],
)
def test_a_wrong_value_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"AGENT_RUNTIME_MODEL_SETTINGS .*{problem}"):
        load_settings({"AGENT_RUNTIME_MODEL_SETTINGS": text})


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, ModelSettings(temperature=1.0, seed=1)),
        ({"temperature": 0.0}, ModelSettings(temperature=0.0, seed=1)),
        ({"stop": ("x",), "seed": 0}, ModelSettings(temperature=1.0, seed=0, stop=("x",))),
    ],
)
def test_an_agents_settings_win_over_the_defaults(
    own: dict[str, Any], expected: ModelSettings
) -> None:
    assert ModelSettings(**own).over(ModelSettings(temperature=1.0, seed=1)) == expected
