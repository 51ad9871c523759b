"""`agent-runtime config`: the settings, without secrets."""

from __future__ import annotations

import click

from agent_runtime.cli.terminal import write_json, write_output, write_row


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array, with the meanings.")
@click.option("--explain", is_flag=True, help="Add what each setting means.")
def config(as_json: bool, explain: bool) -> None:
    """Show the settings, their values and their origin."""
    import dataclasses

    from agent_runtime_config import describe_settings, load_settings

    rows = describe_settings(load_settings())
    if as_json:
        write_json([dataclasses.asdict(row) for row in rows])
        return
    names = max(len(row.variable) for row in rows)
    values = max(len(row.value) for row in rows)
    for row in rows:
        write_row(f"{row.variable:<{names}}  {row.value:<{values}}  {row.origin}")
        if explain:
            write_output(click.wrap_text(row.meaning, 96, "    ", "    "))
