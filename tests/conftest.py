"""Set up all tests: database servers, their logs in reports, and the environment."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from agent_runtime.testing import checked_requests
from tests.services.backends import backends_for
from tests.services.fixtures import database_contents as database_contents
from tests.services.fixtures import database_url as database_url
from tests.services.fixtures import empty_postgres_url as empty_postgres_url
from tests.services.fixtures import file_template as file_template
from tests.services.fixtures import libsql as libsql
from tests.services.fixtures import libsql_template as libsql_template
from tests.services.fixtures import libsql_with_vec as libsql_with_vec
from tests.services.fixtures import logs as logs
from tests.services.fixtures import postgres as postgres
from tests.services.fixtures import postgres_logins as postgres_logins
from tests.services.fixtures import postgres_template as postgres_template
from tests.services.fixtures import postgres_url as postgres_url
from tests.services.fixtures import scratch as scratch
from tests.services.fixtures import start_libsql as start_libsql
from tests.services.fixtures import start_postgres as start_postgres
from tests.services.process import running
from tests.services.s3 import s3_server as s3_server
from tests.services.s3 import s3_url as s3_url
from tests.services.skips import pytest_runtest_logreport as pytest_runtest_logreport
from tests.services.skips import pytest_sessionfinish as pytest_sessionfinish
from tests.support.polls import poll_every
from tests.support.worlds import play as play
from tests.support.worlds import serve as serve

# Tests never call a model outside this machine, whichever keys the user's environment has.
os.environ["AGENT_RUNTIME_FORBID_REAL_MODELS"] = "1"
# Tests never write to the user's own state folder.
_STATE = Path(tempfile.mkdtemp(prefix="agent-runtime-tests-"))
atexit.register(shutil.rmtree, _STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = str(_STATE)
# Nor do they read the settings, instructions and skills in the user's folder of configuration.
os.environ["XDG_CONFIG_HOME"] = str(_STATE / "config")
if "TEST_POLL" in os.environ:
    poll_every(float(os.environ["TEST_POLL"]))
_tests = itertools.count()


@pytest.fixture(autouse=True)
def state_home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for this test alone; its first use creates it."""
    home = _STATE / str(next(_tests))
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home


@pytest.fixture(autouse=True, scope="session")
def every_request_is_checked() -> Generator[None]:
    """Fail what builds a prompt that a provider would refuse."""
    with checked_requests():
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The runtime runs on asyncio only."""
    return "asyncio"


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of the collector's work: it stays to the end."""
    gc.freeze()


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes run the tests: one more than cores, as some of them wait."""
    return (os.cpu_count() or 1) + 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `database_url` on every backend, or on those that its mark names."""
    if "database_url" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("backends")
        backends = backends_for(metafunc.definition.path) if mark is None else mark.args
        metafunc.parametrize("database_url", backends, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the servers' logs to the report of a failure."""
    report = yield
    if report.failed:
        report.sections += [(f"log of {server.name}", server.tail()) for server in running()]
    return report
