"""Database URLs: their files and backends, refused ones, and no secret in errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime_storage import StoreError, UnknownScheme, open_store
from agent_runtime_storage.urls import backend_of, file_path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("agent.db", "agent.db"),
        ("./data/agent.db", "data/agent.db"),
        ("/var/agent.db", "/var/agent.db"),
        ("file:agent.db", "agent.db"),
        ("file:data/agent.db", "data/agent.db"),
        ("file:/var/agent.db", "/var/agent.db"),
        ("file:///var/agent.db", "/var/agent.db"),
        ("file://localhost/var/agent.db", "/var/agent.db"),
        ("FILE:agent.db", "agent.db"),
        ("file:my%20agent.db", "my agent.db"),
        ("my%20agent.db", "my%20agent.db"),
    ],
)
def test_a_file_url_names_its_path(url: str, path: str) -> None:
    assert file_path(url) == Path(path)


@pytest.mark.parametrize(
    ("url", "backend"),
    [
        ("agent.db", "file"),
        ("FILE:agent.db", "file"),
        ("libsql://host.example", "libsql-http"),
        ("http://host.example:8080", "libsql-http"),
        ("https://host.example", "libsql-http"),
        ("ws://host.example", "libsql-ws"),
        ("wss://host.example", "libsql-ws"),
        ("postgres://host.example/db", "postgres"),
        ("postgresql://host.example/db", "postgres"),
    ],
)
def test_the_scheme_decides_the_backend(url: str, backend: str) -> None:
    assert backend_of(url) == backend


@pytest.mark.parametrize("url", ["postgres://ann:secret@host.example/db", "libsql://secret@host"])
def test_a_server_url_has_no_file(url: str) -> None:
    with pytest.raises(StoreError, match=url.split(":")[0]) as raised:
        file_path(url)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["mysql://ann:secret@host/db", "sqlite:///a.db", "ann:secret@host"])
async def test_an_unknown_scheme_is_named(url: str) -> None:
    with pytest.raises(UnknownScheme, match=url.split(":")[0]) as raised:
        await open_store(url)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("file:", "no file"),
        (":memory:", "memory"),
        ("file::memory:", "memory"),
        ("file:a.db?mode=ro", "parameters"),
        ("file:a.db#x", "parameters"),
        ("file://host/a.db", "host"),
        ("a\0.db", "zero byte"),
    ],
)
async def test_a_url_with_more_than_a_file_is_refused(url: str, reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as raised:
        await open_store(url)

    assert raised.value.cure


def test_importing_the_package_loads_no_database_library() -> None:
    heavy = ("apsw", "zstandard", "sqlite_vec", "anyio", "asyncio", "orjson", "psycopg")
    code = f"import sys, agent_runtime_storage; print([m for m in {heavy!r} if m in sys.modules])"

    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert completed.stdout == b"[]\n"


def test_all_public_names_exist() -> None:
    import agent_runtime_storage

    assert agent_runtime_storage.__all__ == sorted(agent_runtime_storage.__all__)
    for name in agent_runtime_storage.__all__:
        assert hasattr(agent_runtime_storage, name)
