"""`Dockerfile` and `compose.yaml`: what they name exists, and what runs has no more than it needs.

Where docker works the image is built, and its command runs.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from agent_runtime.cli import main
from agent_runtime_config import Settings, load_settings

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KNOWN = {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "ENTRYPOINT", "CMD"}
TOOLS = ("pip", "uv ", "apt", "gcc", "curl", "git")


def _stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage."""
    stages: list[list[tuple[str, str]]] = []
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for line in filter(None, (one.partition("# ")[0].strip() for one in text.splitlines())):
        name, _, rest = line.partition(" ")
        assert name in KNOWN, line
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest.strip()))
    return stages


def test_the_image_is_built_from_files_that_exist_and_are_sent() -> None:
    sent = {one[1:] for one in (ROOT / ".dockerignore").read_text().splitlines() if one[:1] == "!"}
    build = _stages()[0]
    copied = {word for name, rest in build if name == "COPY" for word in rest.split()[:-1]}
    assert copied == sent
    assert all((ROOT / one).exists() for one in copied)
    # What the package is built from.
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    roots = {one.partition("/")[0] for one in wheel["wheel"]["packages"]}
    assert copied >= {*roots, "pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]}


def test_what_runs_is_no_root_and_has_no_build_tools() -> None:
    last = _stages()[-1]
    given = dict(last)
    assert given["USER"] not in ("root", "0")
    assert not [rest for name, rest in last if name == "RUN" and any(map(rest.count, TOOLS))]
    [command] = json.loads(given["ENTRYPOINT"])
    assert command in PROJECT["scripts"]
    version = re.fullmatch(r"python:(3\.\d+)-slim", given["FROM"])
    assert version and f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]
    # The environment's scripts name its interpreter by its path.
    [copy] = [rest.split() for name, rest in last if name == "COPY"]
    assert copy[0] == "--from=build" and copy[1] == copy[2]
    assert given["ENV"].startswith(f"PATH={copy[2]}/bin:")


def test_the_services_are_known_and_their_settings_are_valid() -> None:
    yaml: Any = importlib.import_module("yaml")
    document = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert document.keys() == {"x-environment", "services", "volumes"}
    services = document["services"]
    known = {"image", "build", "environment", "volumes", "healthcheck", "depends_on"}
    known |= {"command", "deploy", "ports", "profiles", "restart", "stop_grace_period"}
    for service in services.values():
        assert service.keys() <= known
        assert ("image" in service) != ("build" in service)
        assert set(service.get("depends_on", {})) <= services.keys()
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in document["volumes"] or (ROOT / source).is_dir()
    agent = services["agent"]
    assert (ROOT / agent["build"] / "Dockerfile").is_file()
    assert services["postgres"]["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
    database = services["postgres"]["environment"]
    for name in ("agent", "service", "worker"):
        settings = _settings_of(services[name])
        assert settings.database_url == (
            f"postgresql://agent:@postgres:5432/{database['POSTGRES_DB']}"
        )
        # Those that share runs read and write the same objects.  A single run may have the user of
        # the folder that it works in, who has no right to the volume.
        shares = name != "agent"
        assert (settings.object_store_url == "file:/state/objects") == shares
        assert ("state:/state" in services[name]["volumes"]) == shares


def _settings_of(service: Any) -> Settings:
    """Return the settings of a service's environment, without secrets."""
    environ = {
        name: re.sub(r"\$\{\w+(:-)?\}", "", text) for name, text in service["environment"].items()
    }
    return load_settings(environ | {"AGENT_RUNTIME_MODEL": "openai/gpt-5"})


def test_the_service_and_its_workers_are_commands_and_end_in_time() -> None:
    yaml: Any = importlib.import_module("yaml")
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    # Without a profile only the database starts, and `run` names what it needs.
    assert [name for name, one in services.items() if "profiles" not in one] == ["postgres"]
    assert services["worker"]["deploy"]["replicas"] == 3
    for name in ("service", "worker"):
        service = services[name]
        command, *arguments = service["command"]
        known = main.get_command(click.Context(main), command)
        assert known is not None
        with known.make_context(command, list(arguments)) as context:
            assert context.params["app"] is None
        settings = _settings_of(service)
        seconds = float(service["stop_grace_period"].removesuffix("s"))
        assert seconds > settings.drain_timeout + settings.pause_timeout + 10
    [port] = services["service"]["ports"]
    assert port == "127.0.0.1:8420:8420"
    assert "http://127.0.0.1:8420/ready" in services["service"]["healthcheck"]["test"][-1]


def _docker_works() -> bool:
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_image_is_built_and_runs() -> None:
    if not _docker_works():
        pytest.skip("docker has no server here")
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", "agent-runtime-test", "."], cwd=ROOT, check=True
    )
    command = ["docker", "run", "--rm", "agent-runtime-test", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"agent-runtime {PROJECT['version']}"
