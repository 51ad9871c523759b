"""`agent-runtime doctor`: check everything that a run needs."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.check import DoctorCheck
from agent_runtime.cli.terminal import write_json, write_row
from agent_runtime_config.urls import redact_url, url_scheme

if TYPE_CHECKING:
    from agent_runtime_config import Settings
    from agent_runtime_config.groups.model_settings import Role

ROLES: tuple[Role, ...] = ("sub_agent", "observer", "reflector")
POSTGRES_SCHEMES = ("postgres", "postgresql")
PACKAGES = (
    "anyio",
    "apsw",
    "click",
    "httpx2",
    "litellm",
    "obstore",
    "orjson",
    "pydantic",
    "pydantic-settings",
    "rich",
    "sqlite-vec",
    "tiktoken",
    "zstandard",
)
POSTGRES_PACKAGES = ("psycopg",)
CALL = "Answer with the word ready, and nothing else."
CALL_TOKENS = 2_000
"""Enough for a model that reasons before it answers."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array on stdout.")
@click.option("--call", is_flag=True, help="Also call the model once; the small call is billed.")
@click.option("--live", is_flag=True, help="Also check the active runs of all processes.")
def doctor(as_json: bool, call: bool, live: bool) -> None:
    """Check Python, packages, settings, the model's key, the database and the sandbox.

    Without --call it calls no model. Opens the database, and creates it if it does not exist. The
    exit code is 1 if a check fails.
    """
    import dataclasses

    import anyio

    checks = anyio.run(_checks, call, live)
    if as_json:
        write_json([dataclasses.asdict(check) for check in checks])
    else:
        for check in checks:
            write_row(f"{check.state:<5} {check.name}: {check.detail}")
            if check.cure:
                write_row(f"      cure: {check.cure}")
    failed = any(check.state == "fail" for check in checks)
    click.get_current_context().exit(exits.INTERNAL if failed else exits.SUCCESS)


async def _checks(call: bool, live: bool) -> list[DoctorCheck]:
    import anyio.to_thread

    from agent_runtime.cli.live_checks import check_live
    from agent_runtime_config import ConfigError, load_settings

    checks = [check_python(sys.version_info[:2]), *check_packages()]
    try:
        settings = load_settings()
    except ConfigError as error:
        # All further checks need the settings.
        return [*checks, DoctorCheck("settings", "fail", error.message, error.cure)]
    # Each check runs whatever the others found, so that one report names everything that is wrong.
    checks.append(DoctorCheck("settings", "ok", "all names are known, all values are valid"))
    if url_scheme(settings.database_url) in POSTGRES_SCHEMES:
        checks.append(check_postgres())
    return [
        *checks,
        await check_model(settings),
        *([await check_call(settings)] if call else []),
        *[check for role in ROLES if (check := await check_role(role, settings))],
        await check_embedder(settings),
        *check_approvals(settings),
        await check_database(settings),
        await check_objects(settings),
        *check_state(settings),
        await anyio.to_thread.run_sync(check_sandbox, settings),
        *(await check_live(settings) if live else ()),
    ]


def check_python(version: tuple[int, int]) -> DoctorCheck:
    """Check the version of Python."""
    text = ".".join(map(str, version))
    if version < (3, 11):
        return DoctorCheck("python", "fail", f"{text} is too old", "Install Python 3.11 to 3.13.")
    if version > (3, 13):
        return DoctorCheck(
            "python", "warn", f"{text} is newer than the tested versions", "Use 3.11 to 3.13."
        )
    return DoctorCheck("python", "ok", text)


