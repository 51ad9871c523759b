"""The settings of telemetry."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings


class TelemetrySettings(BaseSettings):
    """What spans show, and who may read metrics."""

    telemetry_content: bool = Field(
        default=False,
        description="Whether spans hold contents: prompts, answers, arguments and results of "
        "tools, masked as logs are.",
    )
    metrics_token: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="The bearer token for `/metrics` of the HTTP service. Where it is unset, only "
        "programs on the same machine may read them.",
    )
