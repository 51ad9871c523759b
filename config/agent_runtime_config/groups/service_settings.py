"""Settings of the HTTP service."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings


def _origins(text: str) -> str:
    origins = [one.strip().rstrip("/").lower() for one in text.split(",") if one.strip()]
    if not all(_is_origin(one) for one in origins):
        problem = "must be origins such as https://app.example.com, with commas between them"
        raise PydanticCustomError("origins", problem)  # pyright: ignore[reportArgumentType]
    return ",".join(origins)


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    rest = parts.path or parts.query or parts.fragment or parts.username
    return parts.scheme in ("http", "https") and named and not rest


def _prefix(text: str) -> str:
    text = text.strip().rstrip("/")
    if text and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text):
        problem = "must be a path such as /agents, of letters, digits and . _ ~ -"
        raise PydanticCustomError("prefix", problem)  # pyright: ignore[reportArgumentType]
    return text


class ServiceSettings(BaseSettings):
    """The settings of `agent-runtime serve` and of `create_app`."""

    service_max_body_bytes: Annotated[int, Field(ge=1000)] = Field(
        default=1_000_000,
        description="The largest body of a request to the service, in bytes; of an uploaded file "
        "`AGENT_RUNTIME_MAX_FILE_BYTES` is.",
    )
    service_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=20.0,
        description="How many requests a second the service takes from a user, on average; 0 for "
        "any number.",
    )
    service_burst: Annotated[int, Field(ge=1)] = Field(
        default=100, description="How many requests of a user may come at once."
    )
    service_max_runs: Annotated[int, Field(ge=1)] = Field(
        default=10,
        description="How many runs of a user the service has at work at once; more are refused.",
    )
    service_max_streams: Annotated[int, Field(ge=1)] = Field(
        default=20,
        description="How many streams of events a user may have open at once; more are refused.",
    )
    service_heartbeat: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=15.0,
        description="Seconds without an event after which a stream sends a comment, so that "
        "proxies keep the connection.",
    )
    service_stall: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=60.0,
        description="Seconds after which `agent-runtime serve` breaks the connection of a client "
        "that takes nothing of what is sent to it.",
    )
    service_origins: Annotated[str, AfterValidator(_origins)] = Field(
        default="",
        description="Other origins whose pages may call the service (CORS), with commas between "
        "them: `https://app.example.com`; none by default.",
    )
    service_prefix: Annotated[str, AfterValidator(_prefix)] = Field(
        default="",
        description="The path below which a proxy shows the service, such as `/agents`, whether it "
        "strips it from requests or not; none by default.",
    )
