"""The workspace tools: read, search, list, write and edit the files of one folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from agent_runtime.errors import ConfigError
from agent_runtime.tools.base import NeedsApproval, Tool
from agent_runtime.tools.workspace.file_tools import FileTools
from agent_runtime.tools.workspace.presets import CODING, READING, tools_of_preset
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime.tools.workspace.root import Root
from agent_runtime.tools.workspace.shell import MOST_SECONDS, Shell, ShellOptions


def workspace_tools(
    root: str | os.PathLike[str],
    *,
    preset: str = CODING,
    shell: bool = False,
    shell_approval: NeedsApproval = False,
    shell_timeout: float = MOST_SECONDS,
    environment: Mapping[str, str] | None = None,
    pass_environment: Sequence[str] = (),
    sandbox: str | None = None,
    sandbox_network: bool | None = None,
    read_only: bool = False,
    protected: Iterable[str] = (),
    hidden: Iterable[str] = (),
) -> list[Tool]:
    """Return tools that read, search, list, write and edit the files of one folder.

    Paths cannot lead out of it: `..`, absolute paths and links that do so are refused, even links
    swapped in during a call.  Not fenced are hard links and mounts inside of it, replacing the
    folder itself, and commands.  The files of an open database are always refused; your own tools
    must not open them either (see `agent_runtime_storage.open_store`).

    By default the files that git, virtual environments, shells, editors and package managers act on
    by themselves are not written, and files of secrets, such as `.env`, are not read or searched
    either.  Settings of the same names come after `protected` and `hidden`.

    Args:
        root: the folder.
        preset: which file tools: `coding`, `reading` or `minimal` (none: a shell alone), or names
            of presets and tools with commas between them, as in `coding,apply_patch`.
        shell: whether to add `bash`; without a sandbox commands have all rights of this process.
        shell_approval: which commands need an approval, as in `@tool(needs_approval=...)`.
        shell_timeout: the most seconds that a command may take, unless it is in the background.
        environment: the variables of commands; None for a few of this process's own (`PATH`,
            `HOME`, `LANG` and others without secrets), with the folder's virtual environment
            (`.venv`, `venv`) instead of the runtime's.
        pass_environment: names of this process's variables that commands get in addition.
        sandbox: what confines commands: `none`, `bwrap` or `docker:IMAGE`; None for the setting.
        sandbox_network: whether commands in it may use the network; None for the setting.
        read_only: whether to leave out the tools that write.
        protected: globs of paths that must not be written.  A glob without `/` matches a name in
            any folder, one with `/` from the root on; `**` stands for any folders, and `!` before a
            glob makes an exception.
        hidden: globs of paths that must be neither written, nor read, nor searched.

    Raises:
        ConfigError: the root is not a folder, a name is not valid, no tool is left, or a shell is
            wanted for reading only.
    """
    wanted = _file_tools(preset, shell=shell, read_only=read_only)
    folder = Root(root)
    files = FileTools(folder, DEFAULT + ProtectedPaths.of(protected, hidden))
    tools = [one for one in files.tools() if one.name in wanted]
    if shell:
        options = ShellOptions(sandbox, sandbox_network, tuple(pass_environment))
        commands = Shell(folder.path, shell_timeout, environment, options)
        tools += commands.tools(shell_approval)
    for one in tools:
        one.folder = folder.path
    return tools


def _file_tools(preset: str, *, shell: bool, read_only: bool) -> frozenset[str]:
    """Return the names of the file tools.  Raises `ConfigError`."""
    if read_only and shell:
        raise ConfigError(
            "Commands can write, so they are not for a workspace that is only read.",
            cure="Leave out either `shell` or `read_only`.",
        )
    wanted = tools_of_preset(preset)
    if read_only:
        wanted &= tools_of_preset(READING)
    if not wanted and not shell:
        raise ConfigError(
            f"The preset {preset!r} leaves no tool here.",
            cure="Allow the shell, or choose another preset.",
        )
    return wanted
