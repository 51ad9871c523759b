"""What an installation may lack: packages of extras."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, what: str) -> Generator[None]:
    """Turn an import that fails into an error that names the extra to install.

    Args:
        what: what needs the extra, as the error names it.

    Raises:
        ConfigError: a package is not installed.
    """
    from agent_runtime.errors import ConfigError

    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} needs packages that are not installed, such as {error.name}.",
            cure=f"Install them: pip install 'agent-runtime-om[{extra}]'.",
        ) from error
