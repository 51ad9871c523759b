"""An approval is bound to its call: the same arguments of the same tool, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import httpx
import pytest
from pydantic import BaseModel, Field, PlainSerializer, SecretStr

from agent_runtime import Agent, Decision, Tool, tool
from agent_runtime.errors import InvalidAnswer
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime_storage import NewApproval
from tests.human.bindings import bindings
from tests.human.elsewhere import agent, started
from tests.support.processes import program
from tests.support.worlds import Play

pytestmark = pytest.mark.backends("file")
Make = Callable[[str, list[str]], Tool]
numbers = iter(range(1000))


def _closure(target: str, ran: list[str]) -> Tool:
    @tool(needs_approval=True)
    def deploy(version: str = "1") -> str:
        """Deploy."""
        ran.append(f"{version} to {target}")
        return "done"

    return deploy


class _Deployer:
    def __init__(self, target: str, ran: list[str]) -> None:
        self.target, self.ran, self.count = target, ran, 0

    def deploy(self, version: str = "1") -> str:
        """Deploy."""
        self.count += 1
        self.ran.append(f"{version} to {self.target}")
        return "done"


def _bound(target: str, ran: list[str]) -> Tool:
    return tool(_Deployer(target, ran).deploy, needs_approval=True)


def _partial(target: str, ran: list[str]) -> Tool:
    def deploy(version: str = "1", *, hosts: list[str]) -> str:
        """Deploy."""
        ran.append(f"{version} to {hosts[0]}")
        return "done"

    held = partial(deploy, hosts=[target])

    def call(version: str = "1") -> str:
        """Deploy."""
        return held(version)

    return tool(call, name="deploy", needs_approval=True)


def _default(target: str, ran: list[str]) -> Tool:
    def deploy(version: str = "1", to: str = target) -> str:
        """Deploy."""
        ran.append(f"{version} to {to}")
        return "done"

    return tool(deploy, needs_approval=True)


def _list(target: str, ran: list[str]) -> Tool:
    targets = [target]

    def deploy(version: str = "1") -> str:
        """Deploy."""
        ran.append(f"{version} to {targets[0]}")
        return "done"

    return tool(deploy, needs_approval=True)


def _code(target: str, ran: list[str]) -> Tool:
    def staging(version: str = "1") -> str:
        """Deploy."""
        ran.append(f"{version} to staging")
        return "done"

    def prod(version: str = "1") -> str:
        """Deploy."""
        ran.append(f"{version} to prod")
        return "done"

    return tool(prod if target == "prod" else staging, name="deploy", needs_approval=True)


MAKERS = pytest.mark.parametrize("make", [_closure, _bound, _partial, _default, _list, _code])


@MAKERS
async def test_an_answer_does_not_count_for_another_tool_of_the_same_name(
    play: Play, make: Make
) -> None:
    ran: list[str] = []
    async with play([call("deploy"), say("Done.")]) as world:
        [question] = (await world.run(Agent(tools=[make("staging", ran)]))).questions
        await world.runtime.answer(question.id, True)
        other = Agent(tools=[make("prod", ran)])
        suspended = await world.resume(other)

        assert ran == [] and suspended.status == "suspended"
        [again] = suspended.questions
        assert again.id != question.id
        await world.runtime.answer(again.id, True)
        assert (await world.resume(other)).ok and ran == ["1 to prod"]


class _Fixed:
    def __init__(self, target: str) -> None:
        self.target = target


def _derived(target: str) -> type[_Fixed]:
    class Derived(_Fixed):
        place = target

    return Derived


HELD: dict[str, Callable[[str], Any]] = {
    "namespace": lambda target: SimpleNamespace(target=target),
    "secret": SecretStr,
    "url": lambda target: httpx.URL(f"https://{target}.example"),
    "pattern": re.compile,
    "class": _derived,
    "object of a class": lambda target: _derived(target)("same"),
    "cached": lambda target: lru_cache(lambda: target),
    "method of a text": lambda target: target.upper,
    "call of a class": lambda target: partial(_Fixed, target),
}


@pytest.mark.parametrize("kind", HELD)
def test_functions_differ_by_their_captured_values(kind: str) -> None:
    def made(target: str) -> Tool:
        held = HELD[kind](target)

        def deploy() -> str:
            """Deploy."""
            return str(held)

        return tool(deploy, needs_approval=True)

    assert made("staging").binding() != made("prod").binding()
    assert made("staging").binding() == made("staging").binding()


def test_a_client_is_identified_by_its_construction_and_not_its_state() -> None:
    def made(host: str) -> tuple[Tool, httpx.Client]:
        client = httpx.Client(base_url=f"https://{host}.example")

        def deploy() -> str:
            """Deploy."""
            return client.get("/").text

        return tool(deploy, needs_approval=True), client

    (staging, one), (prod, other) = made("staging"), made("prod")
    before = staging.binding()
    one.close()
    other.close()
    assert staging.binding() == before != prod.binding()


def test_tools_of_a_module_differ_by_its_shared_values() -> None:
    source = """
