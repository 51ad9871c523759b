"""Nobody but a model's own server is asked for anything, whatever the model is called."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

NAMES = (
    "llama-3.3-70b",
    "openai/meta-llama/Llama-3-8b",
    "openai/my-replicate",
    "hosted_vllm/llama-3-8b",
    "together_ai/meta-llama/Llama-3-8b-chat-hf",
    "groq/llama-3.1-8b-instant",
    "mistral/mistral-large-latest",
    "fireworks_ai/llama-3-8b",
    "huggingface/meta-llama/Llama-3-8b",
    "lemonade/llama-3-8b",
    "custom_openai/command-r",
)
# Their wire is another one, so that the run ends at the server's 404.
OTHERS = (
    "anthropic/claude-2",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-flash",
    "cohere_chat/command-r",
    "ollama/llama-3-8b",
    "ollama_chat/llama-3-8b",
)


async def _asked(folder: Path, names: tuple[str, ...], environ: dict[str, str]) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")} | environ
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment.pop("AGENT_RUNTIME_FORBID_REAL_MODELS", None)
    command = [sys.executable, "-m", "tests.models.asked", str(folder), *names]
    done = await anyio.run_process(
        command, env=environment, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
async def test_only_the_models_own_server_is_asked(tmp_path: Path) -> None:
    environ = {"LITELLM_LOCAL_MODEL_COST_MAP": "False"}
    found = await _asked(tmp_path, (*NAMES, *OTHERS), environ)
    assert found["asked"] == []
    assert {name: found["ended"][name] for name in NAMES} == dict.fromkeys(NAMES, "succeeded")
    assert set(found["ended"]) == {*NAMES, *OTHERS}
