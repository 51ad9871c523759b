"""The command line and reports shared by all benchmarks."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from agent_runtime.errors import ConfigError
from benchmarks.__main__ import main
from benchmarks.frame import Report, at_least, at_most, benchmarks, data_folder, show


def test_without_a_name_the_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    listed = capsys.readouterr().out
    for name, one in benchmarks().items():
        assert f"  {name} " in listed and one.summary in listed
    assert benchmarks()["chaos"].room == "proof"
    assert "\nproof:\n  attacks " in listed


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no_such_thing"]) == 1

    assert "chaos" in capsys.readouterr().err


def test_a_report_is_json_and_a_table() -> None:
    rows = [{"name": "[a]", "seconds": 1.25}, {"name": "b", "found": True}]
    report = Report("probe", rows, [at_most("seconds", 1.25, 1, "s"), at_least("rows", 2, 2)])
    text = io.StringIO()

    show(report, Console(file=text, width=120))
    data = json.loads(report.to_json())

    assert data["rows"] == rows
    assert [(target["wanted"], target["met"]) for target in data["targets"]] == [
        ("at most 1 s", False),
        ("at least 2", True),
    ]
    assert data["machine"]["cores"] >= 1 and data["machine"]["memory"] > 2**20
    assert "agent-runtime-om" in data["versions"]
    assert all(cell in text.getvalue() for cell in ("[a]", "1.25", "yes", "no"))


@pytest.mark.parametrize("folder", [None, Path("no/such/folder")])
def test_a_benchmark_of_recorded_runs_requires_their_folder(folder: Path | None) -> None:
    with pytest.raises(ConfigError):
        data_folder(argparse.Namespace(data=folder))


def test_rows_that_name_a_table_are_shown_in_it() -> None:
    rows = [{"table": "first", "a": 1}, {"table": "second", "b": 2}, {"table": "first", "a": 3}]
    text = io.StringIO()

    show(Report("probe", rows), Console(file=text, width=60))

    first, _, second = text.getvalue().partition("second\n")
    assert "first\n" in first and "a" in first and "3" in first
    assert "b" in second and "table" not in second and "a" not in second
