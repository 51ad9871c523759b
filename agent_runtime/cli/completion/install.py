"""The completion scripts of shells, and where they are installed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")
PROGRAM = "agent-runtime"
VARIABLE = "_AGENT_RUNTIME_COMPLETE"
MARK = "# Completion of agent-runtime"


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """Where a shell finds the script.

    Attributes:
        script: the file of the script.
        start_file: the file that the shell reads when it starts and has to load the script; None
            if the shell finds the script by itself.
        line: the line to add to it.
    """

    script: Path
    start_file: Path | None = None
    line: str = ""


def script_of(shell: Shell) -> str:
    """Return the completion script of a shell."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    from agent_runtime.cli.main import main

    kinds = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    complete = kinds[shell](main, {}, PROGRAM, VARIABLE)
    # Not `source`: for bash it starts the bash of the machine to ask for its version.
    return complete.source_template % complete.source_vars()


def place_of(shell: Shell, environ: Mapping[str, str] = os.environ) -> ScriptPlace:
    """Return where the script of a shell belongs for this user."""
    home = Path.home()
    if shell == "fish":
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        return ScriptPlace(config / "fish" / "completions" / f"{PROGRAM}.fish")
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    script = data / PROGRAM / f"completion.{shell}"
    load = f"[ ! -f {shlex.quote(str(script))} ] || . {shlex.quote(str(script))}"
    if shell == "bash":
        return ScriptPlace(script, home / ".bashrc", load)
    folder = Path(environ.get("ZDOTDIR") or home)
    # The script calls `compdef`, which `compinit` defines.
    load = f"(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}; {load}"
    return ScriptPlace(script, folder / ".zshrc", load)


def install(shell: Shell, environ: Mapping[str, str] = os.environ) -> ScriptPlace:
    """Write the script, and let the shell load it; doing so again changes nothing else."""
    from agent_runtime.cli.files import replacing

    place = place_of(shell, environ)
    place.script.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place.script) as file:
        file.write(script_of(shell).encode())
    if place.start_file is not None:
        # Bytes, since the file may be in any encoding.
        old = place.start_file.read_bytes() if place.start_file.exists() else b""
        if place.line.encode() not in old.splitlines():
            before = "" if not old or old.endswith(b"\n") else "\n"
            # Appended, since the file may be a link into the user's own repository.
            with place.start_file.open("ab") as file:
                file.write(f"{before}{MARK}\n{place.line}\n".encode())
    return place
