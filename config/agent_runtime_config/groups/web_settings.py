"""Settings of what agents may read of the web."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings

_PATTERN = re.compile(r"[a-z0-9.*?_-]+", re.I)
_HOST = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\]|[0-9a-f:]*:[0-9a-f:.]+)(?::\d{1,5})?", re.I)


def _domains(text: str) -> str:
    return _listed(text, _PATTERN, "must be hosts or patterns of them with commas between them")


def _hosts(text: str) -> str:
    return _listed(text, _HOST, "must be hosts, with or without a port, with commas between them")


def _listed(text: str, form: re.Pattern[str], problem: str) -> str:
    names = [one.strip().lower() for one in text.split(",") if one.strip()]
    if not all(form.fullmatch(one) for one in names):
        raise PydanticCustomError("hosts", problem)  # pyright: ignore[reportArgumentType]
    return ",".join(names)


class WebSettings(BaseSettings):
    """The settings of the tool `fetch`."""

    allow_web: bool = Field(
        default=False,
        description="Whether agents of the command line may read web pages, by `fetch`.",
    )
    web_domains: Annotated[str, AfterValidator(_domains)] = Field(
        default="",
        description="The only hosts that `fetch` reads, with commas between them: "
        "`docs.python.org,*.example.com`; none for all public ones.",
    )
    web_private_hosts: Annotated[str, AfterValidator(_hosts)] = Field(
        default="",
        description="Hosts that `fetch` reads though their addresses are private, with or without "
        "a port: `localhost:8000,wiki.internal`.",
    )
