"""The output of commands: plain, bounded, and kept in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.tools.workspace import command_output
from agent_runtime.tools.workspace.command_output import (
    CommandOutput,
    OutputFile,
    asks_for_input,
    plain_text,
)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m and \x1b[38;5;8mgrey\x1b[m", "red and grey"),
        (" 1%\r 50%\r100%\n", "100%\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("kept\r", "kept"),
        ("\x1b[2K\x1b[1Gfirst\x1b[2K\x1b[1Glast\n", "last\n"),
        ("-\b\\\b|\b/\bdone", "done"),
        ("\b\b\b", ""),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(B\x1b=\x1bMtext\x1b7", "text"),
        ("nul\x00 and bell\x07", "nul and bell"),
        ("cut off \x1b[31", "cut off "),
        ("cut off \x1b]0;title", "cut off "),
        ("never ended \x1b]0;title\nkept\n\x1bPdata\nkept", "never ended \nkept\n\nkept"),
        ("\x1b", ""),
    ],
)
def test_an_output_is_shown_as_it_stays_on_a_terminal(written: str, shown: str) -> None:
    assert plain_text(written) == shown


_PIECES = st.sampled_from(["\x1b", "[", "]", "31", ";", "m", "\r", "\n", "\b", "\x07", "\\", "a b"])


@given(st.lists(st.one_of(_PIECES, st.text(max_size=5))))
def test_any_output_becomes_text_without_controls(pieces: list[str]) -> None:
    written = "".join(pieces)
    shown = plain_text(written)
    if any(control in written for control in "\x1b\r\b\x00"):
        assert not any(ord(char) < 32 and char not in "\n\t" for char in shown)
    assert plain_text(shown) == shown
    assert shown.count("\n") <= written.count("\n")


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)))
def test_lines_without_controls_are_unchanged(lines: list[str]) -> None:
    written = "\r\n".join(lines)
    assert plain_text(f"\x1b[0m{written}") == "\n".join(lines)


@pytest.mark.parametrize("piece", ["\x1b[", "\x1b]", "\x1b[1;", "\r", "a\b", "\x1bP", "\x1b[ "])
def test_an_output_of_controls_takes_linear_time(piece: str) -> None:
    # In quadratic time this would take hours.
    assert len(plain_text(piece * (2 << 20 >> 1))) < 10


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Proceed? [y/N] ", True),
        ("Password: ", True),
        ("Enter passphrase for key '/root/.ssh/id': ", True),
        ("Are you sure you want to continue connecting (yes/no/[fingerprint])? ", True),
        ("sudo: a terminal is required to read the password", True),
        ("fatal: could not read Username for 'https://x': No such device or address", True),
        ("EOFError: EOF when reading a line\n", True),
        ("the input device is not a TTY", True),
        ("3 passed in 0.1s\n", False),
        ("password: hunter2\nDone.\n", False),
        ("", False),
    ],
)
def test_a_prompt_and_a_missing_terminal_are_noticed(text: str, asks: bool) -> None:
    assert asks_for_input(text) is asks


def test_an_output_keeps_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_output, "MOST_BYTES", 4)
    output = CommandOutput()
    for piece in (b"abc", b"defgh", b"", b"ijk"):
        output.add(piece)
    assert output.text() == "abcd\n[... 3 bytes left out ...]\nhijk"


@pytest.mark.parametrize("kept", ["in a file", "in memory"])
def test_the_newest_output_is_kept(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_output, "KEPT_BYTES", 4)
    path = tmp_path / "x.out" if kept == "in a file" else None
    output = OutputFile(path)
    output.add(b"01234567")
    assert output.since(0) == (b"01234567", 0)
    assert output.since(6) == (b"67", 0)
    output.add(b"89")
    assert output.since(0) == (b"6789", 6)
    assert output.since(10) == (b"", 0)
    if path is not None:
        assert path.read_bytes() == b"6789"
        assert path.stat().st_mode & 0o777 == 0o600
    output.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "missing" / "x.out")
    output.add(b"text")
    assert output.since(0) == (b"text", 0)
