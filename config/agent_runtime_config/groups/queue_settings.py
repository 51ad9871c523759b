"""Settings of the queue and its workers."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from agent_runtime_config.fields import Count


class QueueSettings(BaseSettings):
    """The limits that all workers of a database keep together."""

    queue_runs_per_user: Count | None = Field(
        default=None,
        description="How many queued runs of a user work at once, on all workers together.",
    )
    queue_runs_per_agent: Count | None = Field(
        default=None,
        description="How many queued runs of an agent work at once, on all workers together.",
    )
    queue_runs_per_model: Count | None = Field(
        default=None,
        description="How many queued runs with the same model work at once, on all workers "
        "together.",
    )
