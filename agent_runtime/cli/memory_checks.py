"""What `doctor` says of the windows of the Observer's and the Reflector's models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent_runtime.cli.check import DoctorCheck

if TYPE_CHECKING:
    from agent_runtime_config import Settings
    from agent_runtime_config.groups.model_settings import Role


async def check_window(
    role: Role, found: DoctorCheck | None, settings: Settings
) -> DoctorCheck | None:
    """Return the check of a role's model, with a warning if its window is too small for memory.

    Args:
        found: the check of its name and key; None if it is the run's own model.
    """
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.memory.observational.configure import window_problem
    from agent_runtime.models import model_from_name
    from agent_runtime.models.base import default_reserve

    name = settings.model_name(role)
    own = name == "same"
    name = settings.model if own else name
    failed = found is not None and found.state == "fail"
    if failed or not settings.observational_memory or name in ("", "extractive"):
        return found
    try:
        model = model_from_name(name, settings, role="model" if own else role)
        info = main = await model.info()
        if settings.model and not own:
            main = await model_from_name(settings.model, settings).info()
    except AgentRuntimeError:
        # The check of the model reports it.
        return found
    reserve = settings.response_reserve or default_reserve(main.window)
    problem, cure = window_problem(role, model, info, settings, max(1, main.window - reserve))
    if not problem:
        return found
    detail = f"{found.detail}. {problem}" if found else problem
    checked = found or DoctorCheck(role, "warn", "")
    return replace(checked, state="warn", detail=detail, cure=f"{checked.cure} {cure}".strip())
