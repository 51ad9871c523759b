"""`python -m docs.generate [--check]`: write the generated parts of all pages, or compare them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

from docs.generate import api, command_line, errors, events, measured
from docs.generate.page import PAGES, replaced

GENERATED: Mapping[str, Callable[[], str]] = {
    "reference/command-line.md": command_line.page,
    "reference/errors.md": errors.page,
    "reference/events.md": events.page,
    "reference/api/agents.md": lambda: api.page("agents"),
    "reference/api/runtime.md": lambda: api.page("runtime"),
    "reference/api/tools.md": lambda: api.page("tools"),
    "reference/api/memory.md": lambda: api.page("memory"),
    "reference/api/models.md": api.models_page,
    "reference/api/workflows.md": lambda: api.page("workflows"),
    "reference/api/storage.md": api.storage_page,
    "reference/api/config.md": api.config_page,
    "measured.md": measured.page,
    "../README.md": measured.readme,
}
"""What stands between the marks of each page."""


def main(arguments: list[str] | None = None) -> int:
    """Write or compare all pages; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    options = parser.parse_args(arguments)
    api.check_complete()
    stale = 0
    for name, generate in GENERATED.items():
        path = PAGES / name
        current = path.read_text(encoding="utf-8")
        wanted = replaced(current, generate(), name)
        if current == wanted:
            continue
        stale += 1
        if options.check:
            print(f"{name} is out of date: run python -m docs.generate", file=sys.stderr)
        else:
            path.write_text(wanted, encoding="utf-8")
            print(f"wrote {name}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
