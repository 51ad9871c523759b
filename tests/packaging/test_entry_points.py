"""The ways to start the command, and what is known of an installation without litellm."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.cli.commands.doctor import check_packages
from tests.support.command import ROOT, clean_environ

_WITHOUT_LITELLM = """
import sys
sys.modules["litellm"] = None
import anyio
from agent_runtime import ConfigError, LiteLLMModel
try:
    anyio.run(LiteLLMModel("mistral/x", api_key="x", base_url="http://127.0.0.1:1").check)
except ConfigError as error:
    print(error)
"""


def _python(*arguments: str, folder: Path) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=clean_environ(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_package_is_the_command(tmp_path: Path) -> None:
    version = importlib.metadata.version("agent-runtime-om")
    shown = _python("-m", "agent_runtime", "--version", folder=tmp_path)
    assert shown == f"agent-runtime {version}"


@pytest.mark.parametrize(
    "package", ["agent_runtime", "storage/agent_runtime_storage", "config/agent_runtime_config"]
)
def test_each_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_a_model_that_needs_litellm_says_so_where_it_is_missing(tmp_path: Path) -> None:
    shown = _python("-c", _WITHOUT_LITELLM, folder=tmp_path)
    assert shown.startswith("litellm is not installed") and "pip install litellm" in shown


def test_doctor_warns_where_litellm_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "litellm":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert [(one.name, one.state) for one in check_packages()] == [
        ("litellm", "warn"),
        ("packages", "ok"),
    ]