def check_packages() -> Iterator[DoctorCheck]:
    """Check that the packages are installed, and that this release of litellm works."""
    found, missing = _versions(PACKAGES)
    if "litellm" in missing:
        # Supported: litellm is optional, because it is the largest dependency.
        missing.remove("litellm")
        yield DoctorCheck(
            "litellm",
            "warn",
            "is not installed: its providers cannot be called, and prices and windows are unknown",
            "Install it: pip install litellm",
        )
    if missing:
        cure = f"Install them: pip install {' '.join(missing)}"
        yield DoctorCheck("packages", "fail", f"missing: {', '.join(missing)}", cure)
    else:
        yield DoctorCheck(
            "packages",
            "ok",
            ", ".join(f"{name} {found[name]}" for name in PACKAGES if name in found),
        )
    if broken_litellm(found.get("litellm", "")) and find_spec("mcp") is None:
        yield DoctorCheck(
            "litellm",
            "fail",
            f"{found['litellm']} cannot be called with tools",
            "Install another release: pip install 'litellm>=1.105,<1.106'",
        )


def check_postgres() -> DoctorCheck:
    """Check the packages that a Postgres database needs."""
    found, missing = _versions(POSTGRES_PACKAGES)
    if missing:
        cure = "Install it: pip install 'psycopg[binary]'"
        return DoctorCheck("postgres", "fail", f"missing: {', '.join(missing)}", cure)
    return DoctorCheck(
        "postgres", "ok", ", ".join(f"{name} {text}" for name, text in found.items())
    )


async def check_model(settings: Settings) -> DoctorCheck:
    """Check the model and its key; calls nothing."""
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.models import model_from_name

    if not settings.model:
        return DoctorCheck(
            "model",
            "warn",
            "none is set; the offline model can only survey a folder",
            "Set AGENT_RUNTIME_MODEL, such as anthropic/claude-sonnet-4-5, and its provider's key.",
        )
    if "," in settings.model:
        return await _check_several("model", settings.model, settings)
    try:
        model = model_from_name(settings.model, settings)
        info = await model.info()
    except AgentRuntimeError as error:
        return DoctorCheck("model", "fail", error.message, error.cure)
    found = f"{info.name}, window {info.window:,} tokens"
    if info.price is None:
        found += ", price unknown"
    try:
        await model.check()
    except AgentRuntimeError as error:
        return DoctorCheck("model", "fail", f"{found}. {error.message}", error.cure)
    # A server of the user's own may need no key, or another provider's.
    if settings.model_base_url is not None:
        return DoctorCheck("model", "ok", f"{found}, at {redact_url(settings.model_base_url)}")
    return DoctorCheck("model", "ok", f"{found}, its key is set")


async def check_call(settings: Settings) -> DoctorCheck:
    """Call the model once, and show what came back."""
    import time

    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.messages import PromptMessage
    from agent_runtime.models import model_from_name
    from agent_runtime.models.base import ModelAnswer, ModelRequest
    from agent_runtime_config.request_settings import parse_model_settings

    if not settings.model:
        return DoctorCheck("call", "warn", "no model is set", "Set AGENT_RUNTIME_MODEL.")
    request = ModelRequest(
        (PromptMessage("user", CALL),),
        max_output=CALL_TOKENS,
        settings=parse_model_settings(settings.model_settings),
    )
    began = time.monotonic()
    answer: ModelAnswer | None = None
    try:
        async with model_from_name(settings.model, settings).stream(request) as events:
            async for event in events:
                if isinstance(event, ModelAnswer):
                    answer = event
    except AgentRuntimeError as error:
        return DoctorCheck("call", "fail", error.message, error.cure)
    took = time.monotonic() - began
    if answer is None:
        return DoctorCheck("call", "fail", "the stream ended without an answer", "Try again.")
    text = f"{answer.text[:80]!r} ({answer.word or answer.finish}) after {took:.1f} s"
    if answer.usage is not None:
        text += f", {answer.usage.prompt} + {answer.usage.completion} tokens"
    if answer.cost is not None:
        text += f", ${answer.cost / 1e9:.6f}"
    return DoctorCheck("call", "ok" if answer.finish == "stop" else "warn", text)


