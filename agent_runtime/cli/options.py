"""Options and questions that several commands share."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import click

from agent_runtime.cli import terminal

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Positive(click.FloatRange):
    """A number greater than 0, and not NaN."""

    def __init__(self, most: float) -> None:
        super().__init__(min=0, min_open=True, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        # A range lets NaN pass, since every comparison with it is false.
        return self.fail("it is not a number.", param, ctx) if math.isnan(number) else number


json_lines_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
json_object_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on stdout."
)

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


class Age(click.ParamType[float]):
    """A time span such as `30d`, in seconds."""

    name = "age"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not an age. Write 30d, 12h or 2w.", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


age_option = click.option(
    "--older-than",
    "age",
    type=Age(),
    required=True,
    help="How long unused, such as 30d, 12h or 2w.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only list them.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless `yes` is given; end the command if the answer is no.

    Raises:
        click.UsageError: there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on: give --yes.")
    terminal.confirm(question)
