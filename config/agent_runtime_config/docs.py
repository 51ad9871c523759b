"""`python -m agent_runtime_config.docs docs/settings.md`: write the tables of settings into a file.

They go between the lines `<!-- settings:begin -->` and `<!-- settings:end -->`, one for each
subject.  With `--check` the file is left alone, and the exit code is 1 if they are out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agent_runtime_config.describe import settings_table
from agent_runtime_config.errors import ConfigError
from agent_runtime_config.subjects import subjects

BEGIN = "<!-- settings:begin -->\n"
END = "<!-- settings:end -->"


def settings_sections() -> str:
    """Return a heading and a Markdown table for each subject."""
    return "".join(
        f"\n## {title}\n\n{settings_table(fields)}" for title, fields in subjects().items()
    )


def with_table(text: str) -> str:
    """Return the text with the current table between its two marks.

    Raises:
        ConfigError: a mark is missing, or the marks are in the wrong order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(
            "The file has no place for the tables of settings.",
            cure=f"Add the lines {BEGIN.strip()} and {END}, in this order.",
        )
    return f"{before}{BEGIN}{settings_sections()}\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Update or check one file; return the exit code."""
    parser = argparse.ArgumentParser(prog="agent_runtime_config.docs", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    options = parser.parse_args(arguments)
    try:
        current = options.file.read_text(encoding="utf-8")
        wanted = with_table(current)
    except (ConfigError, OSError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    if current == wanted:
        return 0
    if options.check:
        print(f"{options.file}: the tables of settings are out of date.", file=sys.stderr)
        return 1
    options.file.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
