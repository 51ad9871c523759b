"""Options that several commands have."""

from __future__ import annotations

import click

json_lines_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
json_object_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on stdout."
)
