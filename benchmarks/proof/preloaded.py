"""Imported by a fork server, so that its forks have litellm from the start."""

import anyio

from agent_runtime.models.litellm import load_litellm

anyio.run(load_litellm)
