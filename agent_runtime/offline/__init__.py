"""The model that runs where no language model is set: it surveys a folder."""

from agent_runtime.offline.script import MOST_READ, NAME, offline_model, survey

__all__ = ["MOST_READ", "NAME", "offline_model", "survey"]
