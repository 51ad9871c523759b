"""Presets: which file tools an agent gets."""

from __future__ import annotations

from agent_runtime.errors import ConfigError

CODING = "coding"
READING = "reading"
MINIMAL = "minimal"
PRESETS: dict[str, tuple[str, ...]] = {
    CODING: ("read_file", "search", "glob", "edit_file", "write_file"),
    READING: ("read_file", "search", "glob"),
    # A shell alone, which is allowed apart from the presets.
    MINIMAL: (),
}
OPTIONAL = ("apply_patch",)
"""Tools that no preset has."""


def tools_of_preset(names: str) -> frozenset[str]:
    """Return the names of the file tools of presets and tools with commas between them.

    Raises:
        ConfigError: there is no such preset or tool.
    """
    known = {*OPTIONAL, *(name for tools in PRESETS.values() for name in tools)}
    wanted: set[str] = set()
    given = [one.strip() for one in names.split(",") if one.strip()]
    for one in given:
        if one not in PRESETS and one not in known:
            raise ConfigError(
                f"There is no preset and no file tool {one!r}.",
                cure=f"The presets are {', '.join(PRESETS)}; the tools {', '.join(sorted(known))}.",
            )
        wanted.update(PRESETS.get(one, (one,)))
    if not given:
        raise ConfigError(
            "No preset of tools is named.", cure=f"The presets are {', '.join(PRESETS)}."
        )
    return frozenset(wanted)
