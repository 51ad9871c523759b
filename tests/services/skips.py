"""Hooks of pytest that limit skips: each has a reason, and there are few."""

from __future__ import annotations

import pytest

from tests.services.fixtures import MISSING
from tests.services.process import in_ci

MOST_SKIPS = 40
"""How many tests may be skipped, not counting those whose server is missing."""

# Reasons that pytest fills in itself.
_NO_REASONS = frozenset({"", "Skipped", "unconditional skip"})

_skips: list[tuple[str, str]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record each skip and its reason."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skips.append((report.nodeid, reason.removeprefix("Skipped:").strip()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if tests were skipped without a reason, or too many of them."""
    wrong = [
        f"{test} is skipped without a reason" for test, reason in _skips if reason in _NO_REASONS
    ]
    plain = [test for test, reason in _skips if in_ci() or not reason.startswith(MISSING)]
    if len(plain) > MOST_SKIPS:
        wrong.append(f"{len(plain)} tests are skipped; at most {MOST_SKIPS} may be")
    if wrong:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("")
            for line in wrong:
                reporter.write_line(line, red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
