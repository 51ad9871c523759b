"""The sandbox `docker:IMAGE`: a container for each command, by the program `docker`."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent_runtime.errors import ConfigError
from agent_runtime.tools.workspace.sandbox.base import (
    HOME,
    Launch,
    Sandbox,
    check_folder,
    find_program,
    folders_above,
    state_within,
    try_program,
)
from agent_runtime.tools.workspace.supervisor import remove

INSTALL = "Install Docker, or use `bwrap`."
# Processes of a command; a fork bomb ends there.
MOST_PROCESSES = 4096
_CONTAINER = re.compile(r"agent-command-[0-9a-f]{32}")
_CLIENT = (
    "PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_API_VERSION", "DOCKER_CERT_PATH", "DOCKER_CONFIG",
    "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY",
)  # fmt: skip
"""Variables that the program `docker` needs to find its server."""


@dataclass(frozen=True, slots=True)
class Docker(Sandbox):
    """Commands in a new container of an image, which has to be on this machine.

    Attributes:
        image: it must have `/bin/sh`.
    """

    image: str = ""

    @property
    def name(self) -> str:
        return f"docker:{self.image}"

    @property
    def sees_system(self) -> bool:
        return False

    def check(self, folder: Path) -> None:
        check_folder(folder)
        program = find_program("docker", folder, INSTALL)
        works, said = try_program([program, "image", "inspect", "--format", "ok", self.image])
        if works:
            return
        if "no such image" in said.lower():
            cure = f"Get it by `docker pull {self.image}`, or name another image."
            raise ConfigError(f"The image {self.image} is not on this machine.", cure=cure)
        last = said.splitlines()[-1] if said else "no reason was given"
        raise ConfigError(
            f"The sandbox `{self.name}` cannot be used: {last}",
            cure="Start Docker, and see that `docker info` works for this user.",
        )

    def launch(self, folder: Path, environment: Mapping[str, str]) -> Launch:
        program = find_program("docker", folder, INSTALL)
        container = f"agent-command-{uuid.uuid4().hex}"
        prefix = [
            program, "run", "--rm", "--interactive", "--init", "--pull", "never",
            "--name", container,
            "--network", "bridge" if self.network else "none",
            "--read-only", "--tmpfs", "/tmp:exec,mode=1777",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--pids-limit", str(MOST_PROCESSES),
            # The server would keep a copy of the output.
            "--log-driver", "none",
            *_user(program),
            *(word for one in self.read for word in _mount(one, one, readonly=True)),
            *_mount(folder, folder),
            *_hidden(folder, self.read),
            "--workdir", str(folder),
            "--env", f"HOME={HOME}",
            # Names only: everybody on this machine can read the arguments of a program.
            *(word for name in environment for word in ("--env", name)),
            "--entrypoint", "/bin/sh", self.image,
        ]  # fmt: skip
        client = {name: os.environ[name] for name in _CLIENT if name in os.environ}
        seen = {**environment, "HOME": HOME}
        return Launch({**client, **environment}, tuple(prefix), container, seen)


def remove_container(container: str, folder: Path) -> list[str]:
    """Remove the container of a command in a folder; return its name if that fails; blocks."""
    # It comes from a file, and might be taken for an option, or be another container.
    if not _CONTAINER.fullmatch(container):
        return []
    try:
        return remove(find_program("docker", folder, INSTALL), container)
    except ConfigError:
        return [f"container {container}"]


def _user(program: str) -> tuple[str, ...]:
    """Run as this user, so that the files which commands create are this user's."""
    # There the container's root is this user already, and other ids are nobody's.
    return () if _is_rootless(program) else ("--user", f"{os.getuid()}:{os.getgid()}")


@cache
def _is_rootless(program: str) -> bool:
    works, said = try_program([program, "info", "--format", "{{.SecurityOptions}}"])
    return works and "name=rootless" in said


def _mount(source: Path | None, target: Path, *, readonly: bool = False) -> Iterator[str]:
    """Mount a file or a folder; without a source, a new folder."""
    fields = ["type=tmpfs"] if source is None else ["type=bind", f"source={source}"]
    fields += [f"target={target}", *(["readonly"] if readonly else [])]
    # Docker reads this as a line of CSV; a path may have commas and quotes.
    yield from ("--mount", ",".join('"' + one.replace('"', '""') + '"' for one in fields))


def _hidden(folder: Path, read: Sequence[Path]) -> Iterator[str]:
    folders, files = state_within((folder, *read))
    for one in folders_above(folder, (*folders, *files)):
        yield from _mount(one, one)
    for one in folders:
        yield from _mount(None, one)
    for one in files:
        yield from _mount(Path(os.devnull), one, readonly=True)
