"""Imported by a fork server, so that the processes that it forks have litellm from the start."""

import anyio

from agent_runtime.models.litellm import load_litellm

anyio.run(load_litellm)
