"""The script that a shell runs for a command: restore the session, run it, report its state.

The script comes by standard input, not as an argument: everybody on the machine can read the
arguments of programs, `pkill -f` would find the shell itself, and their length is limited.  What
the shell reports goes to its first standard error; the command's own errors go to its output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent_runtime.tools.workspace.supervisor import MARK

_RUN = (
    '__agent_script=$(cat) || exit 127; eval "$__agent_script"; eval "$__agent_command"; '
    "{ __agent_state $?; } 2>/dev/null"
)
BOOT = f"exec 9>&2 2>&1; if command -v bash >/dev/null; then exec bash -c '{_RUN}' bash; fi; {_RUN}"
"""What `sh -c` runs: the script from its input, in bash if there is one."""
MOST_STATE = 1 << 20
"""The most bytes of a report that are read; a larger one is ignored."""

# Of each shell alone, or of each process.
_OWN = frozenset((
    "_", "BASHOPTS", "BASHPID", "BASH_VERSINFO", "EUID", "GROUPS", "HOSTNAME", "OLDPWD", "PPID",
    "PWD", "SHELLOPTS", "SHLVL", "UID", MARK,
))  # fmt: skip
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_BEGIN, _END = b"\0state\0", b"\0end\0"
_STATE = re.compile(re.escape(_BEGIN) + b".*?(?:" + re.escape(_END) + rb"|\Z)", re.DOTALL)

# The state is reported after the command, and by the trap if it exits.  A shell option of the
# command (`set -eux`) must neither end the report nor be seen in its output.  In bash, a trap of
# the command is put behind ours; in POSIX mode, and in other shells, no function can be `trap`.
_REPORT = rb"""exec </dev/null
__agent_state() {
  if [ -z "${__agent_told-}" ]; then
    __agent_told=1
    command printf '\000state\000%s\000%s\000' "$PWD" "${BASH_VERSION:+bash}" >&9 || :
    command -p env -0 >&9 || command -p cat /proc/self/environ >&9 || :
    command printf '\000end\000' >&9 || :
  fi
  return "$1"
}
trap '{ __agent_state $?; } 2>/dev/null' EXIT
case "${BASH_VERSION-}:${SHELLOPTS-}" in :*|*posix*) ;; *) eval 'trap() {
  builtin trap "$@" || return
  [ "$BASH_SUBSHELL" -gt 0 ] || {
    __agent_own=$(builtin trap -p EXIT)
    case $__agent_own in *__agent_state*) ;; *)
      eval "set -- ${__agent_own:-"trap -- : EXIT"}"
      builtin trap "{ __agent_state \$?; } 2>/dev/null && :; $3" EXIT ;;
    esac
    unset __agent_own
  } 2>/dev/null
}' ;; esac
"""
_COMMAND = b"__agent_command=%s\n"


@dataclass(frozen=True, slots=True)
class ShellState:
    """What a command leaves to the next one.

    Attributes:
        folder: where the shell stood at the end.
        bash: whether the shell was bash.
        variables: the exported ones.
    """

    folder: bytes
    bash: bool
    variables: Mapping[bytes, bytes]


def script(command: str, folder: bytes | None, variables: Mapping[bytes, bytes | None]) -> bytes:
    """Return the script for a command.

    Args:
        folder: where to run it; None for where the shell starts.
        variables: those to export; None unsets one.
    """
    parts = [_REPORT]
    for name, value in variables.items():
        parts.append(
            b"unset %s\n" % name if value is None else b"export %s=%s\n" % (name, _quoted(value))
        )
    if folder is not None:
        # It may have been meant, or approved, for that folder only.
        gone = b"The folder %s is gone: nothing was run. The next command begins in the workspace."
        instead = b"{ command echo %s; exit 1; }" % _quoted(gone % folder)
        parts.append(b"cd -- %s 2>/dev/null || %s\n" % (_quoted(folder), instead))
    return b"".join([*parts, _COMMAND % _quoted(command.encode(errors="replace"))])


def read_state(report: bytes) -> tuple[ShellState | None, bytes]:
    """Return the last state in a shell's report, and what else was written there."""
    # Values may be secrets: also of a state that was cut off, nothing gets into the output.
    other = _STATE.sub(b"", report).replace(b"\0", b"")
    # The last one: a command can write to the same descriptor, but ours comes at the end.
    begin = report.rfind(_BEGIN)
    end = report.find(_END, begin + 1)
    if begin < 0 or end < 0:
        return None, other
    folder, _, rest = report[begin + len(_BEGIN) : end].partition(b"\0")
    shell, _, environment = rest.partition(b"\0")
    pairs = [one.partition(b"=") for one in environment.split(b"\0") if one]
    variables = {
        name: value
        for name, _, value in pairs
        if _NAME.fullmatch(name) and name.decode() not in _OWN
    }
    return ShellState(folder, shell == b"bash", variables), other


def changes(
    before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]
) -> dict[bytes, bytes | None]:
    """Return the variables that a command changed; None for those that it unset."""
    changed: dict[bytes, bytes | None] = {
        name: value for name, value in after.items() if before.get(name) != value
    }
    # Only what a shell can unset: a name such as that of an exported function is no variable of it.
    unset = [
        one
        for one in before
        if one not in after and _NAME.fullmatch(one) and one.decode() not in _OWN
    ]
    return changed | dict.fromkeys(unset)


def _quoted(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"'\"'\"'") + b"'"
