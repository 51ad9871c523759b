"""Where settings come from: the environment, an env file, the user's configuration file.

The first of these that gives a value counts.  No file is searched for in the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_runtime_config.errors import ConfigError
from agent_runtime_config.names import (
    CONFIG_FILE,
    ENV_FILE,
    HARMLESS,
    PLACES,
    PREFIX,
    is_key,
    is_provider_variable,
)
from agent_runtime_config.setting_files import FileEntry, read_config_file, read_env_file

CONFIG_NAME = "config.toml"


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody set.

    Attributes:
        name: as it is written there, for messages.
        origin: `environment`, or the file with the line.
    """

    text: str = field(repr=False)
    name: str
    origin: str = "environment"


@dataclass(frozen=True, slots=True)
class Sources:
    """What all sources give together, by variable in upper case.

    Attributes:
        settings: variables that begin with AGENT_RUNTIME_, known or not.
        keys: variables of providers that a file gives.
        files: the files that were read.
        ignored: by file, how many of its variables are neither.
        database_url: the environment's `DATABASE_URL`, empty if it has none.
    """

    settings: Mapping[str, Given]
    keys: Mapping[str, Given]
    files: tuple[Path, ...] = ()
    ignored: Mapping[Path, int] = field(default_factory=dict[Path, int])
    database_url: str = ""

    def export_keys(self) -> None:
        """Put the providers' variables into the process's environment, unless they are set there.

        Providers' clients read them there.
        """
        for name, given in self.keys.items():
            if not os.environ.get(name):
                os.environ[name] = given.text


def read_sources(environ: Mapping[str, str] | None = None) -> Sources:
    """Read the environment and the files that it names.

    Args:
        environ: None for the process's own; then the user's configuration file counts as well.

    Raises:
        ConfigError: a file cannot be read, is not safe, or sets what it may not.
    """
    given = os.environ if environ is None else environ
    present = {name: value.strip() for name, value in given.items() if value.strip()}
    settings = {
        name.upper(): Given(value, name)
        for name, value in present.items()
        if name.upper().startswith(PREFIX)
    }
    keys: dict[str, Given] = {}
    files: list[Path] = []
    ignored: dict[Path, int] = {}

    def add(path: Path, entries: list[FileEntry]) -> None:
        files.append(path)
        # Within a file the last one counts, between files the first.
        for variable, one in {one.variable: one for one in entries if one.text}.items():
            given = Given(one.text, one.written, f"{path}:{one.line}")
            if variable.startswith(PREFIX):
                settings.setdefault(variable, given)
            elif is_provider_variable(variable):
                keys.setdefault(variable, given)
            else:
                ignored[path] = ignored.get(path, 0) + 1

    places = {name: settings.pop(name).text for name in PLACES if name in settings}
    if ENV_FILE in places:
        add(*_env_file(places[ENV_FILE]))
    if CONFIG_FILE in places or environ is None:
        path = _config_path(places.get(CONFIG_FILE, ""))
        if path is not None:
            add(path, _config_entries(path, required=CONFIG_FILE in places))
    for name in PLACES:
        if name in settings:
            raise ConfigError(
                f"{settings[name].origin} sets {name}, which only the environment can.",
                cure="Remove it.",
            )
    return Sources(settings, keys, tuple(files), ignored, present.get("DATABASE_URL", ""))


def known_config_path() -> Path | None:
    """Return the user's configuration file, which may be missing; None without a home folder."""
    from platformdirs import user_config_path

    try:
        folder = user_config_path("agent-runtime", appauthor=False)
        if not folder.is_absolute():
            folder = Path.home() / ".config" / "agent-runtime"
    except RuntimeError:
        return None
    return folder / CONFIG_NAME if folder.is_absolute() else None


def config_path() -> Path | None:
    """Return the configuration file of this process, which may be missing; None for no file.

    Raises:
        ConfigError: `AGENT_RUNTIME_CONFIG_FILE` is a relative path.
    """
    return _config_path(os.environ.get(CONFIG_FILE, "").strip())


def _config_path(named: str) -> Path | None:
    if not named:
        return known_config_path()
    if named.lower() == "none":
        return None
    path = Path(named).expanduser()
    if not path.is_absolute():
        raise ConfigError(
            f"{CONFIG_FILE} is the relative path {named}.",
            cure="Give an absolute path, or `none` for no file.",
        )
    return path


def _config_entries(path: Path, *, required: bool) -> list[FileEntry]:
    entries = read_config_file(path, required=required)
    secret = next((one for one in entries if one.text and is_key(one.variable)), None)
    if secret is not None and (mode := path.stat().st_mode & 0o777) & 0o077:
        raise ConfigError(
            f"{path} holds a key ({secret.written}, line {secret.line}), and other users may "
            f"access it (mode {mode:04o}).",
            cure=f"chmod 600 '{path}'",
        )
    return entries


def _env_file(text: str) -> tuple[Path, list[FileEntry]]:
    given = Path(text).expanduser()
    path = given.absolute()
    entries = read_env_file(path)
    if not given.is_absolute():
        _check_harmless(path, entries)
    return path, entries


def _check_harmless(path: Path, entries: list[FileEntry]) -> None:
    """Refuse what guards in a file that was found by a relative path."""
    for one in entries:
        name = one.variable
        is_setting = name.startswith(PREFIX)
        if is_setting and name.removeprefix(PREFIX) in HARMLESS:
            continue
        if is_setting or (is_provider_variable(name) and not is_key(name)):
            raise ConfigError(
                f"{path}, line {one.line}, sets {name}. {ENV_FILE} is a relative path, so whoever "
                "wrote the current folder would choose what an agent may do and reach.",
                cure=f"Name the file by --env-file or by its full path in {ENV_FILE}, "
                "or remove the line.",
            )
