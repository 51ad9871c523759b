"""Files in the loop: from a task or a tool to the request's body, and their records in the log."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent_runtime import (
    Agent,
    File,
    FilePolicy,
    FileRef,
    ToolContext,
    ToolResult,
    UserMessage,
    tool,
)
from agent_runtime.errors import InvalidFile, ModelRejected
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import call, say
from agent_runtime.testing.model_server import Reply, failure
from tests.support.worlds import Play, Serve

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
DATA = base64.b64encode(PNG).decode()
SEEN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
VISION = "openai/gpt-4.1"
REFUSAL = failure(400, "Could not process image", code="invalid_image")


def parts(message: dict[str, Any]) -> list[str]:
    """Return the types of a message's parts; plain text is one part."""
    content = message["content"]
    return ["text"] if isinstance(content, str) else [part["type"] for part in content]


async def test_a_model_with_vision_receives_the_image_at_every_step(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(PNG)

    @tool
    def look_again() -> str:
        """Look again."""
        path.unlink()
        return "Looked."

    script = [Reply(calls=(("look_again", {}),)), Reply(text="A cat.")]
    async with serve(script, name=VISION) as world:
        result = await world.run(Agent(tools=[look_again]), "What is it?", files=[str(path)])
        first, second = world.sent()
        assert second[: len(first)] == first
        assert first[1]["content"] == [{"type": "text", "text": "What is it?"}, SEEN]
        # The log and the events hold a reference; the content is stored once, separately.
        thread = await world.store.threads.get(result.thread_id)
        assert thread.title == "What is it?"
        task = await world.store.log.node(result.thread_id, 1)
        [stored] = await world.store.files.list(result.thread_id)
        assert orjson.loads(task.body)["files"] == [
            {
                "kind": "image",
                "uri": f"upload:{stored.id}",
                "media_type": "image/png",
                "name": "cat.png",
                "size": len(PNG),
                "pixels": 0,
            }
        ]
        assert DATA.encode() not in world.contents()
        assert not [event for event in world.events if event.kind == "file"]


@pytest.mark.backends("file")
async def test_a_model_without_vision_sees_the_files_name(serve: Serve) -> None:
    async with serve([Reply(text="I cannot see it.")]) as world:
        result = await world.run(Agent(), "Look.", files=[File(PNG, "cat.png")])
        [sent] = world.sent()
        [stored] = await world.runtime.files.of(result.thread_id)
        assert sent[1]["content"] == (
            f"Look.\n[file: cat.png (image, image/png, 264 bytes) {stored.uri}]"
        )
        [named] = [event for event in world.events if event.kind == "file"]
        assert named.data == {
            "name": "cat.png",
            "uri": stored.uri,
            "reason": "the model does not take such files",
        }
        events = await world.store.events.list(result.thread_id)
        assert [event.kind for event in events].count("file") == 1


@pytest.mark.backends("file")
async def test_a_broken_or_foreign_file_never_drops_the_turn(serve: Serve) -> None:
    async with serve([Reply(text="Seen.")], name=VISION) as world:
        foreign = await world.runtime.files.upload("t", PNG, name="secret.png", user="stranger")
        files = (
            FileRef("image", foreign.uri),
            FileRef("image", "upload:gone"),
            FileRef("document", "nonsense"),
        )
        task = UserMessage("Look.", files)
        result = await world.runtime.run(
            Agent(), task, files=[File(PNG)], on_event=world.events.append
        )
        assert result.output == "Seen."
        text, image = world.sent()[0][1]["content"]
        assert image == SEEN
        assert text["text"].splitlines() == [
            "Look.",
            f"[file: image (image) {foreign.uri}; not shown: it is not there]",
            "[file: image (image) upload:gone; not shown: it is not there]",
            "[file: document (document) nonsense; not shown: its reference is broken]",
        ]
        named = [event.data["uri"] for event in world.events if event.kind == "file"]
        assert named == [file.uri for file in files]


@pytest.mark.backends("file")
async def test_an_image_that_the_provider_refuses_does_not_end_the_run(serve: Serve) -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        texts = str(request["messages"])
        if "broken" in texts and DATA[:20] + "AAAA" in texts:
            return REFUSAL
        return Reply(calls=(("work", {}),)) if n < 2 else Reply(text="Done.")

    @tool
    def work() -> list[str | File]:
        """Return a file that providers refuse."""
        return ["broken", File(PNG[:15] + b"\0" * 9, "bad.png")]

    async with serve(script, name=VISION) as world:
        result = await world.run(Agent(tools=[work]), "Look.", files=[File(PNG, "good.png")])
        assert result.ok
        *_, last = world.sent()
        assert SEEN in last[1]["content"]
        assert "bad.png (image, image/png, 24 bytes)" in str(last)
        assert "not shown: the model's provider refused it" in str(last)
        reasons = [event.data["reason"] for event in world.events if event.kind == "file"]
        assert set(reasons) == {"the model's provider refused it"}


@pytest.mark.backends("file")
async def test_a_refusal_that_is_not_about_files_is_raised(serve: Serve) -> None:
    async with serve([failure(400, "No such parameter")], name=VISION) as world:
        with pytest.raises(ModelRejected):
            await world.run(Agent(), "Look.", files=[File(PNG)])
        # The second request is without the file, the third with a smaller output limit.
        assert len(world.sent()) == 3


async def test_a_tool_returns_files_that_the_model_sees(serve: Serve, tmp_path: Path) -> None:
    chart = tmp_path / "chart.png"
    chart.write_bytes(PNG)

    @tool
    def draw() -> list[str | File]:
        """Draw in a thread."""
        return ["Drawn.", File(chart)]

    @tool
    async def paint(context: ToolContext) -> ToolResult:
        """Paint."""
        ref = await context.keep(File(PNG + b"2", "painting.png"))
        return ToolResult("Painted.", files=(ref,))

    script = [Reply(calls=(("draw", {}), ("paint", {}))), Reply(text="Nice.")]
    async with serve(script, name=VISION) as world:
        result = await world.run(Agent(tools=[draw, paint]), "Draw.")
        drawn, painted, files = world.sent()[1][-3:]
        assert drawn["content"].startswith("Drawn.\n[file: chart.png (image, image/png, 264 bytes)")
        assert painted["content"].startswith("Painted.\n[file: painting.png")
        assert (files["role"], parts(files)) == ("user", ["text", "image_url", "image_url"])
        assert files["content"][1] == SEEN
        rows = await world.store.files.list(result.thread_id)
        stored = {(row.origin, row.name) for row in rows}
        assert stored == {("tool", "chart.png"), ("tool", "painting.png")}
        assert await world.results(result.thread_id) == [("ok", "Drawn."), ("ok", "Painted.")]


@pytest.mark.backends("file")
async def test_a_tools_file_that_cannot_be_stored_is_an_error_result(
    play: Play,
) -> None:
    @tool
    def missing_file() -> File:
        """Return a missing file."""
        return File(Path("/no/such/file.png"))

    @tool
    async def large_file() -> list[File]:
        """Return a file above the limit."""
        return [File(b"x" * 101, "big")]

    @tool
    async def small_file() -> File:
        """Return only a file."""
        return File(b"words", "a.txt")

    script = [call("missing_file"), call("large_file"), call("small_file"), say("Done.")]
    async with play(script, settings={"max_file_bytes": 100}) as world:
        result = await world.run(Agent(tools=[missing_file, large_file, small_file]))
        ran = "The tool ran, but a file that it returned cannot be stored: The file "
        missing = "'/no/such/file.png' cannot be read: No such file or directory."
        assert await world.results(result.thread_id) == [
            ("error", f"{ran}{missing}"),
            ("error", f"{ran}'big' has 101 bytes; the limit is 100."),
            ("ok", "Files: a.txt"),
        ]


@pytest.mark.backends("file")
async def test_an_agents_policy_limits_the_files_in_its_prompts(serve: Serve) -> None:
    files = [File(PNG, f"{n}.png") for n in range(3)]
    agent = Agent(files=FilePolicy(limit=1, detail="low"))
    async with serve([Reply(text="Seen.")], name=VISION) as world:
        await world.run(agent, "Look.", files=files)
        text, image = world.sent()[0][1]["content"]
        assert image["image_url"]["detail"] == "low"
        assert (
            text["text"].count("not shown: of each message at most 1 file can be shown here") == 2
        )


@pytest.mark.backends("file")
async def test_a_file_that_cannot_be_attached_begins_no_run(play: Play) -> None:
    async with play([say("Done.")]) as world:
        with pytest.raises(InvalidFile, match="no/such"):
            await world.run(Agent(), files=["/no/such/file"])
        assert await world.store.runs.list() == []


@pytest.mark.backends("file")
async def test_a_file_without_text_is_a_task(play: Play) -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        return say("A cat.")

    async with play(answer) as world:
        assert (await world.run(Agent(), "", files=[File(b"words", "a.txt")])).output == "A cat."
    [part] = requests[0].files[1]
    assert part.text == "words"


@pytest.mark.backends("file")
async def test_a_sub_agent_sees_the_files_of_its_briefing(serve: Serve) -> None:
    child = Agent(name="child")

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask a sub-agent about the file."""
        node = await context.store.log.node(context.thread_id, 1)
        ref = FileRef(**orjson.loads(node.body)["files"][0])
        return (await context.run_agent(child, UserMessage("What is it?", (ref,)))).output

    script = [Reply(calls=(("ask", {}),)), Reply(text="A cat."), Reply(text="It is a cat.")]
    async with serve(script, name=VISION) as world:
        result = await world.run(Agent(tools=[ask]), "Ask.", files=[File(PNG)])
        assert result.output == "It is a cat."
        assert world.sent()[1][1]["content"][1] == SEEN


@pytest.mark.backends("file")
async def test_the_next_runs_prompt_extends_the_previous_one(serve: Serve) -> None:
    async with serve([Reply(text="One.")], name=VISION) as world:
        await world.run(Agent(), "Look.", files=[File(PNG)], thread="t")
        [before] = world.sent()
    async with serve([Reply(text="Two.")], name=VISION) as again:
        await again.run(Agent(), "And now?", thread="t")
        [sent] = again.sent()
    assert sent[: len(before)] == before


@pytest.mark.backends("file")
async def test_a_task_has_its_files_after_observations_replaced_it(play: Play) -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        return call("look", number=len(requests)) if len(requests) <= 60 else say("Done.")

    @tool
    def look(number: int) -> list[str | File]:
        """Look."""
        seen = f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20
        return [seen, File(f"secret content {number}".encode(), f"{number}.txt")]

    limits = {"observer_message_tokens": 3000, "reflector_observation_tokens": 600}
    async with play(answer, settings=limits) as world:
        agent = Agent(tools=[look], last_messages=6)
        result = await world.run(agent, "Find it.", files=[File(b"the rules", "rules.txt")])
        assert result.ok
        observed = await world.store.log.observations(result.thread_id, ending_from=0)
    first, last = requests[0], requests[-1]
    assert observed
    shown = {index: [part.text for part in parts] for index, parts in last.files.items()}
    front = next(index for index, texts in shown.items() if texts == ["the rules"])
    assert "Find it." in last.messages[front].text
    assert "secret content 60" in str(shown) and "secret content 1'" not in str(shown)
    # Observations are made from the names of files, not from their content.
    assert all(b"secret content" not in row.body for row in observed)
    assert [part.text for part in first.files[1]] == ["the rules"]


@pytest.mark.backends("file")
async def test_an_image_that_the_model_generates_is_part_of_its_answer(serve: Serve) -> None:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        kind = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return orjson.dumps(kind | {"choices": [choice]})

    urls = (f"data:image/png;base64,{DATA}", "data:broken")
    images = [{"type": "image_url", "image_url": {"url": url}, "index": 0} for url in urls]
    raw = chunk({"images": images}) + b"\n\ndata: " + chunk({}, "stop")
    drawn = Reply(usage=False, raw_chunk=raw)
    async with serve([drawn, Reply(text="Thanks.")], name=VISION) as world:
        result = await world.run(Agent(), "Draw a cat.", thread="t")
        assert result.ok and result.output == ""
        [stored] = await world.runtime.files.of("t")
        assert (stored.kind, stored.media_type) == ("image", "image/png")
        assert await world.runtime.files.read(stored) == PNG
        await world.run(Agent(), "Nice.", thread="t")
        answer = world.sent()[1][2]
        assert answer["content"].splitlines() == [
            f"[file: image (image, image/png, 264 bytes) {stored.uri}]",
            "[file: image (image) ]",
        ]
        node = await world.store.log.node("t", 2)
        assert DATA.encode() not in node.body
