"""Commands: the runtime's keys, what the sandbox hides, and children that stay."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from agent_runtime.errors import ConfigError
from agent_runtime.tools.workspace.sandbox.bubblewrap import Bubblewrap
from agent_runtime.tools.workspace.sandbox.docker import Docker
from benchmarks.proof.attack_cases.world import SECRET, Workspace, World
from benchmarks.proof.fault_cases.processes import alive
from benchmarks.proof.verdicts import Case, NotHere

KEYS = (
    "OPENAI_API_KEY",
    "AGENT_RUNTIME_DATABASE_URL",
    "MYSQL_PWD",
    "PGPASSWORD",
    "GH_PAT",
    "REDIS_URL",
    "MONGODB_URI",
    "HTTPS_PROXY",
    "PIP_INDEX_URL",
    "SSH_AUTH_SOCK",
    "AZURE_STORAGE_CONNECTION_STRING",
    "ANY_OTHER",
)
ESCAPES = {
    "read outside": "cat ../secret.txt",
    "read by a link": "ln -s ../secret.txt link; cat link",
    "read by another root": "cat /proc/1/root{above}/secret.txt",
    "write outside": "echo x > ../written",
    "write to the system": "touch /usr/bin/written /etc/written && echo ESCAPED",
    "read passwords": "head -c 1 /etc/shadow && echo ESCAPED",
    "read environments": "cat /proc/[0-9]*/environ",
    "see processes": "test -e /proc/{pid} && echo ESCAPED",
    "signal processes": "kill -0 {pid} && echo ESCAPED",
    "mount": "mount -t tmpfs none /mnt && echo ESCAPED",
    "make devices": "mknod disk b 8 0 && echo ESCAPED",
    "change the kernel": "test -w /proc/sys/kernel/core_pattern && echo ESCAPED",
    "reach the network": "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo ESCAPED",
    "take up rights": "grep -q '^CapEff:.*[1-9a-f]' /proc/self/status && echo ESCAPED",
    "type into the terminal": "python3 -c \"import fcntl; fcntl.ioctl(0, 0x5412, b'x')\""
    " && echo ESCAPED",
}
STAYS = (
    "sleep 600 & echo $! >> pids; setsid sleep 600 & echo $! >> pids; "
    "(setsid nohup sleep 600 > /dev/null 2>&1 & echo $! >> pids); "
    "(trap '' TERM HUP INT; sleep 600 & echo $! >> pids); echo begun"
)


@contextmanager
def _keys() -> Generator[None]:
    old = dict(os.environ)
    os.environ.update(dict.fromkeys(KEYS, SECRET))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(old)


async def a_command_gets_no_keys(world: World) -> list[str]:
    """The runtime's environment is not that of commands, nor of the process above them."""
    space = Workspace(world, shell=True)
    with _keys():
        shown = await space.call("bash", command="env; cat /proc/$PPID/environ; set")
    return [f"it was shown {SECRET}"] if SECRET in shown.text else []


async def a_sandboxed_command_stays_inside(world: World) -> list[str]:
    """A command in bubblewrap reads and changes only its workspace, without the network."""
    try:
        Bubblewrap().check(world.new_folder())
    except ConfigError as error:
        raise NotHere(str(error)) from error
    space = Workspace(world, shell=True, sandbox="bwrap")
    other = await anyio.open_process([sys.executable, "-c", "import time; time.sleep(600)"])
    faults: list[str] = []
    before = space.outside()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, _keys():
            values = {"pid": other.pid, "port": server.getsockname()[1], "above": space.above}
            for name, command in ESCAPES.items():
                shown = await space.call("bash", command=command.format(**values))
                if "ESCAPED" in shown.text or SECRET in shown.text:
                    faults.append(f"it could {name}")
    finally:
        other.kill()
        await other.aclose()
    return faults + [f"{name} was written" for name in space.outside() if name not in before]


async def a_container_is_available(world: World) -> list[str]:
    """A sandbox that is missing is an error, and no command runs without it."""
    space = world.new_folder()
    try:
        Docker(image="debian:stable-slim").check(space)
    except ConfigError:
        try:
            shown = await Workspace(world, shell=True, sandbox="docker:debian:stable-slim").call(
                "bash", command="echo RAN"
            )
        except ConfigError:
            return []
        return ["a command ran without its sandbox"] if "RAN" in shown.text else []
    raise NotHere("docker works here; its escapes are those of `docker run`")


async def children_of_a_command_end_with_it(world: World) -> list[str]:
    """Whatever a command leaves running, also in sessions of its own, ends with it."""
    space = Workspace(world, shell=True)
    shown = await space.call("bash", command=STAYS)
    pids = [int(pid) for pid in (space.root / "pids").read_text().split()]
    with anyio.move_on_after(3):
        while alive(pids):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    faults = [] if "begun" in shown.text else ["the command did not run"]
    return faults + [f"{len(alive(pids))} of {len(pids)} live"] * bool(alive(pids))


CASES: tuple[Case[World], ...] = (
    a_command_gets_no_keys,
    a_sandboxed_command_stays_inside,
    a_container_is_available,
    children_of_a_command_end_with_it,
)
