"""What all tests share: the servers, their logs, and the rule that tests are not skipped."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from .services.backends import BACKENDS
from .services.fixtures import MISSING
from .services.fixtures import database_contents as database_contents
from .services.fixtures import database_url as database_url
from .services.fixtures import empty_postgres_url as empty_postgres_url
from .services.fixtures import libsql as libsql
from .services.fixtures import libsql_with_vec as libsql_with_vec
from .services.fixtures import logs as logs
from .services.fixtures import postgres as postgres
from .services.fixtures import postgres_logins as postgres_logins
from .services.fixtures import postgres_template as postgres_template
from .services.fixtures import postgres_url as postgres_url
from .services.fixtures import scratch as scratch
from .services.fixtures import start_libsql as start_libsql
from .services.fixtures import start_postgres as start_postgres
from .services.process import in_ci, running

# No test may ever call a model that is not on this machine, whatever keys its user has set.
os.environ["AGENT_RUNTIME_FORBID_REAL_MODELS"] = "1"

MOST_SKIPS = 12
"""How many tests may be skipped, beside those that want a server which is not to be had here."""

_skips: list[tuple[str, str]] = []


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The runtime runs on asyncio only."""
    return "asyncio"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `database_url` on every backend, or on those of its mark."""
    if "database_url" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("backends")
        names = BACKENDS if mark is None else mark.args
        metafunc.parametrize("database_url", names, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the servers said beside the report of a failure."""
    report = yield
    if report.failed:
        report.sections += [(f"log of {one.name}", one.tail()) for one in running()]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note each skip with its reason."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skips.append((report.nodeid, reason.removeprefix("Skipped:").strip()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if tests were skipped without a reason, or too many of them."""
    wrong = [f"{test} is skipped without a reason" for test, reason in _skips if not reason]
    plain = [test for test, reason in _skips if in_ci() or not reason.startswith(MISSING)]
    if len(plain) > MOST_SKIPS:
        wrong.append(f"{len(plain)} tests are skipped; {MOST_SKIPS} may be")
    if wrong:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("")
            for line in wrong:
                reporter.write_line(line, red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
