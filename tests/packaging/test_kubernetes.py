"""The manifests of the page on Kubernetes agree with the program: commands, routes, times."""

from __future__ import annotations

from typing import Any, cast

import click
import pytest
import yaml

from agent_runtime import Agent, App, Runtime
from agent_runtime.cli import main
from agent_runtime.server import create_app
from agent_runtime_config import Settings, load_settings
from tests.docs.blocks import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
CLOSING_SECONDS = 10


@pytest.fixture(scope="module")
def manifests() -> dict[tuple[str, str], Any]:
    """The objects of the page by kind and name."""
    found = [
        one
        for block in blocks(PAGE)
        if block.language == "yaml"
        for one in yaml.safe_load_all(block.text)
    ]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    assert all(one["apiVersion"] for one in found)
    return named


def _pod(manifest: Any) -> tuple[Any, Any]:
    """Return the specification of a manifest's pods, and their only container."""
    pod = manifest["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return pod, container


def _settings(manifests: dict[tuple[str, str], Any]) -> Settings:
    environ = dict(manifests["Secret", "agents"]["stringData"])
    environ |= manifests["ConfigMap", "agents"]["data"]
    return load_settings(environ)


def test_commands_and_settings_are_known(manifests: dict[tuple[str, str], Any]) -> None:
    settings = _settings(manifests)
    assert settings.database_url.startswith("postgresql://agent:PASSWORD@")
    assert (settings.drain_timeout, settings.pause_timeout) == (60, 10)
    workloads = [one for (kind, _), one in manifests.items() if kind in ("Deployment", "Job")]
    assert len(workloads) == 3
    for one in workloads:
        _, container = _pod(one)
        group = cast("click.Command", main)
        arguments = list(container["args"])
        while isinstance(group, click.Group) and arguments:
            name = arguments.pop(0)
            found = group.get_command(click.Context(group), name)
            assert found is not None, name
            if not isinstance(found, click.Group):
                found.make_context(name, arguments)
                break
            group = found
        sources = [next(iter(source.values()))["name"] for source in container["envFrom"]]
        assert sources == ["agents", "agents"]


def test_pods_have_time_to_drain(manifests: dict[tuple[str, str], Any]) -> None:
    settings = _settings(manifests)
    for name in ("agents-service", "agents-worker"):
        pod, container = _pod(manifests["Deployment", name])
        hook = container.get("lifecycle", {}).get("preStop", {})
        waiting = float(hook["exec"]["command"][1]) if hook else 0.0
        needed = waiting + settings.drain_timeout + settings.pause_timeout + CLOSING_SECONDS
        assert pod["terminationGracePeriodSeconds"] > needed
        assert pod["securityContext"]["runAsUser"] == 10001
    assert "--uid 10001" in (ROOT / "Dockerfile").read_text()


async def test_probes_and_the_metric_are_those_of_the_service(
    manifests: dict[tuple[str, str], Any], tmp_path: Any
) -> None:
    _, container = _pod(manifests["Deployment", "agents-service"])
    paths = {
        container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    settings = Settings(database_url=f"file:{tmp_path / 'store.db'}")
    app = App(agents={"helper": Agent()})
    async with Runtime.open(settings, program=app.program, agents=app.of_run) as runtime:
        service: Any = create_app(app, runtime=runtime)
        routes = {route.path for route in service.routes}
    assert paths == {"/health", "/ready"} and paths <= routes
    [port] = container["ports"]
    assert container["args"][-1] == str(port["containerPort"])

    [metric] = manifests["HorizontalPodAutoscaler", "agents-worker"]["spec"]["metrics"]
    name = metric["external"]["metric"]["name"].removeprefix("agent_runtime_")
    assert f'"{name}"' in (ROOT / "agent_runtime" / "server" / "metrics.py").read_text()


def test_budgets_and_services_select_the_pods_that_they_are_for(
    manifests: dict[tuple[str, str], Any],
) -> None:
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"]
        for (kind, name), one in manifests.items()
        if kind == "Deployment"
    }
    for (kind, name), one in manifests.items():
        match kind:
            case "Deployment":
                assert one["spec"]["selector"]["matchLabels"] == labels[name]
            case "PodDisruptionBudget":
                assert one["spec"]["selector"]["matchLabels"] == labels[name]
            case "Service":
                assert one["spec"]["selector"] == labels[name]
            case "HorizontalPodAutoscaler":
                assert one["spec"]["scaleTargetRef"]["name"] in labels
            case _:
                pass
