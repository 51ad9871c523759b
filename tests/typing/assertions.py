"""Types of the public API, checked by pyright alone: nothing here runs."""

from __future__ import annotations

from typing import Any, assert_type

from agent_runtime import (
    Agent,
    Event,
    LiteLLMModel,
    Model,
    RunResult,
    RunStream,
    Runtime,
    ScriptedModel,
    Settings,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    Workflow,
    WorkflowContext,
    load_settings,
    model_from_name,
    tool,
    trim_messages,
    workspace_tools,
)
from agent_runtime.errors import AgentRuntimeError, ThreadBusy
from agent_runtime.messages import PromptMessage


@tool
def plain(a: int, b: str = "") -> list[str]:
    """A tool has its function's parameters and result."""
    return [b] * a


@tool(name="other", timeout=3, idempotent=True, needs_approval=False)
async def configured(context: ToolContext, a: int) -> ToolResult:
    """Options of `tool` do not change that."""
    return ToolResult(f"{a} {context.run_id}")


def untouched(a: int) -> int:
    """A plain function is a tool as well."""
    return a


assert_type(plain(1), list[str])
plain("1")  # pyright: ignore[reportArgumentType]
configured()  # pyright: ignore[reportCallIssue, reportUnusedCoroutine]


async def tools(context: ToolContext) -> None:
    """A tool can be called as its function."""
    assert_type(await configured(context, 1), ToolResult)
    as_tool: Tool = plain
    assert_type(await as_tool.call({}, context), ToolResult)


def agents() -> None:
    """Accept models, tools and output types in their different forms."""
    Agent("openai/gpt-5", tools=[plain, configured, untouched], output_type=list[int])
    Agent(ScriptedModel(["Hello."]), tools=workspace_tools("."))
    Agent(LiteLLMModel("openai/gpt-5"))
    Agent("openai/gpt-5", [plain])  # pyright: ignore[reportCallIssue]
    Agent(tools=[1])  # pyright: ignore[reportArgumentType]
    assert_type(Agent().run_sync("Hello."), RunResult)
    assert_type(Agent().max_steps, int | None)


def models() -> None:
    """Any object with the three members is a model."""
    models: list[Model] = [ScriptedModel([]), LiteLLMModel("openai/gpt-5")]
    models.append(model_from_name("openai/gpt-5", load_settings()))
    not_a_model: Model = Settings()  # pyright: ignore[reportAssignmentType]
    del not_a_model


async def runs() -> None:
    """Return typed results and events from runs."""
    async with Runtime.open() as runtime:
        assert_type(runtime, Runtime)
        result = await runtime.run(Agent(), "Hello.")
        assert_type(result, RunResult)
        assert_type(result.ok, bool)
        assert_type(result.cost_usd, float | None)
        assert_type(await runtime.resume(result.run_id, Agent()), RunResult)
        assert_type(await runtime.regenerate(Agent(), result.thread_id), RunResult)
        assert_type(await runtime.cancel(result.run_id), list[str])
        assert_type(await runtime.steer(result.run_id, "Wait."), None)
        async with runtime.stream(Agent(), "Hello.") as stream:
            assert_type(stream, RunStream)
            async for event in stream:
                assert_type(event, Event)
                assert_type(event.id, int)
            assert_type(stream.result, RunResult)


@Workflow
async def workflow(w: WorkflowContext) -> str:
    """A function as a node has its own parameters and result."""
    assert_type(await w.call("plain", plain, 1, b="x"), list[str])
    assert_type(await w.call("untouched", untouched, 1), int)
    assert_type(await w.call("runs", runs), None)
    assert_type(await w.gather(w.call("a", untouched, 1), w.call("b", untouched, 2)), list[int])
    await w.call("untouched", untouched, "1")  # pyright: ignore[reportArgumentType, reportCallIssue]
    await w.agent("agent", workflow)  # pyright: ignore[reportArgumentType]
    return w.input


assert_type(workflow, Workflow)


def messages() -> None:
    """Return trimmed messages in the type that they came in."""
    assert_type(trim_messages([PromptMessage("user", "Hm.")], "gpt-5"), list[PromptMessage])
    message = {"role": "user", "content": "Hm."}
    assert_type(trim_messages([message], "gpt-5"), list[dict[str, Any]])


def errors() -> None:
    """Every error has a message and a cure."""
    try:
        raise ThreadBusy("Busy.", run_id="r", cure="Wait.")
    except ThreadBusy as error:
        assert_type(error.run_id, str)
        assert_type((error.message, error.cure), tuple[str, str])
    _: AgentRuntimeError = ToolError("No.")
