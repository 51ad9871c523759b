"""Settings of a database file, and of the connections to a server."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from agent_runtime_config.fields import Count, Synchronous


class DatabaseSettings(BaseSettings):
    """How a process uses its database."""

    database_auth_token: SecretStr | None = Field(
        default=None, description="The token that a libSQL server asks for."
    )
    database_connections: Count = Field(
        default=8,
        description="The most connections of a process to Postgres, whatever number of runs it "
        "works on; listening takes one more, and a worker with the extra `workers` three more.",
    )
    synchronous: Synchronous = Field(
        default="full",
        description="For a database file: `full` keeps each commit over a power cut, `normal` "
        "only over a crash of the process.",
    )
