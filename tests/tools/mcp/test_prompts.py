"""Prompts of servers: listed, filled in, refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.cli.chat.server_prompts import arguments_of
from agent_runtime.errors import McpServerFailed
from agent_runtime.tools.mcp.prompts import mcp_prompts
from tests.tools.mcp.serving import raw, sums


async def test_a_prompt_is_listed_and_filled_in() -> None:
    server = sums()
    [prompt] = await mcp_prompts([server])
    assert (prompt.name, prompt.description) == ("sums__review", "Review a file.")
    assert prompt.arguments == {"file": True, "depth": False}
    assert await prompt.text(file="a.py", depth="long") == "Review a.py (long)."
    with pytest.raises(McpServerFailed, match="sums__review needs file"):
        await prompt.text(depth="long")
    with pytest.raises(McpServerFailed, match="does not take colour"):
        await prompt.text(file="a.py", colour="red")


async def test_a_server_without_prompts_has_none(tmp_path: Path) -> None:
    assert await mcp_prompts([raw(tmp_path, "echo")]) == []


@pytest.mark.parametrize(
    ("rest", "given"),
    [
        ("a.py", {"file": "a.py"}),
        ("depth=long 'my file'", {"depth": "long", "file": "my file"}),
        ("a.py as deep as it's", {"file": "a.py", "depth": "as deep as it's"}),
        ("file=a depth=b c", {"file": "a", "depth": "b", "": "c"}),
        ("x=1", {"file": "x=1"}),
        ("", {}),
    ],
)
def test_arguments_are_named_or_in_order(rest: str, given: dict[str, str]) -> None:
    assert arguments_of({"file": True, "depth": False}, rest) == given
