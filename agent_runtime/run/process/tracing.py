"""The span of a run; a resumed run's span links to the one that began it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from agent_runtime.log.run_spec import RunSpec
from agent_runtime.models.telemetry import conventions as names
from agent_runtime.models.telemetry.spans import (
    contents,
    current_span,
    fail,
    link_to,
    span,
    traceparent,
)
from agent_runtime.run.start import RunRequest
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import Finish, Run


@contextmanager
def traced(request: RunRequest, settings: Settings) -> Generator[RunRequest]:
    """Make the span of a run that begins; yield its request, whose spec names the span."""
    attributes = _attributes(
        request.agent, request.run_id, request.thread_id, workflow=request.spec.workflow
    )
    with contents(settings.telemetry_content), span(_name(attributes), attributes):
        yield replace(request, spec=replace(request.spec, trace=traceparent()))


@contextmanager
def traced_again(run: Run, agent: str, settings: Settings) -> Generator[None]:
    """Make the span of a run that is resumed."""
    spec = RunSpec.of(run)
    attributes = _attributes(agent, run.id, run.thread_id, workflow=spec.workflow)
    attributes[names.RUN_RESUMED] = True
    links = link_to(spec.trace)
    with contents(settings.telemetry_content), span(_name(attributes), attributes, links=links):
        yield


def traced_end(finish: Finish, steps: int) -> Finish:
    """Describe the run's end in its span; return it."""
    if (current := current_span()) is not None:
        current.set_attribute(names.RUN_STATUS, finish.status)
        current.set_attribute(names.STOP_REASON, finish.stop_reason)
        current.set_attribute(names.RUN_STEPS, steps)
        if finish.status == "failed":
            fail(current, finish.stop_reason)
    return finish


def _attributes(agent: str, run: str, thread: str, *, workflow: bool) -> dict[str, Any]:
    operation = "invoke_workflow" if workflow else "invoke_agent"
    name = names.WORKFLOW_NAME if workflow else names.AGENT_NAME
    return {
        names.OPERATION: operation,
        name: agent,
        names.CONVERSATION_ID: thread,
        names.RUN_ID: run,
    }


def _name(attributes: dict[str, Any]) -> str:
    named = attributes.get(names.AGENT_NAME) or attributes.get(names.WORKFLOW_NAME)
    return f"{attributes[names.OPERATION]} {named}".strip()
