"""The settings of the runtime, read from the environment.

Importing this package costs nothing: pydantic is loaded when a setting is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agent_runtime_config.errors import AgentRuntimeError, ConfigError

if TYPE_CHECKING:
    from agent_runtime_config.approvals import ApprovalRule, approval_rules
    from agent_runtime_config.describe import SettingRow, describe_settings, settings_table
    from agent_runtime_config.environment import load_settings
    from agent_runtime_config.settings import Settings
    from agent_runtime_config.state import default_database_url, state_folder

__all__ = [
    "AgentRuntimeError",
    "ApprovalRule",
    "ConfigError",
    "SettingRow",
    "Settings",
    "approval_rules",
    "default_database_url",
    "describe_settings",
    "load_settings",
    "settings_table",
    "state_folder",
]

_HOMES = {
    "ApprovalRule": "approvals",
    "SettingRow": "describe",
    "Settings": "settings",
    "approval_rules": "approvals",
    "default_database_url": "state",
    "describe_settings": "describe",
    "load_settings": "environment",
    "settings_table": "describe",
    "state_folder": "state",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
