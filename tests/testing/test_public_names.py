"""The exports of `agent_runtime.testing`, and examples of their use."""

from __future__ import annotations

import inspect

from agent_runtime import Agent, LiteLLMModel, Runtime, Settings, testing, tool
from agent_runtime.testing import OpenAIServer, Reply, ScriptedModel, call, rate_limited, say


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"the content of {path}"


def test_every_export_is_documented() -> None:
    assert list(testing.__all__) == sorted(testing.__all__)
    for name in testing.__all__:
        if name not in ("Part", "Script", "Turn", "TurnScript"):
            assert inspect.getdoc(getattr(testing, name)), name


async def test_a_scripted_model_goes_through_the_whole_loop() -> None:
    model = ScriptedModel([call("read_file", path="notes.md"), say("Done.")])
    async with Runtime.open(Settings()) as runtime:
        result = await runtime.run(Agent(model, tools=[read_file]), "Summarize the notes.")
    assert result.output == "Done."
    assert len(model.requests) == 2


async def test_a_servers_script_may_fail_first() -> None:
    replies = [rate_limited("0"), Reply(text="Done.")]
    async with (
        OpenAIServer(lambda request, n: replies[n]) as server,
        Runtime.open(Settings()) as runtime,
    ):
        model = LiteLLMModel("openai/any", base_url=server.base_url, api_key="unused")
        result = await runtime.run(Agent(model), "Work.")
    assert result.output == "Done."
    assert len(server.requests) == 2
