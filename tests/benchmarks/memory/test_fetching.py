"""Official files are downloaded into the folder; without a network the message says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from agent_runtime.errors import ConfigError
from benchmarks.memory import beam, locomo, longmemeval
from benchmarks.memory.fetch import fetch
from tests.benchmarks.memory import conversations as made
from tests.support.http_server import serving


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parent's name
        del format, args


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that a server on loopback serves, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(partial(_Quiet, directory=str(folder))) as url:
        yield folder, url


def test_missing_files_are_downloaded_once(
    home: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, url = home
    monkeypatch.setattr(locomo, "HOME", url)
    made.write(served / locomo.FILE, made.locomo())
    data = tmp_path / "data"

    first = locomo.read(data)
    (served / locomo.FILE).unlink()

    assert locomo.read(data) == first
    assert [path.name for path in data.iterdir()] == [locomo.FILE]


def test_a_chats_shortened_file_is_preferred(
    home: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, url = home
    monkeypatch.setattr(beam, "HOME", f"{url}/chats")
    monkeypatch.setitem(beam.CHATS, "100K", 2)
    made.beam(served, 1)
    made.beam(served, 2)
    chat = served / "chats" / "100K" / "2"
    (chat / "chat_trunecated.json").write_bytes(
        b'[{"batch_number": 1, "turns": [[{"role": "user", "id": 7, "content": "Short."}]]}]'
    )

    whole, short = beam.read(tmp_path / "data")

    assert len(whole.sessions) == 2
    assert [turn.text for session in short.sessions for turn in session.turns] == ["Short."]


def test_an_unavailable_file_leaves_nothing_and_is_named(
    home: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longmemeval, "HOME", home[1])
    with pytest.raises(ConfigError, match=r"longmemeval_oracle\.json .* answered 404") as raised:
        longmemeval.read(tmp_path / "data", "oracle")
    assert "--data DIR" in raised.value.cure
    assert list((tmp_path / "data").iterdir()) == []


def test_without_a_network_the_error_names_the_cure(tmp_path: Path) -> None:
    # Nothing listens on port 9, the discard service.
    with pytest.raises(ConfigError, match="cannot be reached") as raised:
        fetch(tmp_path / "x.json", "http://127.0.0.1:9/x.json")
    assert "--data DIR" in raised.value.cure
