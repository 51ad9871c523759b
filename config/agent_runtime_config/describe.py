"""The settings as a table, for `agent-runtime config` and the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent_runtime_config.environment import default_text, value_text, variable_of
from agent_runtime_config.settings import Settings
from agent_runtime_config.sources import Sources, read_sources
from agent_runtime_config.subjects import subjects
from agent_runtime_config.urls import redact_url


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting, for display.

    Attributes:
        default: its default, `none` for unset.
        value: its value, without secrets.
        origin: where the value comes from: `default`, `environment`, `DATABASE_URL`, a file with
            its line, or `code` if it was passed to `Settings`.
    """

    variable: str
    default: str
    value: str
    origin: str
    meaning: str


def describe_settings(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> list[SettingRow]:
    """Return every setting with its value and where it comes from, ordered by subject.

    Args:
        environ: what the settings were loaded from; None for the process's environment.
    """
    sources = read_sources(environ)
    return [
        SettingRow(
            variable=variable_of(field),
            default=default_text(field),
            value=_shown(field, getattr(settings, field)),
            origin=_origin(field, settings, sources),
            meaning=Settings.model_fields[field].description or "",
        )
        for fields in subjects().values()
        for field in fields
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


def _origin(field: str, settings: Settings, sources: Sources) -> str:
    if field not in settings.model_fields_set:
        return "default"
    if (given := sources.settings.get(variable_of(field))) is not None:
        return given.origin
    if field == "database_url" and sources.database_url:
        return "DATABASE_URL"
    return "code"
