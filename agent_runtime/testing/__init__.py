"""What you need to test your agents without a provider: scripted models, and a loopback server.

A scripted model answers in order, and goes through the whole loop as a real one does:

    from agent_runtime import Agent, Runtime
    from agent_runtime.testing import ScriptedModel, call, say

    async def test_the_agent_reads_before_it_answers() -> None:
        model = ScriptedModel([call("read_file", path="notes.md"), say("Done.")])
        async with Runtime.open() as runtime:
            result = await runtime.run(Agent(model, tools=[read_file]), "Summarize the notes.")
        assert result.output == "Done."
        assert len(model.requests) == 2

`OpenAIServer` speaks OpenAI's protocol on loopback, so that a test reaches the HTTP client too,
with rate limits, broken streams and silence where the script says so:

    from agent_runtime.testing import OpenAIServer, Reply, rate_limited

    replies = [rate_limited("0"), Reply(text="Done.")]
    async with OpenAIServer(lambda request, n: replies[n]) as server:
        model = LiteLLMModel("openai/any", base_url=server.base_url, api_key="unused")

`StrictServer` plays one provider: it streams a model's turns event for event, and refuses each
request that the provider would refuse, in the provider's own words:

    from agent_runtime.testing import Anthropic, Call, Say, StrictServer, Think

    turns = [(Think("A file."), Call("read_file", {"path": "notes.md"})), (Say("Done."),)]
    async with StrictServer(Anthropic(thinking=True), lambda child, n: turns[n]) as server:
        model = NativeModel("anthropic/claude-sonnet-4-5", base_url=server.url, api_key="unused")
    assert server.violations == []

`checked_requests` checks every prompt by the same rules, also where a scripted model answers:

    with checked_requests():
        result = await runtime.run(Agent(model, tools=[read_file]), "Summarize the notes.")

`python -m agent_runtime.testing` runs such a server as a program.
"""

from __future__ import annotations

from agent_runtime.models.retrieval.embedding import ScriptedEmbedder
from agent_runtime.models.scripted import ScriptedModel, call, calls, raw_call, say
from agent_runtime.models.wire.rules.switch import checked_requests
from agent_runtime.testing.model_server import (
    OpenAIServer,
    Recorded,
    Reply,
    Script,
    call_then_answer,
    failure,
    overflow,
    rate_limited,
    server_error,
    unauthorized,
    unknown_model,
)
from agent_runtime.testing.observer import is_for_memory, notes_for
from agent_runtime.testing.prompt_meter import MeteredUsage, PromptMeter
from agent_runtime.testing.providers import (
    Anthropic,
    Bedrock,
    Call,
    Compatible,
    Gemini,
    Mistral,
    OpenAI,
    Part,
    Provider,
    Quirks,
    Quirky,
    RefusedError,
    Responses,
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
    "MeteredUsage",
    "Mistral",
    "OpenAI",
    "OpenAIServer",
    "Part",
    "PromptMeter",
    "Provider",
    "Quirks",
    "Quirky",
    "Recorded",
    "RefusedError",
    "Reply",
    "Responses",
    "Say",
    "Script",
    "ScriptedEmbedder",
    "ScriptedModel",
    "StrictServer",
    "Think",
    "Turn",
    "TurnScript",
    "call",
    "call_then_answer",
    "calls",
    "checked_requests",
    "failure",
    "is_for_memory",
    "notes_for",
    "overflow",
    "rate_limited",
    "raw_call",
    "say",
    "server_error",
    "unauthorized",
    "unknown_model",
]
