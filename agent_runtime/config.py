"""The settings, re-exported; they live in `agent_runtime_config`."""

from agent_runtime_config import Settings, load_settings

__all__ = ["Settings", "load_settings"]
