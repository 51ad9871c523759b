"""Find words to avoid in plain English: `python -m tests.words`.

The list holds idioms that once filled this project and made native readers stumble. Code, comments,
docstrings, messages and documents are searched alike. Mark a line with `plain: ok` if its word has
to stay, such as one inside data that others wrote.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEARCHED = (
    "agent_runtime",
    "storage",
    "config",
    "benchmarks",
    "tests",
    "docs",
    "examples",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
# English words as data: published figures depend on these prompts; and verbs that users write.
EXEMPT = {
    # The list itself.
    "tests/words.py",
    "benchmarks/memory/judge.py",
    "benchmarks/memory/measure.py",
    "agent_runtime/memory/observational/language/tables/en.py",
    "storage/agent_runtime_storage/search/query_expansion.py",
}
SUFFIXES = {".py", ".sql", ".md", ".toml", ".yml"}

# The first column is a pattern, the second says what to write instead.
BANNED = {
    r"told|untold": "say who says what, or use `shown`, `reported`, `sent`",
    r"besides?": "next to, with, except, also",
    r"anew": "again",
    r"so (many|much)": "give the number's name",
    r"(go|goes|going|gone|went) on with": "resume, continue",
    r"what is not|what is no (?!longer)": "name the thing",
    r"com(e|es|ing) to nothing": "fails",
    r"in the place of": "instead of",
    r"(came|comes) of": "the outcome of",
    r"whether nobody|as nobody": "say who does",
    r"looks? after": "manage, maintain",
    r"thereby|therein|thereof|whereby|wherein": "use two sentences",
}
_PATTERN = re.compile(
    r"(?<![\w-])(?:" + "|".join(f"(?:{one})" for one in BANNED) + r")(?![\w-])", re.IGNORECASE
)


def files() -> list[Path]:
    """Return the files to search, in order."""
    paths: list[Path] = []
    for name in SEARCHED:
        place = ROOT / name
        if place.is_file():
            paths.append(place)
        paths += (path for path in place.rglob("*") if path.suffix in SUFFIXES)
    # Migrations never change: databases hold their checksums.
    return sorted(
        path
        for path in paths
        if path.parent.name != "migrations" and str(path.relative_to(ROOT)) not in EXEMPT
    )


def findings(path: Path) -> list[str]:
    """Return each banned word of a file as `path:line: word`."""
    matches: list[str] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if "plain: ok" in line:
            continue
        matches += (
            f"{path.relative_to(ROOT)}:{number}: {match[0]}" for match in _PATTERN.finditer(line)
        )
    return matches


def main() -> int:
    """Print the banned words; return 1 if there are any."""
    words = [word for path in files() for word in findings(path)]
    print("\n".join(words) or "No banned words.")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