async def check_role(role: Role, settings: Settings) -> DoctorCheck | None:
    """Check a role's model, key and, for memory, window; None if the role uses the run's model."""
    from agent_runtime.cli.memory_checks import check_window

    found = await _check_own(role, settings)
    return found if role == "sub_agent" else await check_window(role, found, settings)


async def _check_own(role: Role, settings: Settings) -> DoctorCheck | None:
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.models import model_from_name
    from agent_runtime.models.model_settings import place_for_model

    name = settings.model_name(role)
    if name in ("", "same", "extractive"):
        return None
    if "," in name:
        return await _check_several(role, name, settings)
    try:
        model = model_from_name(name, settings, role=role)
        await model.check()
    except AgentRuntimeError as error:
        return DoctorCheck(role, "fail", error.message, error.cure)
    info, place = await model.info(), place_for_model(name, settings, role)
    found = f"{info.name}, window {info.window:,} tokens"
    if info.price is None:
        found += ", price unknown"
    if place.base_url is not None:
        found += f", at {redact_url(place.base_url)}"
    return DoctorCheck(role, "ok", found)


async def _check_several(role: Role, names: str, settings: Settings) -> DoctorCheck:
    """Check a model and its fallbacks: warn if some cannot be called, fail if none can."""
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.models.base import Checkable
    from agent_runtime.models.fallback.model import FallbackModel

    try:
        models = FallbackModel(names.split(","), settings=settings, role=role).models
    except AgentRuntimeError as error:
        return DoctorCheck(role, "fail", error.message, error.cure)
    found: list[str] = []
    cures: list[str] = []
    for model in models:
        info = await model.info()
        text = f"{info.name}, window {info.window:,} tokens"
        text += ", price unknown" if info.price is None else ""
        try:
            if isinstance(model, Checkable):
                await model.check()
        except AgentRuntimeError as error:
            text += f" ({error.message})"
            cures.append(error.cure)
        found.append(text)
    state = "ok" if not cures else ("fail" if len(cures) == len(models) else "warn")
    return DoctorCheck(role, state, "; then ".join(found), " ".join(dict.fromkeys(cures)))


async def check_embedder(settings: Settings) -> DoctorCheck:
    """Check the embedder and its key, if one is set; loads litellm, calls nothing."""
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.models import embedder_from_name

    if not settings.embedder_model:
        return DoctorCheck("embedder", "ok", "none is set, so semantic recall is off")
    try:
        embedder = embedder_from_name(settings.embedder_model, settings)
        await embedder.check()
    except AgentRuntimeError as error:
        return DoctorCheck("embedder", "fail", error.message, error.cure)
    found = embedder.name
    if embedder.price is None:
        found += ", price unknown"
        if settings.needs_prices:
            cure = "Set AGENT_RUNTIME_UNKNOWN_PRICE=tokens, or recall is by full text only."
            return DoctorCheck("embedder", "warn", found, cure)
    if settings.embedder_base_url is not None:
        found += f", at {redact_url(settings.embedder_base_url)}"
    return DoctorCheck("embedder", "ok", found)


async def check_database(settings: Settings) -> DoctorCheck:
    """Check that the database opens, has the current schema and answers."""
    from agent_runtime.cli.commands.db import outdated_text
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.runtime import Runtime

    shown = redact_url(settings.database_url)
    try:
        async with Runtime.open(settings) as runtime:
            await runtime.store.of(settings.user).threads.list(limit=1)
            status = await runtime.store.maintenance.status()
    except AgentRuntimeError as error:
        return DoctorCheck("database", "fail", f"{shown}: {error.message}", error.cure)
    found = f"{shown} opens ({status.server}), its schema is current"
    if status.isolation:
        found += f"; row-level security: {status.isolation}"
    if outdated := outdated_text(status):
        found += f"; {outdated}"
    return DoctorCheck("database", "warn" if status.cure else "ok", found, status.cure)


