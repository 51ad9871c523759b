"""The settings as a table, for `agent-runtime config` and the documentation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from agent_runtime_config.environment import default_text, value_text, variable_of
from agent_runtime_config.settings import Settings
from agent_runtime_config.urls import redact_url

Origin = Literal["default", "environment", "DATABASE_URL", "code"]


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting, for display.

    Attributes:
        default: its default, `none` for unset.
        value: its value, without secrets.
        origin: where the value comes from; `code` if it was passed to `Settings`.
    """

    variable: str
    default: str
    value: str
    origin: Origin
    meaning: str


def describe_settings(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> list[SettingRow]:
    """Return every setting with its value and where it comes from.

    Args:
        environ: what the settings were loaded from; None for the process's environment.
    """
    given = os.environ if environ is None else environ
    present = {name.upper() for name, value in given.items() if value.strip()}
    return [
        SettingRow(
            variable=variable_of(field),
            default=default_text(field),
            value=_shown(field, getattr(settings, field)),
            origin=_origin(field, settings, present),
            meaning=info.description or "",
        )
        for field, info in Settings.model_fields.items()
    ]


def settings_table(fields: Iterable[str] | None = None) -> str:
    """Return settings as a Markdown table of variable, default and meaning; None for all."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for field in Settings.model_fields if fields is None else fields:
        default = default_text(field)
        shown = default if default == "none" else f"`{default}`"
        meaning = Settings.model_fields[field].description
        lines.append(f"| `{variable_of(field)}` | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


def _shown(field: str, value: object) -> str:
    text = value_text(value)
    # URLs may hold passwords; secrets of other kinds are of a type that `value_text` hides.
    return redact_url(text) if field.endswith("_url") else text


def _origin(field: str, settings: Settings, present: set[str]) -> Origin:
    if field not in settings.model_fields_set:
        return "default"
    if variable_of(field) in present:
        return "environment"
    if field == "database_url" and "DATABASE_URL" in present:
        return "DATABASE_URL"
    return "code"
