"""Turn what the sources give into settings, and name every variable that is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from agent_runtime_config.errors import ConfigError
from agent_runtime_config.fields import POSTGRES_SCHEMES
from agent_runtime_config.groups.model_settings import Role, RoleSettings
from agent_runtime_config.names import PLACES, PREFIX
from agent_runtime_config.settings import Settings
from agent_runtime_config.sources import Given, Sources, read_sources
from agent_runtime_config.state import SHOWN
from agent_runtime_config.urls import url_scheme


@dataclass(frozen=True, slots=True)
class _Problem:
    variable: str
    reason: str
    cure: str


def variable_of(field: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + field.upper()


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from an environment, and from the files that it names.

    Empty values count as unset, spaces around a value are dropped.  `AGENT_RUNTIME_ENV_FILE` names
    an env file, `AGENT_RUNTIME_CONFIG_FILE` a configuration file.

    Args:
        environ: None for the process's own.  Then the user's configuration file counts too, and
            the keys of providers that files give are put into the process's environment.

    Raises:
        ConfigError: names every variable that is misspelt or has a bad value, never the value.
    """
    sources = read_sources(environ)
    settings = settings_of(sources)
    if environ is None:
        sources.export_keys()
    return settings


def given_or_loaded(settings: object) -> Settings:
    """Return settings that a program gave, or those of the environment if it gave None.

    Raises:
        ConfigError: what it gave is something else, such as the URL of a database.
    """
    if settings is None:
        return load_settings()
    if isinstance(settings, Settings):
        return settings
    # The value may be a URL with a password.
    raise ConfigError(
        f"A runtime is opened with Settings, and not with {type(settings).__name__}.",
        cure='Write `Runtime.open(Settings(database_url="file:work.db"))`.',
    )


def settings_of(sources: Sources) -> Settings:
    """Return the settings that sources give.

    Raises:
        ConfigError: names every variable that is misspelt or has a bad value, never the value.
    """
    values = {
        field: sources.settings[variable_of(field)].text
        for field in Settings.model_fields
        if variable_of(field) in sources.settings
    }
    given = dict(sources.settings)
    # A common variable: with another scheme it is meant for some other program.
    if "database_url" not in values and url_scheme(sources.database_url) in POSTGRES_SCHEMES:
        values["database_url"] = sources.database_url
        given[variable_of("database_url")] = Given(sources.database_url, "DATABASE_URL")
    problems = _unknown(given)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems += [_invalid(detail, given) for detail in error.errors()]
        # Not chained: pydantic's error repeats the values, and secrets are among them.
        raise _config_error(problems) from None
    problems += _contradictions(settings)
    if problems:
        raise _config_error(problems)
    return settings


def _named(given: Given) -> str:
    """Return a variable as its source names it, with its file."""
    return given.name if given.origin == "environment" else f"{given.name} ({given.origin})"


def _unknown(given: Mapping[str, Given]) -> list[_Problem]:
    known = {variable_of(field) for field in Settings.model_fields}
    problems: list[_Problem] = []
    for name in sorted(set(given) - known):
        # Sorted, because the order of a set, and so the choice among equals, differs by process.
        choices = sorted(one.removeprefix(PREFIX) for one in (*known, *PLACES))
        near = difflib.get_close_matches(name.removeprefix(PREFIX), choices, n=1)
        cure = f"Did you mean {PREFIX}{near[0]}?" if near else f"Unset {given[name].name}."
        problems.append(_Problem(_named(given[name]), "is not a setting", cure))
    return problems


def _invalid(detail: ErrorDetails, given: Mapping[str, Given]) -> _Problem:
    field = str(detail["loc"][0])
    one = given.get(variable_of(field), Given("", variable_of(field)))
    reason = detail["msg"].replace("Input should be", "must be").replace("String should", "must")
    default = default_text(field)
    cure = f"Correct {one.name}, or unset it for its default ({default})."
    return _Problem(_named(one), reason, cure)


def _contradictions(settings: Settings) -> list[_Problem]:
    problems = _without_models(settings)
    window, reserve = settings.context_window, settings.response_reserve
    if window is not None and reserve is not None and reserve >= window:
        variable = variable_of("response_reserve")
        reason = f"must be smaller than {variable_of('context_window')} ({window})"
        problems.append(_Problem(variable, reason, f"Lower {variable}, or unset it."))
    return problems


def _without_models(settings: Settings) -> list[_Problem]:
    """Return what is set for roles that have no model of their own."""
    problems: list[_Problem] = []
    roles: tuple[Role, ...] = ("sub_agent", "observer", "reflector")
    for role in roles:
        named = settings.place(role).name
        fields = [one for one in RoleSettings.model_fields if one.startswith(f"{role}_")]
        given = [
            one for one in fields if one != f"{role}_model" and getattr(settings, one) is not None
        ]
        if given and named in ("", "same", "extractive"):
            variable, names = variable_of(f"{role}_model"), " and ".join(map(variable_of, given))
            reason = f"is set, but {variable} names no model of its own ({named or 'none'})"
            problems.append(_Problem(names, reason, f"Name one by {variable}, or unset {names}."))
    return problems


def _config_error(problems: list[_Problem]) -> ConfigError:
    texts = [f"{problem.variable} {problem.reason}" for problem in problems]
    return ConfigError("; ".join(texts) + ".", cure=" ".join(problem.cure for problem in problems))


def default_text(field: str) -> str:
    """Return a setting's default as one would write it in the environment; "none" for unset."""
    return SHOWN if field == "database_url" else value_text(Settings.model_fields[field].default)


def value_text(value: object) -> str:
    """Return a setting's value as one would write it in the environment; "none" for unset."""
    if value is None or value == "":
        return "none"
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
