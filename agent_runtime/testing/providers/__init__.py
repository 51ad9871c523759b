"""Scripted providers: how each one streams, and which requests it refuses."""

from __future__ import annotations

from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.bedrock import Bedrock
from agent_runtime.testing.providers.compatible import Compatible, Quirks
from agent_runtime.testing.providers.gemini import Gemini
from agent_runtime.testing.providers.mistral import Mistral
from agent_runtime.testing.providers.openai import OpenAI, Quirky
from agent_runtime.testing.providers.responses import Responses
from agent_runtime.testing.providers.server import (
    Call,
    Part,
    Provider,
    RefusedError,
    Say,
    StrictServer,
    Think,
    Turn,
    TurnScript,
)

__all__ = [
    "Anthropic",
    "Bedrock",
    "Call",
    "Compatible",
    "Gemini",
    "Mistral",
    "OpenAI",
    "Part",
    "Provider",
    "Quirks",
    "Quirky",
    "RefusedError",
    "Responses",
    "Say",
    "StrictServer",
    "Think",
    "Turn",
    "TurnScript",
]
