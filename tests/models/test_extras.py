"""Providers whose requests are signed by a package that an extra names."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from agent_runtime.cli.commands.doctor import check_model
from agent_runtime.errors import ModelAuthError
from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime_config import Settings

HERE = "http://127.0.0.1:1"
NEEDED = [
    ("bedrock/anthropic.claude-sonnet-4-5", "bedrock", "boto3", "boto3"),
    ("sagemaker/my-endpoint", "bedrock", "boto3", "boto3"),
    ("vertex_ai/gemini-2.5-pro", "vertex", "google.auth", "google-auth"),
    ("azure/my-deployment", "azure", "azure.identity", "azure-identity"),
]


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the keys of Azure."""
    for name in ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "extra", "module", "package"), NEEDED)
async def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, extra: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelAuthError, match=f"{package}, which is not installed") as missing:
        await LiteLLMModel(name, base_url=HERE).check()
    assert f"pip install 'agent-runtime-om[{extra}]'" in missing.value.cure
    assert ("Set AZURE_API_KEY." in missing.value.cure) == (extra == "azure")
    found = await check_model(Settings(model=name, model_base_url=HERE))
    assert (found.state, found.cure) == ("fail", missing.value.cure)
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert any(one.startswith(package) for one in extras[extra])
    assert extra in extras["all"][0]


async def test_a_key_of_azures_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    await LiteLLMModel("azure/mine", base_url=HERE, api_key="k").check()
    monkeypatch.setenv("AZURE_API_KEY", "k")
    await LiteLLMModel("azure/mine", base_url=HERE).check()


async def test_others_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, _, module, _ in NEEDED:
        monkeypatch.setitem(sys.modules, module, None)
    await LiteLLMModel("mistral/any", base_url=HERE).check()
