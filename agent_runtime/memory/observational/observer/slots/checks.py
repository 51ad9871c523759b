"""Recognise checks: commands that test, build or lint, under a name that stays the same.

The name is the command without what does not change its outcome: folders it begins in, variables,
options of the output, pipes.  `python -m pytest -q tests 2>&1 | tail` is `pytest tests`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.memory.observational.observer.slots.shell import commands
from agent_runtime.prompt.text import shorten

Family = Literal["test", "build", "script"]
"""What says the outcome: a summary of tests; errors, or nothing; or an exit code alone."""

NAME_CHARS = 160
"""Characters of a check's name."""
MOST_WORDS = 200
"""Words of a command that are read."""

_ANY = frozenset[str]()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TEST: Mapping[str, frozenset[str]] = {
    "pytest": _ANY,
    "py.test": _ANY,
    "unittest": _ANY,
    "nose2": _ANY,
    "nosetests": _ANY,
    "tox": _ANY,
    "nox": _ANY,
    "jest": _ANY,
    "vitest": _ANY,
    "mocha": _ANY,
    "ava": _ANY,
    "karma": _ANY,
    "tap": _ANY,
    "playwright": _words("test"),
    "cypress": _words("run"),
    "go": _words("test"),
    "gotestsum": _ANY,
    "ginkgo": _ANY,
    "cargo": _words("test nextest t"),
    "mvn": _words("test verify install package integration-test"),
    "mvnw": _words("test verify install package integration-test"),
    "gradle": _words("test check build connectedCheck"),
    "gradlew": _words("test check build connectedCheck"),
    "rspec": _ANY,
    "minitest": _ANY,
    "rake": _words("test spec"),
    "rails": _words("test spec"),
    "phpunit": _ANY,
    "pest": _ANY,
    "dotnet": _words("test"),
    "ctest": _ANY,
    "bats": _ANY,
    "swift": _words("test"),
    "xcodebuild": _words("test"),
    "mix": _words("test"),
    "sbt": _words("test"),
    "bazel": _words("test"),
    "deno": _words("test"),
    "bun": _words("test"),
    "flutter": _words("test"),
    "dart": _words("test"),
    "zig": _words("test"),
}
_BUILD: Mapping[str, frozenset[str]] = {
    "make": _ANY,
    "ninja": _ANY,
    "cmake": _words("--build"),
    "meson": _words("compile test"),
    "go": _words("build vet"),
    "cargo": _words("build check clippy fmt doc b c"),
    "mvn": _words("compile"),
    "mvnw": _words("compile"),
    "gradle": _words("assemble compileJava lint"),
    "gradlew": _words("assemble compileJava lint"),
    "dotnet": _words("build format"),
    "swift": _words("build"),
    "xcodebuild": _words("build"),
    "mix": _words("compile credo dialyzer"),
    "sbt": _words("compile"),
    "bazel": _words("build"),
    "deno": _words("check lint"),
    "bun": _words("build"),
    "tsc": _ANY,
    "vue-tsc": _ANY,
    "eslint": _ANY,
    "biome": _words("check lint ci"),
    "prettier": _words("--check -c"),
    "stylelint": _ANY,
    "ruff": _words("check"),
    "mypy": _ANY,
    "pyright": _ANY,
    "basedpyright": _ANY,
    "ty": _words("check"),
    "pylint": _ANY,
    "flake8": _ANY,
    "black": _words("--check"),
    "isort": _words("--check --check-only"),
    "pre-commit": _words("run"),
    "golangci-lint": _words("run"),
    "staticcheck": _ANY,
    "shellcheck": _ANY,
    "rubocop": _ANY,
    "phpstan": _ANY,
    "psalm": _ANY,
    "clang-tidy": _ANY,
    "javac": _ANY,
    "gcc": _ANY,
    "g++": _ANY,
    "clang": _ANY,
    "rustc": _ANY,
    "hadolint": _ANY,
    "py_compile": _ANY,
    "webpack": _ANY,
    "vite": _words("build"),
    "next": _words("build lint"),
    "terraform": _words("validate plan"),
}
# They run a task by its name, as `npm run lint` does.
_TASKS = _words(
    "npm yarn pnpm bun mise just task invoke inv hatch pdm poe rake grunt gulp nx turbo"
)
_TASK = re.compile(
    r"(?:^|[:_.-])(?:tests?|spec|specs|unit|e2e|integration|lint\w*|build|check\w*|tsc|typecheck|types?|"
    r"compile|verify|ci|coverage|vet|fmt:check|format:check)(?:$|[:_.-])"
)
# What stands before the command that counts.
_WRAPPERS = _words(
    "do then else sudo time env nice nohup command exec xvfb-run npx bunx stdbuf unbuffer"
)
_RUNNERS = _words(
    "poetry uv pipenv hatch pdm rye bundle pnpm yarn npm conda coverage mise docker-compose"
)
_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|node|ruby|perl|php|bash|sh|zsh|deno|ts-node|tsx")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_TEST_FILE = re.compile(
    r"(?:^|[/_.-])(?:tests?|runtests|run_tests|spec|check|verify)(?:$|[/_.-])", re.IGNORECASE
)
_SCRIPT = re.compile(r"\.(?:py|js|ts|mjs|cjs|rb|sh|pl|php)$")
# Options that change what is shown, not what is checked.
_SHOWN = re.compile(
    r"-+(?:[vqsxl]+|[vqsxl]*v[vqsxl]*|ra|rA|tb=\S*|tb|no-header|no-summary|color\S*|no-color|verbose|quiet|"
    r"silent|count=\d+|maxfail\S*|exitfirst|lf|ff|nocapture|no-coverage|coverage|no-cov|cov\S*|reporter\S*|"
    r"durations\S*|parallel\S*|n|nauto|j\d*|p|race|failfast|fail-fast|watch\S*|ci|bail|timeout\S*|"
    r"showlocals|capture\S*|verbosity\S*|output-format\S*|format\S*|pretty|fix|json|stats)"
)
# Of these the next word is the value.
_VALUED = _words("-n --tb --timeout --maxfail -j -p --reporter --color -W -o --cov --verbosity")


