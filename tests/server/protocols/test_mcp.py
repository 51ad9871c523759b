"""The MCP SDK's client: a whole task over HTTP, and the command on stdin and stdout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import TextContent

from tests.server.protocols.serving import desk
from tests.support.command import clean_environ


async def value(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, and return the JSON of its result."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def error(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool, and return the text of its error."""
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    assert result.is_error and isinstance(content, TextContent)
    return content.text


async def test_a_whole_task_over_http(tmp_path: Path) -> None:
    async with desk(tmp_path) as world:
        async with Client(f"{world.url}/mcp") as client:
            run = (await value(client, "start_task", task="Go"))["run_id"]
        said: list[str] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            del progress, total
            said.append(message or "")
            world.gate.set()

        async with Client(f"{world.url}/mcp") as client:
            early = await value(client, "task_result", run_id=run, wait_seconds=0)
            assert early["status"] == "running" and early["output"] is None
            steered = await value(client, "steer_task", run_id=run, message="Be quick.")
            assert steered["status"] == "running"
            world.gate.set()
            arguments = {"run_id": run, "wait_seconds": 60}
            result = await client.call_tool("task_result", arguments, progress_callback=note)
            asking = result.structured_content
            assert asking is not None and asking["status"] == "suspended"
            [question] = asking["questions"]
            assert "is not what it asks for" in await error(
                client, "answer_question", question_id=question["id"], answer="perhaps"
            )
            assert not world.erased
            await value(client, "answer_question", question_id=question["id"], answer=True)
            done = await value(client, "task_result", run_id=run, wait_seconds=60)
            assert (done["status"], done["output"]) == (
                "succeeded",
                "Done: 8.\nThe notes are gone.",
            )
            assert "is over" in await error(client, "steer_task", run_id=run, message="More.")
            assert "no agent" in await error(client, "start_task", task="Go", agent="nobody")
            assert await error(client, "task_status", run_id="none")


async def test_cancel(tmp_path: Path) -> None:
    async with desk(tmp_path) as world, Client(f"{world.url}/mcp") as client:
        run = (await value(client, "start_task", task="Go"))["run_id"]
        await value(client, "cancel_task", run_id=run)
        done = await value(client, "task_result", run_id=run, wait_seconds=60)
        assert done["status"] == "cancelled"


async def test_the_command_serves_on_stdin_and_stdout(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\nThe sea is wide.\n")
    arguments = ["-m", "agent_runtime.cli", "mcp", "serve", "--workspace", str(tmp_path)]
    environ = clean_environ({"XDG_STATE_HOME": str(tmp_path / "state")})
    program = StdioServerParameters(
        command=sys.executable, args=arguments, env=environ, cwd=str(tmp_path)
    )
    with anyio.fail_after(60):
        async with Client(stdio_client(program)) as client:
            listed = await client.list_tools()
            assert "start_task" in {one.name for one in listed.tools}
            task = "Survey the folder and write a report of it to report.md."
            run = (await value(client, "start_task", task=task))["run_id"]
            done = await value(client, "task_result", run_id=run, wait_seconds=50)
            assert done["status"] == "succeeded", done
    assert "notes.md" in (tmp_path / "report.md").read_text()
