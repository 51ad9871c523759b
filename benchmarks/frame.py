"""Find, load and print benchmarks; the parts that all benchmarks share.

A benchmark is a module in a room of this package with two functions:

    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(args: argparse.Namespace) -> Report: ...

`args.data` is the folder of recorded runs or None (`data_folder` requires it).  The first line
of the module's docstring is what `python -m benchmarks` lists.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Protocol, cast

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent_runtime.errors import ConfigError

Row = Mapping[str, Any]
"""A flat object: column name to number, text, bool or None."""

PACKAGES = ("agent-runtime-om", "anyio", "apsw", "litellm", "pydantic")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a measurement; memory in bytes."""

    cores: int
    cpu: str
    memory: int
    python: str
    platform: str


@dataclass(frozen=True, slots=True)
class Target:
    """A promised figure, with the measured one."""

    name: str
    value: float | int | str | None
    wanted: str
    met: bool


def machine() -> Machine:
    """Return this machine; its cores are those that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return Machine(
        cores=len(usable(0)) if usable else os.cpu_count() or 1,
        cpu=_cpu(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        platform=platform.platform(),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the installed versions of packages; `source` for one that is not installed."""
    installed: dict[str, str] = {}
    for name in packages:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "source"
    return installed


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a benchmark.

    Attributes:
        rows: the measurements; rows may have different columns, and name their table as `table`.
        targets: the promised figures.
    """

    benchmark: str
    rows: Sequence[Row]
    targets: Sequence[Target] = ()
    machine: Machine = field(default_factory=machine)
    versions: Mapping[str, str] = field(default_factory=versions)

    def to_json(self) -> bytes:
        """Return the report as indented JSON that ends in a newline."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def at_most(name: str, value: float, limit: float, unit: str = "") -> Target:
    """Return the target that a figure does not exceed a limit."""
    return Target(name, value, f"at most {limit:g} {unit}".rstrip(), value <= limit)


def at_least(name: str, value: float, limit: float, unit: str = "") -> Target:
    """Return the target that a figure reaches a limit."""
    return Target(name, value, f"at least {limit:g} {unit}".rstrip(), value >= limit)


def data_folder(args: argparse.Namespace) -> Path:
    """Return the folder given as `--data`.

    Raises:
        ConfigError: none was given, or it is not a folder.
    """
    folder = cast("Path | None", args.data)
    if folder is None:
        raise ConfigError(
            "This benchmark works on recorded runs.", cure="Name their folder: --data DIR."
        )
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.", cure="Name the folder of recorded runs.")
    return folder


class Benchmark(Protocol):
    """The two functions of a benchmark's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the benchmark's own options."""
        ...

    def run(self, args: argparse.Namespace) -> Report:
        """Measure.  Blocks until it is done."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A benchmark that can be run.

    Attributes:
        module: its full name.
        summary: the first line of its docstring.
    """

    module: str
    summary: str

    @property
    def room(self) -> str:
        """The folder of its module."""
        return self.module.split(".")[1]


def benchmarks() -> dict[str, Entry]:
    """Return the benchmarks by name (the module's name below its room), ordered by room.

    The modules are parsed and not imported: some need packages that others do not.
    """
    top = Path(__file__).parent
    known: dict[str, Entry] = {}
    for path in sorted(top.glob("*/**/*.py")):
        tree = ast.parse(path.read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if {"add_arguments", "run"} <= functions:
            parts = path.relative_to(top).with_suffix("").parts
            summary = (ast.get_docstring(tree) or "").partition("\n")[0]
            name = ".".join(parts[1:])
            if name in known:
                raise ConfigError(f"Two benchmarks are called {name}.", cure="Rename one.")
            known[name] = Entry(".".join((top.name, *parts)), summary)
    return dict(sorted(known.items(), key=lambda item: (item[1].room, item[0])))


def load(name: str) -> Benchmark:
    """Import a benchmark.

    Raises:
        ConfigError: there is no benchmark of this name.
    """
    known = benchmarks()
    if name not in known:
        raise ConfigError(
            f"There is no benchmark {name!r}.", cure=f"There are: {', '.join(known)}."
        )
    return cast("Benchmark", import_module(known[name].module))


def show(report: Report, console: Console) -> None:
    """Print a report for people."""
    on = report.machine
    console.print(
        f"{report.benchmark}: {on.cores} cores ({on.cpu}), {on.memory / 2**30:.1f} GiB, "
        f"Python {on.python}, {on.platform}",
        highlight=False,
    )
    for name in dict.fromkeys(row.get("table") for row in report.rows):
        shown = [
            {column: value for column, value in row.items() if column != "table"}
            for row in report.rows
            if row.get("table") == name
        ]
        if name is not None:
            console.print(name, highlight=False)
        console.print(_table(shown))
    if report.targets:
        console.print(_table([asdict(target) for target in report.targets]))


def _table(rows: Sequence[Row]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table()
    for name in columns:
        numbers = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    return table


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.4g}"
        case _:
            return escape(str(value))
