"""Which wire each provider's server speaks, where it is, and what it does differently, as data.

Names are litellm's.  A provider that is missing here is called through litellm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

WireName: TypeAlias = Literal["chat", "responses", "messages", "gemini"]

_VERSION = re.compile(r"/v\d+(?:beta\d*|alpha\d*)?$")


@dataclass(frozen=True, slots=True)
class Server:
    """A provider's server.

    Attributes:
        wire: what it speaks.
        base_url: its address, with the API's version; empty where the user has to give one.
        keys: the environment's variables for its key; the first that is set counts.
        urls: the environment's variables for its address.
        keyless: whether it works without a key.
        output_limit: the field for the most tokens of an answer.
        routes: whether it takes a key by which equal prompts reach the same cache.
        choices: whether a call can be forced.
        reasoning: how it is asked to reason: by `reasoning_effort`, by an object `reasoning`, or
            not at all.
    """

    wire: WireName
    base_url: str = ""
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    keyless: bool = False
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    routes: bool = False
    choices: bool = True
    reasoning: Literal["effort", "object", "none"] = "effort"


SERVERS: Mapping[str, Server] = {
    "anthropic": Server(
        "messages",
        "https://api.anthropic.com/v1",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    ),
    "gemini": Server(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_API_BASE",),
    ),
    "openai": Server(
        "chat",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        output_limit="max_completion_tokens",
        routes=True,
    ),
    "xai": Server("responses", "https://api.x.ai/v1", ("XAI_API_KEY",), ("XAI_API_BASE",)),
    "cerebras": Server("chat", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",)),
    "deepseek": Server(
        "chat",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        ("DEEPSEEK_API_BASE",),
        choices=False,
    ),
    "fireworks_ai": Server(
        "chat",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
    ),
    "groq": Server("chat", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
    "hosted_vllm": Server(
        "chat", "", ("HOSTED_VLLM_API_KEY",), ("HOSTED_VLLM_API_BASE",), keyless=True
    ),
    "lm_studio": Server("chat", "", ("LM_STUDIO_API_KEY",), ("LM_STUDIO_API_BASE",), keyless=True),
    "moonshot": Server(
        "chat",
        "https://api.moonshot.ai/v1",
        ("MOONSHOT_API_KEY",),
        ("MOONSHOT_API_BASE",),
        choices=False,
    ),
    "openrouter": Server(
        "chat",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY", "OR_API_KEY"),
        ("OPENROUTER_API_BASE",),
        reasoning="object",
    ),
    "together_ai": Server(
        "chat",
        "https://api.together.xyz/v1",
        ("TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN", "TOGETHER_API_KEY"),
        ("TOGETHERAI_API_BASE",),
        reasoning="none",
    ),
}
"""Providers with a wire of ours."""

# OpenAI's models that refuse tools with reasoning on the chat wire.
_RESPONSES_MODEL = re.compile(r"^gpt-(?:5\.(?:[4-9]|\d\d)|[6-9]|\d\d)(?![\d])")


def server_of(provider: str) -> Server | None:
    """Return the server of a provider; None if we have no wire for it."""
    return SERVERS.get(provider)


def wire_of(name: str, server: Server, entry: Mapping[str, Any], *, own_host: bool) -> WireName:
    """Return the wire for a model of a server.

    Args:
        name: the model's name without its provider.
        entry: its entry in the table of models.
        own_host: whether it is called at the provider's own address.
    """
    if server.wire != "chat":
        return server.wire
    if name.startswith("responses/"):
        return "responses"
    # Servers that are compatible with OpenAI's seldom have more than the chat wire.
    if server.keys[:1] != ("OPENAI_API_KEY",) or not own_host:
        return "chat"
    wanted = entry.get("mode") == "responses" or _RESPONSES_MODEL.match(name)
    return "responses" if wanted else "chat"


def key_of(server: Server) -> str:
    """Return the environment's key for a server; empty if there is none."""
    return next((value for name in server.keys if (value := os.environ.get(name))), "")


def url_of(server: Server, given: str | None) -> str:
    """Return the address of a server's API, without a slash at its end; empty if there is none.

    Args:
        given: the user's base URL.  Anthropic's and Gemini's may lack the version, as those that
            users have for the providers' own clients do.
    """
    own = next((value for name in server.urls if (value := os.environ.get(name))), "")
    url = (given or own or server.base_url).rstrip("/")
    if server.wire in ("messages", "gemini") and url and not _VERSION.search(url):
        version = "v1" if server.wire == "messages" else "v1beta"
        url = f"{url}/{version}"
    return url