def check_approvals(settings: Settings) -> Iterator[DoctorCheck]:
    """Check that each rule of AGENT_RUNTIME_APPROVE names a tool that the command's agent may have.

    A rule for a tool of another program's agents fails too: no command could run under it.
    """
    from agent_runtime.cli.agents import Spec, build_agent
    from agent_runtime.errors import ConfigError
    from agent_runtime.human.approval_rules import check_rules
    from agent_runtime.run.resolve import toolset
    from agent_runtime_config.approvals import approval_rules

    rules = approval_rules(settings.approve)
    if not rules:
        return
    try:
        agent = build_agent(Spec("", workspace=".", allow_shell=True, asking=True))
        check_rules(rules, toolset(agent, None, levels=settings.delegation_depth))
    except ConfigError as error:
        yield DoctorCheck("approvals", "fail", error.message, error.cure)
    else:
        asked = ", ".join(rule.tool for rule in rules)
        yield DoctorCheck("approvals", "ok", f"a person is asked about: {asked}")


async def check_objects(settings: Settings) -> DoctorCheck:
    """Check the object store, if one is set, by writing, reading and deleting an object."""
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime_storage.objects.object_store import Objects, default_object_folder
    from agent_runtime_storage.urls import backend_of, file_path

    url = settings.object_store_url
    try:
        if url is not None:
            objects = Objects.open(url, seconds=10)
            await objects.probe()
            return DoctorCheck("objects", "ok", f"{objects.shown} can be written and read")
        if backend_of(settings.database_url) == "file":
            folder = default_object_folder(file_path(settings.database_url))
            return DoctorCheck("objects", "ok", f"large bodies are stored in {folder}")
    except AgentRuntimeError as error:
        return DoctorCheck("objects", "fail", error.message, error.cure)
    return DoctorCheck(
        "objects", "ok", "large bodies are stored in the database; no object store is set"
    )


def check_state(settings: Settings) -> Iterator[DoctorCheck]:
    """Check where the database lies, and that its files and those of its objects are private."""
    from agent_runtime.cli.state import misplaced, readable_by_others
    from agent_runtime.errors import AgentRuntimeError

    try:
        found = [*misplaced(settings), *readable_by_others(settings)]
    except (AgentRuntimeError, OSError):
        # `check_database` reports the error.
        return
    for one in found:
        yield DoctorCheck("state", "warn", one.text, one.cure)
    if not found:
        yield DoctorCheck("state", "ok", "no other user can access its files")


def check_sandbox(settings: Settings) -> DoctorCheck:
    """Run a command in the sandbox; if none is set, say whether bwrap would work."""
    from agent_runtime.errors import ConfigError
    from agent_runtime.tools.workspace.sandbox.choose import CommandSettings, sandbox_of

    chosen = CommandSettings.of(settings)
    set_one = chosen.sandbox != "none"
    name = chosen.sandbox if set_one else "bwrap"
    try:
        sandbox = sandbox_of(name, chosen.network, chosen.read)
        # A new folder, because a sandbox refuses some folders, and the current one may be such.
        with tempfile.TemporaryDirectory() as folder:
            if sandbox is not None:
                sandbox.check(Path(folder).resolve())
    except ConfigError as error:
        if set_one:
            return DoctorCheck("sandbox", "fail", error.message, error.cure)
        text = f"none is set, so commands are not confined; bwrap: {error.message}"
        return DoctorCheck("sandbox", "ok", text)
    if not set_one:
        return DoctorCheck(
            "sandbox", "ok", "none is set, so commands are not confined; bwrap works"
        )
    network = "with" if chosen.network else "without"
    return DoctorCheck("sandbox", "ok", f"commands run in {name}, {network} network")


def broken_litellm(version: str) -> bool:
    """Return whether this release of litellm fails on every call with tools."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    return (1, 106) <= numbers < (1, 108, 4)


def _versions(names: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Return the versions of the packages that are installed, and the names of the others."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found, [name for name in names if name not in found]