class Client:
    def __init__(self, target):
        self.target, self.count = target, 0
client, place = Client(given), f"{given}-1"
def by_client() -> str:
    client.count += 1
    return client.target
def by_text() -> str:
    return place
"""

    def made(target: str) -> tuple[FunctionTool[..., Any], ...]:
        module: dict[str, Any] = {"__name__": "somebodys.tools", "given": target}
        exec(source, module)
        return tool(module["by_client"]), tool(module["by_text"])

    staging, prod = made("staging"), made("prod")
    for one, other in zip(staging, prod, strict=True):
        before = one.binding()
        one.function()
        assert one.binding() == before != other.binding()


def test_a_tool_that_holds_much_is_read_only_in_part() -> None:
    read = 0

    def attributes(row: object) -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"price": 1.5}

    row = type("Row", (), {"__dict__": property(attributes)})

    def made(rows: list[Any], text: str) -> Tool:
        def deploy() -> str:
            """Deploy."""
            return f"{rows} {text}"

        return tool(deploy, needs_approval=True)

    made([row() for _ in range(50_000)], "")
    assert 0 < read < 5_000
    long = "x" * 1_000_000
    texts = [long, f"{long}y", f"y{long}", f"y{long[1:]}", f"{long[1:]}y"]
    assert len({made([], text).binding() for text in texts}) == len(texts)


@MAKERS
async def test_always_covers_only_its_tool(play: Play, make: Make) -> None:
    ran: list[str] = []
    script = [call("deploy", version=f"{n}") for n in range(3)]
    async with play([*script, say("Done."), call("deploy", version="4")]) as world:
        [question] = (await world.run(Agent(tools=[make("staging", ran)]), thread="t")).questions
        await world.runtime.answer(question.id, Decision(True, remember=True))
        # Built again, as another process builds it, it is the same tool.
        assert (await world.resume(Agent(tools=[make("staging", ran)]))).ok
        assert ran == ["0 to staging", "1 to staging", "2 to staging"]

        suspended = await world.run(Agent(tools=[make("prod", ran)]), thread="t")

        assert suspended.status == "suspended" and len(ran) == 3


async def test_always_covers_only_its_agent(play: Play) -> None:
    ran: list[str] = []
    own = Agent(tools=[_closure("staging", ran)], name="one")
    async with play([call("deploy"), say("Done."), call("deploy"), say("Done.")]) as world:
        [question] = (await world.run(own, thread="t")).questions
        await world.runtime.answer(question.id, Decision(True, remember=True))
        assert (await world.resume(own)).ok
        [approval] = await world.runtime.approvals("t")
        assert approval.agent == "one"
        assert (await world.run(replace(own, name="other"), thread="t")).questions and len(ran) == 1


async def test_an_answer_does_not_count_after_defaults_changed(play: Play) -> None:
    ran: list[str] = []

    class Order(BaseModel):
        mode: str = "staging"

    class Later(BaseModel):
        mode: str = "prod"

    def of(kind: Any) -> Agent:
        def ship(order: Any) -> str:
            """Ship."""
            ran.append(order.mode)
            return "done"

        ship.__annotations__["order"] = kind
        return Agent(tools=[tool(ship, needs_approval=True)])

    async with play([call("ship", order={}), say("Done.")]) as world:
        [question] = (await world.run(of(Order))).questions
        assert question.arguments == {"order": {"mode": "staging"}}
        await world.runtime.answer(question.id, True)
        [again] = (await world.resume(of(Later))).questions
        assert again.arguments == {"order": {"mode": "prod"}} and ran == []


async def test_a_varying_default_is_asked_about_once(play: Play) -> None:
    def ship(number: Annotated[int, Field(default_factory=lambda: next(numbers))]) -> str:
        """Ship."""
        return "done"

    own = Agent(tools=[tool(ship, needs_approval=True)])
    async with play([call("ship"), say("Done.")]) as world:
        [question] = (await world.run(own)).questions
        assert "when the call is made" in question.arguments["number"]
        await world.runtime.answer(question.id, True)
        assert (await world.resume(own)).ok


class Order(BaseModel):
    """Arguments that say of themselves something else than they are."""

    command: Annotated[str, PlainSerializer(lambda value: value[:4])]
    amount: int = 0
    note: str = Field("", exclude=True)
    steps: list[Annotated[str, PlainSerializer(lambda value: "ok")]] = Field(alias="do")


async def test_a_type_cannot_show_itself_as_something_else(play: Play) -> None:
    ran: list[Order] = []

    @tool(needs_approval=True)
    def deploy(order: Order, size: Annotated[int, PlainSerializer(lambda value: 1)]) -> str:
        """Deploy."""
        ran.append(order)
        return "done"

    order = {"command": "true; rm x", "note": "quietly", "do": ["rm y"]}
    async with play([call("deploy", order=order, size="70"), say("Done.")]) as world:
        [question] = (await world.run(Agent(tools=[deploy]))).questions
        assert question.arguments == {"order": order | {"amount": 0}, "size": 70}
        await world.runtime.answer(question.id, True)
        assert (await world.resume(Agent(tools=[deploy]))).ok and len(ran) == 1


@pytest.mark.parametrize(
    ("value", "shown"), [("inf", "inf"), ("1e999", "inf"), ("-Infinity", "-inf"), ("nan", "nan")]
)
async def test_a_number_that_json_cannot_represent_is_shown(
    play: Play, value: str, shown: str
) -> None:
    ran: list[str] = []

    @tool(needs_approval=True)
    def pay(amount: float) -> str:
        """Pay."""
        ran.append(str(amount))
        return "paid"

    async with play([call("pay", amount=value), say("Done.")]) as world:
        [question] = (await world.run(Agent(tools=[pay]))).questions
        assert question.arguments == {"amount": shown}
        await world.runtime.answer(question.id, True)
        assert (await world.resume(Agent(tools=[pay]))).ok and ran == [shown]


async def test_a_command_allowed_in_one_folder_needs_approval_in_another(
    play: Play, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()

    def works_in(folder: Path) -> Agent:
        return Agent(tools=workspace_tools(folder, shell=True, shell_approval=True))

    script = [call("bash", command="touch made") for _ in range(2)]
    async with play([*script, say("Done.")]) as world:
        [question] = (await world.run(works_in(one), thread="t")).questions
        await world.runtime.answer(question.id, Decision(True, remember=True))
        [again] = (await world.resume(works_in(other))).questions
        assert not (one / "made").exists() and not (other / "made").exists()
        await world.runtime.answer(again.id, True)
        assert (await world.resume(works_in(other))).questions
        assert (other / "made").exists() and not (one / "made").exists()


async def test_a_started_call_is_not_run_again_by_another_tool(play: Play, tmp_path: Path) -> None:
    ran: list[str] = []
    file = tmp_path / "effects"

    def other(path: str, text: str) -> str:
        """Append a text to a file."""
        ran.append(text)
        return "done"

    changed = Agent(tools=[tool(other, name="again", needs_approval=True, idempotent=True)])
    async with play([call("again", path=str(file), text="a"), say("Done.")]) as world:
        [question] = (await world.run(agent(world.model))).questions
        await world.runtime.answer(question.id, True)
        async with started(world.database_url, "resume", question.run_id) as elsewhere:
            await elsewhere.until("effect")
            await elsewhere.kill()

        suspended = await world.resume(changed)

        assert ran == [] and suspended.status == "suspended" and file.read_text() == "a"
        await world.runtime.answer(suspended.questions[0].id, True)
        assert (await world.resume(changed)).ok and ran == ["a"]


async def test_a_standing_approval_is_compared_with_the_calls_actual_arguments(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2-hunter2")
    ran: list[str] = []

    @tool(needs_approval=True)
    def send(key: str, amount: int = 5) -> str:
        """Send."""
        ran.append(f"{key} {amount}")
        return "sent"

    own = Agent(tools=[send])
    script = [call("send", key="hunter2-hunter2", amount=" 1000") for _ in range(2)]
    async with play([*script, say("Done.")]) as world:
        [question] = (await world.run(own)).questions
        assert question.arguments["amount"] == 1000
        assert "a secret" in question.arguments["key"] and "hunter2" not in str(question)
        for patterns in ({"key": question.arguments["key"]}, {"amount": " *"}, {"note": "*"}):
            with pytest.raises(InvalidAnswer, match="other calls than this one"):
                await world.runtime.answer(question.id, Decision(True, remember=patterns))
        both = {"key": "hunter2-hunter2", "amount": "1000"}
        await world.runtime.answer(question.id, Decision(True, remember=both))
        assert (await world.resume(own)).ok and ran == ["hunter2-hunter2 1000"] * 2


@pytest.mark.parametrize(
    ("pattern", "first", "then"),
    [
        ("make *", "make test", "make test; id"),
        ("make *", "make test", "make $(id)"),
        ("make *", "make test", "make test\nid"),
        ("make test", "make test", "make test "),
        ("*", "make test", "id | sh"),
    ],
)
async def test_always_covers_no_other_command(
    play: Play, tmp_path: Path, pattern: str, first: str, then: str
) -> None:
    own = Agent(tools=workspace_tools(tmp_path, shell=True, shell_approval=True))
    script = [call("bash", command=one) for one in (first, then)]
    async with play([*script, say("Done.")]) as world:
        [question] = (await world.run(own)).questions
        await world.runtime.answer(question.id, Decision(True, remember={"command": pattern}))
        [suspended] = (await world.resume(own)).questions
        assert suspended.arguments["command"] == then


async def test_always_does_not_follow_a_link_out_of_its_pattern(play: Play, tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    ran: list[str] = []

    @tool(needs_approval=True)
    def erase(path: str) -> str:
        """Erase."""
        ran.append(path)
        return "erased"

    own = Agent(tools=[erase])
    paths = [f"{inside}/a", f"{inside}/b", f"{inside}/link/c"]
    async with play([*(call("erase", path=one) for one in paths), say("Done.")]) as world:
        [question] = (await world.run(own)).questions
        allowed = Decision(True, remember={"path": f"{inside}/*"})
        await world.runtime.answer(question.id, allowed)
        [suspended] = (await world.resume(own)).questions
        assert suspended.arguments["path"] == paths[2] and ran == paths[:2]


async def test_approvals_of_an_older_version_are_asked_again(play: Play) -> None:
    ran: list[str] = []
    own = Agent(tools=[_closure("staging", ran)])
    async with play([call("deploy"), call("deploy"), say("Done.")]) as world:
        [question] = (await world.run(own, thread="t")).questions
        remember = NewApproval("a1", "deploy")
        await world.store.questions.answer(
            question.id, {"allow": True, "reason": ""}, remember=remember
        )
        suspended = await world.resume(own)
        assert suspended.status == "suspended" and ran == ["1 to staging"]


async def test_bindings_are_equal_in_every_process(play: Play, tmp_path: Path) -> None:
    async with program("tests.human.bindings", str(tmp_path)) as other:
        line = await other.line()
    assert line == bindings(str(tmp_path))
    assert len({*line.values()}) == len(line)


async def test_several_calls_of_one_answer_are_bound_separately(play: Play) -> None:
    ran: list[str] = []
    both = calls(raw_call("deploy", version="1"), raw_call("deploy", version="2"))
    own = Agent(tools=[_bound("staging", ran)])
    async with play([both, say("Done.")]) as world:
        suspended = await world.run(own)
        for question in suspended.questions:
            await world.runtime.answer(question.id, question.arguments["version"] == "2")
        assert (await world.resume(own)).ok and ran == ["2 to staging"]


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
async def test_a_command_is_approved_for_the_folder_that_the_question_names(
    tmp_path: Path, database_url: str, play: Play, gone: bool
) -> None:
    root, inner = tmp_path / "work", tmp_path / "work" / "a\nb"
    inner.mkdir(parents=True)

    def asks(given: dict[str, Any]) -> bool:
        return given["command"] == "touch made"

    tools = workspace_tools(root, shell=True, shell_approval=asks)
    # The second call of the answer must not move the first, which waits.
    both = calls(raw_call("bash", command="touch made"), raw_call("bash", command="cd .."))
    script = [call("bash", command="cd 'a\nb'"), both]
    async with play(script) as world:
        [question] = (await world.run(Agent(tools=tools), thread="t")).questions
        assert question.text == f"May the agent call bash? It would run in {root}/a\\nb."
        assert await world.runtime.answer(question.id, True)
    if gone:
        inner.rmdir()
    async with play([say("Done.")]) as world:
        [run] = await world.store.runs.list(thread_id="t")
        result = await world.runtime.resume(run.id, Agent(tools=tools))
        if gone:
            # Here the session begins in the workspace, for which nobody allowed it.
            assert not (root / "made").exists()
            [question] = result.questions
            assert question.text == f"May the agent call bash? It would run in {root}."
            assert await world.runtime.answer(question.id, True)
            result = await world.runtime.resume(run.id, Agent(tools=tools))
        assert result.ok
        assert [(root / "made").exists(), (inner / "made").exists()] == [gone, not gone]
        shown = (await world.results("t"))[1][1]
        where = "the workspace" if gone else "the folder of the last"
        assert shown.startswith(f"The runtime was restarted: this is a new shell in {where}.")
