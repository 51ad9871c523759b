"""Puts together what the loop of one run works with."""

from __future__ import annotations

from agent_runtime.human.gate import Gate
from agent_runtime.memory.observational.worker import MemoryWorker
from agent_runtime.prompt.attachments import ContentCache, PromptFiles
from agent_runtime.prompt.view import Entry
from agent_runtime.run.guard.repeats import LoopGuard
from agent_runtime.run.memory_maintenance import memory_of
from agent_runtime.run.resolve import RunSetup
from agent_runtime.run.state import RunState
from agent_runtime.run.takeover import end_if_dead
from agent_runtime.run.tool_context import ToolContexts
from agent_runtime_config import Settings


def compose(
    resolved: RunSetup,
    context: ToolContexts,
    settings: Settings,
    contents: ContentCache,
    *,
    task: Entry | None,
    limit: int,
) -> RunState:
    """Return the state of a run that begins or goes on.

    Args:
        resolved: what its agent means here.
        context: what its tools are given; its log is the run's.
        contents: files that were read already.
        task: the task's own message, or None where there is none.
        limit: how many steps the run may have taken when it ends.
    """
    log, found = context.log, resolved.remembering
    memory = memory_of(log, found, resolved.calibration, settings) if found else None
    shown = PromptFiles(log.store, contents, resolved.files, resolved.info.takes, log.tell_of)
    return RunState(
        log=log,
        model=resolved.model,
        info=resolved.info,
        room=resolved.room,
        prefix=resolved.prefix,
        tools=resolved.tools,
        context=context,
        calibration=resolved.calibration,
        step_limit=limit,
        max_output=resolved.max_output,
        max_result_tokens=settings.max_result_tokens,
        output_limit=resolved.output_limit,
        task=task,
        limited=resolved.limited,
        end_dead=end_if_dead,
        gate=Gate.of(log, settings),
        guard=LoopGuard.of(log, settings, resolved.tools),
        output=resolved.output,
        memory=memory,
        worker=MemoryWorker(memory) if memory else None,
        recalling=context.recalling,
        idle=settings.activate_after_idle or None,
        restating=resolved.restating,
        files=shown,
        repeat_system=resolved.repeat_system,
        temperature=resolved.temperature,
    )