@dataclass(frozen=True, slots=True)
class Check:
    """A check that a script runs.

    Attributes:
        piped: whether its output is filtered, so that the exit code is another program's.
        alone: whether no other command can be the reason for the exit code.
    """

    name: str
    family: Family
    piped: bool = False
    alone: bool = True


def checks_of(script: str) -> list[Check]:
    """Return the checks that a script runs, in order, each once."""
    found: dict[str, Check] = {}
    folder = ""
    known = list(commands(script))
    for place, command in enumerate(known):
        if command.words[:1] == ["cd"]:
            folder = command.words[1] if len(command.words) > 1 else ""
            continue
        if (named := _check(command.words[:MOST_WORDS])) is None:
            continue
        name, family = named
        # Without a path, what is checked depends on the folder.
        if folder and not any("/" in word or "." in word for word in name.split()[1:]):
            name = f"{name} (in {folder})"
        after = known[place + 1 :]
        piped = bool(after) and after[0].before in ("|", "|&")
        alone = all(one.before in ("|", "|&", "&&") for one in after) or not after
        name = shorten(name, NAME_CHARS)
        # Of equal ones the last, whose exit code may be the script's.
        found[name] = Check(name, family, piped, alone)
    return list(found.values())


def _check(words: Sequence[str]) -> tuple[str, Family] | None:
    """Return the name and the family of a command; None if it checks nothing."""
    rest = _unwrapped(words)
    if not rest or "--version" in rest or "--help" in rest or "-h" in rest:
        return None
    program = rest[0].rsplit("/", 1)[-1]
    arguments = list(rest[1:])
    if _INTERPRETERS.fullmatch(program):
        return _interpreted(program, arguments)
    tables: tuple[tuple[Family, Mapping[str, frozenset[str]]], ...]
    tables = (("test", _TEST), ("build", _BUILD))
    for family, table in tables:
        needed = table.get(program)
        if needed is not None and (not needed or needed & set(arguments)):
            return _named(program, arguments), family
    if program in _TASKS:
        return _task(program, arguments)
    if _TEST_FILE.search(program.removesuffix(".sh")) and (
        "/" in rest[0] or _SCRIPT.search(program)
    ):
        return _named(program, arguments), "script"
    return None


def _unwrapped(words: Sequence[str]) -> list[str]:
    rest = list(words)
    while rest:
        first = rest[0].rsplit("/", 1)[-1]
        if _ASSIGNED.match(rest[0]) or first in _WRAPPERS or first in ("(", "{", "!"):
            rest = rest[1:]
            # Their own options, such as `env -i`; `npx --yes`.
            while rest and first in _WRAPPERS and rest[0].startswith("-"):
                rest = rest[1:]
        elif first == "timeout":
            rest = rest[1:]
            while rest and (rest[0].startswith("-") or rest[0][:1].isdigit()):
                rest = rest[1:]
        elif first in _RUNNERS and len(rest) > 1 and rest[1] in ("run", "exec", "x", "dlx"):
            inner = rest[2:]
            while inner and inner[0].startswith("-"):
                inner = inner[1:]
            # `npm run lint` is a task, `uv run pytest` a program.
            if inner and _check_program(inner):
                rest = inner
            else:
                return rest
        else:
            return rest
    return rest


def _check_program(words: Sequence[str]) -> bool:
    program = words[0].rsplit("/", 1)[-1]
    return program in _TEST or program in _BUILD or bool(_INTERPRETERS.fullmatch(program))


def _interpreted(program: str, arguments: list[str]) -> tuple[str, Family] | None:
    while arguments and arguments[0].startswith("-") and arguments[0] not in ("-m", "-c", "--test"):
        arguments = arguments[2:] if arguments[0] in ("-W", "-X") else arguments[1:]
    if not arguments or arguments[0] == "-c":
        return None
    if arguments[0] == "--test":
        return _named(f"{program} --test", arguments[1:]), "test"
    if arguments[0] == "-m":
        return _check(arguments[1:])
    script = arguments[0]
    base = script.rsplit("/", 1)[-1]
    if base == "manage.py" and "test" in arguments[1:2]:
        return _named("manage.py", arguments[1:]), "test"
    if base == "setup.py" and "test" in arguments[1:2]:
        return _named("setup.py", arguments[1:]), "test"
    if _TEST_FILE.search(_SCRIPT.sub("", base)):
        return _named(script, arguments[1:]), "script"
    return None


def _task(program: str, arguments: Sequence[str]) -> tuple[str, Family] | None:
    plain = [word for word in arguments if not word.startswith("-")]
    task = (
        plain[1]
        if plain[:1] in (["run"], ["run-script"], ["r"]) and len(plain) > 1
        else (plain or [""])[0]
    )
    if not _TASK.search(task):
        return None
    family: Family = (
        "test" if re.search(r"test|spec|unit|e2e|ci|verify|coverage", task) else "build"
    )
    return _named(program, arguments), family


def _named(program: str, arguments: Sequence[str]) -> str:
    """Return the name of a check: the program, and the arguments that say what is checked."""
    kept = [program]
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif _SHOWN.fullmatch(word):
            skip = word in _VALUED
        elif word in _VALUED:
            skip = True
        elif word not in ("./...", ".", "--"):
            kept.append(f'"{word}"' if " " in word else word)
    return " ".join(kept)
