"""A program `docker`, and a server behind it that runs "containers" as processes of this machine.

It takes the options that the sandbox gives, as Docker does, and refuses others.  Containers are
processes of the server, as Docker's are: ending the program does not end them.  Nothing is
confined.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    try:
        server.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    except OSError:
        sys.exit("Cannot connect to the Docker daemon. Is the docker daemon running?")
    given = sys.stdin.read() if "--interactive" in sys.argv else ""
    server.sendall(json.dumps([sys.argv[1:], dict(os.environ), given]).encode() + b"\\n")
    with server.makefile("rb") as answer:
        for line in answer:
            kind, value = json.loads(line)
            if kind == "exit":
                sys.exit(value)
            os.write(1 if kind == "out" else 2, value.encode())
sys.exit(125)
"""
FLAGS = {"--rm", "--init", "--read-only", "--interactive"}
VALUES = {
    "--pull", "--name", "--network", "--tmpfs", "--cap-drop", "--security-opt", "--pids-limit",
    "--log-driver", "--user", "--mount", "--workdir", "--env", "--entrypoint",
}  # fmt: skip


@dataclass
class DockerDouble:
    """The server.

    Attributes:
        images: those that are on this machine.
        runs: the options of each container, by the option's name, and its command.
        running: the processes of containers, by name.
    """

    socket: Path
    images: set[str]
    runs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    running: dict[str, subprocess.Popen[str]] = field(
        default_factory=dict[str, "subprocess.Popen[str]"]
    )
    rootless: bool = False

    def answer(self, client: socket.socket) -> None:
        """Answer one command of the program."""
        with client, client.makefile("rwb", buffering=0) as stream:

            def say(kind: str, value: Any) -> None:
                # The program may have been killed.
                with suppress(BrokenPipeError, ConnectionResetError):
                    stream.write(json.dumps([kind, value]).encode() + b"\n")

            arguments, environment, given = json.loads(stream.readline())
            try:
                say("exit", self.run_command(arguments, environment, say, given))
            except ValueError as error:
                say("err", f"docker: {error}\n")
                say("exit", 125)

    def run_command(
        self, arguments: list[str], environment: dict[str, str], say: Any, given: str = ""
    ) -> int:
        """Do what a command line says; return its exit code."""
        match arguments:
            case ["image", "inspect", "--format", "ok", image]:
                if image not in self.images:
                    say("err", f"Error response from daemon: No such image: {image}\n")
                    return 1
                say("out", "ok\n")
                return 0
            case ["info", "--format", "{{.SecurityOptions}}"]:
                say(
                    "out",
                    "[name=seccomp,profile=builtin name=rootless]\n" if self.rootless else "[]",
                )
                return 0
            case ["rm", "--force", name]:
                if name not in self.running:
                    say("err", f"Error response from daemon: No such container: {name}\n")
                    return 1
                os.killpg(self.running[name].pid, signal.SIGKILL)
                return 0
            case ["run", *rest]:
                return self.start(self.parsed(rest, environment), say, given)
            case _:
                raise ValueError(f"unknown command: {arguments}")

    def parsed(self, rest: list[str], environment: dict[str, str]) -> dict[str, Any]:
        """Return the options of `docker run`, the image and the command."""
        options: dict[str, Any] = {"--mount": [], "--env": {}}
        while rest and rest[0].startswith("-"):
            name = rest.pop(0)
            if name in FLAGS:
                options[name] = True
            elif name not in VALUES:
                raise ValueError(f"unknown flag: {name}")
            elif name == "--mount":
                options[name].append(next(csv.reader([rest.pop(0)], strict=True)))
            elif name == "--env":
                variable, equals, value = rest.pop(0).partition("=")
                if equals or variable in environment:
                    options[name][variable] = value if equals else environment[variable]
            else:
                options[name] = rest.pop(0)
        return {**options, "image": rest[0], "command": rest[1:]}

    def start(self, options: dict[str, Any], say: Any, given: str) -> int:
        """Run a container to its end; return its exit code."""
        self.runs.append(options)
        if options["image"] not in self.images:
            raise ValueError(f"No such image: {options['image']}")
        process = self.running[options["--name"]] = subprocess.Popen(
            [options["--entrypoint"], *options["command"]],
            cwd=options["--workdir"],
            env={"PATH": os.defpath, **options["--env"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdin and process.stdout and process.stderr
        with process.stdin:
            process.stdin.write(given)
        errors = threading.Thread(target=self.pass_on, args=(process.stderr, "err", say))
        errors.start()
        self.pass_on(process.stdout, "out", say)
        errors.join()
        code = process.wait()
        del self.running[options["--name"]]
        return code if code >= 0 else 128 - code

    def pass_on(self, stream: IO[str], kind: str, say: Any) -> None:
        """Send what a container writes to the program."""
        with stream:
            for line in stream:
                say(kind, line)


@contextmanager
def docker_double(folder: Path, *images: str) -> Generator[DockerDouble]:
    """Install the program in `folder/bin`, and serve it; containers that are left are killed."""
    place = folder / "bin"
    place.mkdir()
    program = place / "docker"
    program.write_text(CLIENT.format(python=os.path.realpath(sys.executable)))
    program.chmod(0o755)
    double = DockerDouble(folder / "socket", set(images))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(double.socket))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=double.answer, args=(client,), daemon=True).start()

        accepting = threading.Thread(target=serve)
        accepting.start()
        try:
            yield double
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for process in list(double.running.values()):
                os.killpg(process.pid, signal.SIGKILL)
