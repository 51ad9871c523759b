"""Types of the public API, checked by pyright alone: nothing here runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_type

from agent_runtime import (
    Agent,
    AnyEvent,
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
from agent_runtime.events import AnswerData, FoundMessage
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
    assert_type(Agent().run_sync("Hello."), RunResult[str])
    assert_type(Agent().max_steps, int | None)


@dataclass
class City:
    """A type of output, and of what tools get."""

    name: str


async def outputs(runtime: Runtime, kind: type[City], unknown: Any) -> None:
    """An agent's output type is that of its results."""
    agent = Agent(output_type=City)
    assert_type(agent, Agent[City])
    assert_type((await runtime.run(agent, "Where?")).output, City | None)
    assert_type((await runtime.run(agent, "Where?")).require_output().name, str)
    assert_type(agent.run_sync("Where?").require_output(), City)
    async with runtime.stream(agent, "Where?") as stream:
        assert_type(stream.result.require_output(), City)
    assert_type(Agent(output_type=int | None), Agent[int | None])
    assert_type(Agent(output_type=Literal["yes", "no"]), Agent[Literal["yes", "no"]])
    assert_type(Agent(output_type=kind), Agent[City])
    assert_type(Agent(output_type=unknown), Agent[Any])
    assert_type((await runtime.run(workflow, "Where?")).require_output(), Any)
    text: Agent = agent  # pyright: ignore[reportAssignmentType]
    anything: RunResult = await runtime.run(agent, "Where?")
    del text, anything


@tool
async def of_a_city(context: ToolContext[City]) -> str:
    """A context knows the type of what the program passed to the run."""
    assert_type(context.deps, City)
    return context.deps.nothing  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


def comparisons(event: AnyEvent) -> str:
    """The kind of an event says what its data holds."""
    if event.kind == "answer":
        assert_type(event.data, AnswerData)
        assert_type(event.data["step"], int)
        assert_type(event.data.get("model"), str | None)
        return event.data["steps"]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    if event.kind == "run-finish":
        assert_type(event.data["status"], Literal["succeeded", "failed", "cancelled"])
    return ""


def matches(event: AnyEvent) -> None:
    """A pattern says it, too."""
    match event:
        case Event(kind="tool-start", data=data):
            assert_type(data["tool"], str)
        case Event(kind="recall"):
            for message in event.data["found"]:
                assert_type(message, FoundMessage)
        case _:
            pass
    match event.kind:
        case "tool-progress":
            assert_type(event.data["done"], float)
        case "plan":
            assert_type(event.data["version"], int)
        case "plam":  # pyright: ignore[reportUnnecessaryComparison]
            pass
        case _:
            pass


async def listeners(runtime: Runtime, any_kind: Event) -> None:
    """A listener takes the events of all kinds, with types or without."""
    seen: list[Event] = []
    typed: list[AnyEvent] = []
    await runtime.run(Agent(), "Hello.", on_event=seen.append)
    await runtime.run(Agent(), "Hello.", on_event=typed.append)
    assert_type(any_kind.data, Mapping[str, Any])


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
        assert_type(result, RunResult[str])
        assert_type(result.ok, bool)
        assert_type(result.cost_usd, float | None)
        assert_type(await runtime.resume(result.run_id, Agent()), RunResult[str])
        assert_type(await runtime.regenerate(Agent(), result.thread_id), RunResult[str])
        assert_type(await runtime.cancel(result.run_id), list[str])
        assert_type(await runtime.steer(result.run_id, "Wait."), None)
        async with runtime.stream(Agent(), "Hello.") as stream:
            assert_type(stream, RunStream[str])
            async for event in stream:
                assert_type(event, AnyEvent)
                assert_type(event.id, int)
            assert_type(stream.result, RunResult[str])


@Workflow
async def workflow(w: WorkflowContext) -> str:
    """A function as a node has its own parameters and result."""
    assert_type(await w.call("plain", plain, 1, b="x"), list[str])
    assert_type(await w.call("untouched", untouched, 1), int)
    assert_type(await w.call("runs", runs), None)
    assert_type(await w.gather(w.call("a", untouched, 1), w.call("b", untouched, 2)), list[int])
    await w.call("untouched", untouched, "1")  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert_type(await w.agent("city", Agent(output_type=City)), City)
    assert_type(await w.agent("text", Agent()), str)
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
