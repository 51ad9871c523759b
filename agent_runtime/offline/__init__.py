"""The model for use without a language model: it surveys a folder."""

from agent_runtime.offline.script import NAME, OfflineModel

__all__ = ["NAME", "OfflineModel"]
