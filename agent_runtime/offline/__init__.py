"""The model for use without a language model: it surveys a folder."""

from agent_runtime.offline.script import NAME, offline_model

__all__ = ["NAME", "offline_model"]
