"""Options that several commands have."""

from __future__ import annotations

import math
from typing import Any

import click

from agent_runtime_config.limits import MAX_DOLLARS, MAX_SECONDS


class Positive(click.FloatRange):
    """A number more than 0 that is one."""

    def __init__(self, most: float) -> None:
        super().__init__(min=0, min_open=True, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail("it is no number.", param, ctx) if math.isnan(number) else number


json_lines_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
json_object_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on stdout."
)

budget_option = click.option(
    "--budget-usd",
    type=Positive(MAX_DOLLARS),
    help="The most dollars that the run and its sub-agents may cost in all.",
)
timeout_option = click.option(
    "--timeout",
    type=Positive(MAX_SECONDS),
    help="The most seconds that the run may take; else the setting, no limit.",
)
