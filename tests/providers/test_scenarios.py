"""Whole runs against strict providers: nothing that is sent may be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from .anthropic import Anthropic
from .gemini import Gemini
from .openai import OpenAI, Quirky
from .scenario import play


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
async def test_anthropic(tmp_path: Path, thinking: bool) -> None:
    await play(Anthropic(thinking=thinking), "anthropic/claude-sonnet-4-5", tmp_path)


async def test_openai(tmp_path: Path) -> None:
    await play(OpenAI(), "openai/gpt-4o", tmp_path, "/v1")


@pytest.mark.parametrize(
    "name", ["openai/test", "deepseek/deepseek-chat", "moonshot/kimi-k2-thinking"]
)
async def test_compatible_servers_with_quirks(tmp_path: Path, name: str) -> None:
    await play(Quirky(), name, tmp_path, "/v1")


async def test_gemini(tmp_path: Path) -> None:
    await play(Gemini(), "gemini/gemini-3-pro-preview", tmp_path)
