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
from agent_runtime_config.settings import Settings

BEGIN = "<!-- settings:begin -->\n"
END = "<!-- settings:end -->"

SUBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "The model",
        (
            "model",
            "context_window",
            "response_reserve",
            "max_output_tokens",
            "repeat_system_prompt",
            "first_byte_timeout",
            "idle_timeout",
            "price_",
            "forbid_real_models",
        ),
    ),
    ("Where state is kept", ("database_", "object_store_url", "synchronous", "user")),
    (
        "Limits",
        (
            "max_steps",
            "max_message_chars",
            "max_inbox_messages",
            "max_user_inbox_messages",
            "run_timeout",
            "budget_",
            "thread_budget_",
            "day_budget_",
            "unknown_price",
            "loop_limit",
            "plan_stall_limit",
        ),
    ),
    (
        "Tools and files",
        (
            "tools",
            "tool_",
            "max_result_tokens",
            "max_file_bytes",
            "protected_paths",
            "hidden_paths",
            "project_instructions",
            "instructions_file",
            "skills",
            "sandbox",
            "allow_web",
            "web_",
            "command_environment",
        ),
    ),
    ("People and plans", ("approve", "answer_timeout", "plan_phases")),
    ("Sub-agents", ("sub_agent_", "delegation_", "background_")),
    (
        "Memory",
        (
            "last_messages",
            "timezone",
            "observational_memory",
            "observer_",
            "reflector_",
            "constraint_share",
            "activat",
            "node_memory_",
        ),
    ),
    ("Semantic recall", ("embedder_", "semantic_recall_")),
    ("Everything else", ()),
)
"""The subjects, with what the names of their settings begin with; the last takes the rest."""


def subjects() -> dict[str, list[str]]:
    """Return the names of the settings by subject; a setting is under the first that fits."""
    found: dict[str, list[str]] = {title: [] for title, _ in SUBJECTS}
    own = Settings.__annotations__
    # Those that exist for each role come last.
    for field in sorted(Settings.model_fields, key=lambda one: one not in own):
        fitting = (title for title, prefixes in SUBJECTS if field.startswith(prefixes))
        found[next(fitting, SUBJECTS[-1][0])].append(field)
    return {title: fields for title, fields in found.items() if fields}


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
