"""The types of settings: what a value may be, and what its error says."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from agent_runtime_config.approvals import approval_rules
from agent_runtime_config.limits import MAX_DOLLARS, MAX_SECONDS, MAX_TOKENS
from agent_runtime_config.request_settings import parse_model_settings
from agent_runtime_config.sandbox import VARIABLE, parse_sandbox
from agent_runtime_config.urls import is_misspelt, is_not_a_model, url_scheme

POSTGRES_SCHEMES = ("postgresql", "postgres")


DATABASE_SCHEMES = ("file", "libsql", "http", "https", "ws", "wss", *POSTGRES_SCHEMES)


OBJECT_SCHEMES = ("file", "s3", "gs", "az", "abfs", "abfss")


def _database_url(url: str) -> str:
    scheme = url_scheme(url)
    if scheme and scheme not in DATABASE_SCHEMES:
        raise PydanticCustomError(
            "database_scheme",
            "names the unknown scheme {scheme}; known are {known}",
            {"scheme": scheme, "known": ", ".join(DATABASE_SCHEMES)},
        )
    return _no_keywords(url)


def _object_store_url(url: str) -> str:
    scheme = url_scheme(url)
    if scheme and scheme not in OBJECT_SCHEMES:
        raise PydanticCustomError(
            "object_scheme",
            "names the unknown scheme {scheme}; known are {known}",
            {"scheme": scheme, "known": ", ".join(OBJECT_SCHEMES)},
        )
    return _no_keywords(url)


def _no_keywords(url: str) -> str:
    # libpq's form `host=… password=…` would be taken for the path of a file, and shown.
    if re.match(r"\w+\s*=", url):
        raise PydanticCustomError("url_keywords", "must be a URL or a path, not a list of keywords")
    if not url_scheme(url) and is_misspelt(url):
        raise PydanticCustomError("misspelt_url", "looks like a URL whose scheme is misspelt")
    return url


def _approvals(text: str) -> str:
    try:
        approval_rules(text)
    except ValueError as error:
        raise PydanticCustomError("approvals", "{problem}", {"problem": str(error)}) from None
    return text


def _request_settings(text: str) -> str:
    try:
        parse_model_settings(text)
    except ValueError as error:
        raise PydanticCustomError("model_settings", "{problem}", {"problem": str(error)}) from None
    return text


def _sandbox(text: str) -> str:
    try:
        parse_sandbox(text)
    except ValueError as error:
        raise PydanticCustomError("sandbox", "{problem}", {"problem": str(error)}) from None
    return text


def _variable_names(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not all(VARIABLE.fullmatch(one) for one in names):
        # A pair would put the value, which may be a secret, where names are shown.
        raise PydanticCustomError("names", "must be names of variables with commas between them")
    return ",".join(names)


def _folders(text: str) -> str:
    places = [one for one in text.split(os.pathsep) if one]
    if not all(one.startswith(("/", "~/")) and Path(one) != Path("/") for one in places):
        raise PydanticCustomError("folders", "must be absolute paths with colons between them")
    return os.pathsep.join(places)


def _model_name(name: str) -> str:
    if is_not_a_model(name):
        raise PydanticCustomError(
            "model_name", "must be a model's name; address and key have settings of their own"
        )
    return name


def _repeats(limit: int) -> int:
    if limit == 1:
        raise PydanticCustomError("repeats", "must be 0 (never), or 2 or more")
    return limit


def _phases(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[\w-]{1,40}", one) for one in names):
        raise PydanticCustomError("phases", "must be words with commas between them, each once")
    return ",".join(names)


def _globs(text: str) -> str:
    for glob in filter(None, (one.strip().removeprefix("!") for one in text.split(","))):
        # They would match nothing, and so protect nothing.
        if ".." in glob.split("/") or "\\" in glob or glob.startswith(("~", "!")):
            raise PydanticCustomError(
                "globs", "must be globs of paths inside the workspace, with / and without .. or ~"
            )
    return text


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    # Also a name that is a folder, or leads out of the database.
    except (KeyError, ValueError, OSError):
        raise PydanticCustomError(
            "time_zone",
            "must be the IANA name of a time zone, such as Europe/Berlin or UTC; where the system "
            "has no database of zones, pip install tzdata",
        ) from None
    return name


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _http_url(url: str) -> str:
    if url_scheme(url) not in ("http", "https"):
        raise PydanticCustomError("http_url", "must be a URL that begins with http:// or https://")
    return url


DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
ObjectStoreUrl = Annotated[str, AfterValidator(_object_store_url)]
Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Limit = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
"""Seconds; 0 for no limit."""
Dollars = Annotated[float, Field(gt=0, le=MAX_DOLLARS, allow_inf_nan=False)]
Synchronous = Annotated[Literal["full", "normal"], BeforeValidator(_lower)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Count = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Window = Annotated[int, Field(ge=1000)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Lower = BeforeValidator(_lower)
Approvals = Annotated[str, AfterValidator(_approvals)]
Globs = Annotated[str, AfterValidator(_globs)]
ModelName = Annotated[str, AfterValidator(_model_name)]
Phases = Annotated[str, AfterValidator(_phases)]
RepeatLimit = Annotated[int, Field(ge=0), AfterValidator(_repeats)]
Natural = Annotated[int, Field(ge=0)]
SandboxName = Annotated[str, AfterValidator(_sandbox)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
VariableNames = Annotated[str, AfterValidator(_variable_names)]
Folders = Annotated[str, AfterValidator(_folders)]


RequestSettings = Annotated[str, AfterValidator(_request_settings)]
