"""Read the verdict of a check from its output: passed or failed, and what failed.

A summary of tests counts more than the exit code, because behind a pipe that is another program's.
An output that shows neither gives no verdict: the earlier one stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent_runtime.memory.observational.observer.sentences import (
    ends,
    error_lines,
    exit_code,
    read_part,
)
from agent_runtime.memory.observational.observer.slots.checks import Check
from agent_runtime.messages import ToolResult, Verdict
from agent_runtime.prompt.text import one_line, shorten

MOST_FAILING = 40
"""Names of what failed that are kept."""
NAME_CHARS = 160
DETAIL_CHARS = 200

# What a runner prints of its outcome.  Each line is matched from its beginning, and no further, so
# that the time is linear and a word inside of a message decides nothing.
_BEGIN = r"^[ \t=!*#>]{0,40}(?:\[(?:INFO|ERROR)\] )?"
_FAILED = re.compile(
    _BEGIN + r"(?:[^\n]{0,120}\b[1-9]\d* (?:failed|failures?|failing|errors?|error\(s\))\b"
    r"|FAIL(?:ED|URES?)?\b|--- FAIL:|not ok \d|BUILD FAIL(?:ED|URE)"
    r"|\[ERROR\] (?:Tests run|Failed to execute|COMPILATION ERROR|BUILD)"
    r"|test result: FAILED|Test Run Failed|Failed!|error: test failed|error: could not compile"
    r"|Found [1-9]\d* errors?\b|make(?:\[\d+\])?: \*\*\*|ninja: build stopped|npm ERR!"
    r"|panic: |ERROR: InvocationError|E   +\S)",
    re.MULTILINE,
)
_PASSED = re.compile(
    _BEGIN + r"(?:[^\n]{0,120}\b\d+ (?:passed|passing|examples?, 0 failures)\b"
    r"|ok[ \t]+\S|PASS\b|--- PASS:|OK\b(?: \(|[ \t]*$)|All (?:checks|tests) passed"
    r"|test result: ok|Success: no issues|0 errors?\b|0 issues\b|(?:\[INFO\] )?BUILD SUCCESS"
    r"|Passed!|Test Run Successful|100% tests passed|no issues found|All matched files use"
    r"|Finished (?:`|dev|test|release))",
    re.MULTILINE,
)
# They may be what a passing test prints, so a summary counts more.
_ERRORS = re.compile(
    r"^(?:[ \t]*Traceback \(most recent call last\)|[\w.]{0,80}(?:Error|Exception)(?:: |$)"
    r"|error(?:\[\w+\])?: |fatal error: |Segmentation fault|ERRORS? collecting"
    r"|[^\n]{0,200}(?:\.go:\d+:\d+: |\berror TS\d+: |: (?:fatal )?error: ))",
    re.MULTILINE,
)
# A summary line of passed tests that names failures as well, such as `1 failed, 3 passed`.
_NONE_FAILED = re.compile(r"\b0 (?:failed|failures?|errors?|failing)\b", re.IGNORECASE)
_COULD_NOT_RUN = re.compile(
    r"^[^\n]{0,160}(?:No module named \S+|command not found|No such file or directory|"
    r"cannot find module|Missing script|Unknown command|not recognized as|"
    r"error: unrecognized arguments|ImportError while loading conftest|"
    r"file or directory not found)[^\n]{0,120}",
    re.MULTILINE | re.IGNORECASE,
)
_SUMMARY = re.compile(
    r"^[^\n]{0,160}\b\d+ (?:passed|failed|errors?|failures?|passing|failing|problems?|tests?|"
    r"issues?|warnings?|examples?|assertions?)\b[^\n]{0,120}",
    re.MULTILINE | re.IGNORECASE,
)
_FILTERED = re.compile(r"\bno tests? (?:ran|found|to run)\b|\[no test files\]", re.IGNORECASE)
# Exit codes of what was interrupted or killed: by SIGINT, SIGKILL and SIGTERM.
_STOPPED = (130, 137, 143)
# What tools put around an output.
_FRAME = re.compile(r"</?output>|<returncode>0</returncode>|^Exit code 0\.?$", re.MULTILINE)

_NAMES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # pytest: its summary, then with -v
        r"^(?:FAILED|ERROR) (?P<name>\S+(?:\[[^\n\]]{0,80}\])?)",
        r"^(?P<name>[^\s:]{1,300}::\S{1,300}?(?:\[[^\n\]]{0,80}\])?) (?:FAILED|ERROR)\b",
        r"^_{3,} (?:ERROR (?:collecting|at \w+ of) )?(?P<name>[\w.\[\]/:-]{3,120}) _{3,}$",
        # unittest, Django
        r"^(?:FAIL|ERROR): (?P<name>\w+ \([\w.]+\)|\w+)",
        # go
        r"^[ \t]*--- FAIL: (?P<name>\S+)",
        # cargo
        r"^test (?P<name>\S+) \.\.\. FAILED",
        # jest, vitest
        r"^[ \t]*● (?P<name>[^\n]{3,160}›[^\n]{1,160})$",
        r"^[ \t]*(?:✕|✗|×|✘) (?P<name>[^\n]{3,160}?)(?: \(?\d+ ?ms\)?)?$",
        r"^ *FAIL +(?P<name>\S+\.[cm]?[jt]sx?(?: > [^\n]{1,160})?)",
        # mocha, phpunit
        r"^  +\d+\) (?P<name>\S[^\n]{2,160})$",
        r"^\d+\) (?P<name>[\w\\]+::\w+)",
        # rspec
        r"^rspec (?P<name>\S+:\d+|\S+\[[\d:]+\])",
        # gradle, then maven
        r"^(?P<name>[\w.$]+ > [^\n]{1,120}) FAILED$",
        r"^\[ERROR\] +(?P<name>[\w.]+[.:]\w+(?::\d+)?)(?:[ :]|$)",
        # dotnet, ctest, TAP, bats
        r"^ *Failed (?P<name>[\w.]+(?:\([^\n)]{0,80}\))?) \[",
        r"^[ \t]*\d+ - (?P<name>\S+) \((?:Failed|Timeout|SEGFAULT)",
        r"^not ok \d+ -? ?(?P<name>\S[^\n#]{1,120})",
        # swift, xcodebuild
        r"^Test Case '(?P<name>[^'\n]{3,120})' failed",
        # compilers and linters: where
        r"^(?P<name>[\w./\\-]+\.\w+(?::\d+|\(\d+,\d+\)))(?::\d+)?[: -]+(?:\w+ )?error\b",
        r"^(?P<name>[\w./-]+\.go:\d+):\d+: ",
        r"^ +--> (?P<name>[\w./-]+:\d+)",
    )
)
_GO_PACKAGE = re.compile(r"^FAIL[ \t]+(?P<name>\S+/\S+)", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[\d;]*m")


def verdict_of(check: Check, result: ToolResult) -> Verdict | None:
    """Return the verdict of a check by its result; None if the result does not show it."""
    if result.outcome not in ("ok", "error"):
        return None
    text = _ANSI.sub("", read_part(result.text))
    passed = _passed(check, result, text)
    if passed is None:
        return None
    if passed:
        return Verdict(check.name, True, (), _summary(text))
    failing = tuple(dict.fromkeys(_failing(text)))
    return Verdict(check.name, False, failing[:MOST_FAILING], _why(text))


def _passed(check: Check, result: ToolResult, text: str) -> bool | None:
    code = exit_code(text)
    wrong = result.outcome == "error" or bool(code)
    # The exit code is that of the check only if nothing else could have set it.
    own = not check.piped and check.alone
    if _FAILED.search(_without_zeros(text)):
        return False
    if _PASSED.search(text):
        if code in _STOPPED:
            # Nothing had failed by then, and nobody knows what would have.
            return None
        # Some tests passed, and the check failed all the same.
        return not (wrong and own)
    if _COULD_NOT_RUN.search(text):
        return False
    if own and wrong:
        return False
    if check.family != "script" and _ERRORS.search(text):
        return False
    if own and not _FILTERED.search(text):
        return True
    # A compiler that is silent found nothing, even behind `tail`.
    return True if check.family == "build" and not _FRAME.sub("", text).strip() else None


def _without_zeros(text: str) -> str:
    return _NONE_FAILED.sub("", text)


def _failing(text: str) -> Iterator[str]:
    found = False
    for pattern in _NAMES:
        for match in pattern.finditer(text):
            found = True
            yield shorten(one_line(match["name"]).rstrip(":,"), NAME_CHARS)
    if not found:
        for match in _GO_PACKAGE.finditer(text):
            yield shorten(match["name"], NAME_CHARS)


def _summary(text: str) -> str:
    # Summaries stand at the end.
    lines = [one_line(match[0]).strip("= ") for match in _SUMMARY.finditer(text[-4_000:])]
    return shorten(lines[-1], DETAIL_CHARS) if lines else ""


def _why(text: str) -> str:
    """Return the line that tells most of a failure: an error, or the summary."""
    missing = _COULD_NOT_RUN.search(text)
    lines = [one_line(missing[0])] if missing else error_lines(text)
    plain = [line for line in lines if not line.startswith(("FAIL", "---", "ERROR:"))]
    line = (plain or lines or [_summary(text)])[0].removeprefix("E   ").strip()
    line = line or (ends(text) or [""])[-1]
    return shorten(line, DETAIL_CHARS)
