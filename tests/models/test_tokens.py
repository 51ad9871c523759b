"""Counting tokens, and calibrating the count by reported usage."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tiktoken import Encoding

from agent_runtime.messages import FileRef, Opaque, PromptMessage, ToolCall, ToolSpec
from agent_runtime.models import tokens
from agent_runtime.models.tokens import Calibration, count_message, count_text, count_tools


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("hello world", 2), ("<|endoftext|>", 7), ("naïve 日本語 🎉", 7), ("\ud800", 1)],
)
def test_a_text_is_counted_by_the_vocabulary(text: str, count: int) -> None:
    assert count_text(text) == count


def test_a_damaged_vocabulary_is_not_used_and_not_replaced(tmp_path: Path) -> None:
    url = tokens._VOCABULARY_URL  # pyright: ignore[reportPrivateUsage]
    damaged = tmp_path / hashlib.sha1(url.encode()).hexdigest()
    damaged.write_bytes(b"IQ== 0\n")
    program = "from agent_runtime.models.tokens import count_text; print(count_text('a' * 80))"
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    counted = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert counted.stdout == "40\n"
    assert "damaged" in counted.stderr
    assert damaged.read_bytes() == b"IQ== 0\n"


@pytest.mark.parametrize(
    "text",
    [" " * 1_000_000, "\n" * 1_000_000, "a" * 200_000, "=" * 500_000, "0" * 300_000],
    ids=["spaces", "newlines", "letters", "signs", "digits"],
)
def test_very_long_runs_are_counted_without_a_panic(text: str) -> None:
    assert 0 < count_text(text) <= len(text)


def test_long_texts_count_as_the_sum_of_their_lines_nearly() -> None:
    line = "The quick brown fox jumps over the lazy dog.\n"
    whole, parts = count_text(line * 10_000), count_text(line) * 10_000
    assert abs(whole - parts) <= 10


def test_short_texts_are_encoded_once_and_long_ones_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[str] = []
    encode = tokens._encode  # pyright: ignore[reportPrivateUsage]

    def watched(encoding: Encoding, text: str) -> int:
        encoded.append(text)
        return encode(encoding, text)

    monkeypatch.setattr(tokens, "_encode", watched)
    short, long = "Only this test says so.", "Only this test says so. " * 1000
    assert len(long) > tokens.REMEMBERED_CHARS
    assert [count_text(text) for text in (short, short, long, long)] == [6, 6, 6001, 6001]
    assert encoded == [short, long, long]


def test_the_vocabulary_is_read_as_tiktoken_reads_it() -> None:
    ours = tokens._encoding()  # pyright: ignore[reportPrivateUsage]
    theirs = subprocess.run(
        [sys.executable, "-c", _ENCODED_BY_TIKTOKEN],
        env={**os.environ, "TIKTOKEN_CACHE_DIR": tokens._bundled()},  # pyright: ignore[reportPrivateUsage]
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert ours is not None
    assert theirs.stdout.strip() == str(ours.encode_ordinary(_MIXED))


_MIXED = "It's naïve: 日本語, 12345 tokens_of(x)!\r\n\n  Straße ÄÖÜ's  <|endoftext|> ไทย\t🎉  "
_ENCODED_BY_TIKTOKEN = (
    f"import tiktoken; print(tiktoken.get_encoding('o200k_base').encode_ordinary({_MIXED!r}))"
)


async def test_runs_that_begin_at_once_load_the_vocabulary_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads: list[str] = []

    def load() -> None:
        loads.append(threading.current_thread().name)
        # Others would come meanwhile.
        time.sleep(0.05)

    monkeypatch.setattr(tokens, "_loaded", functools.cache(load))
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(tokens.load_vocabulary)
            group.start_soon(anyio.to_thread.run_sync, tokens._encoding)  # pyright: ignore[reportPrivateUsage]
    assert len(loads) == 1


async def test_warming_loads_the_vocabulary() -> None:
    await tokens.load_vocabulary()
    assert count_text("hello world") == 2


@pytest.mark.parametrize(
    ("text", "estimate"),
    [("word " * 100, 125), ("0123456789" * 10, 50), ("deadbeef" * 10, 40), ("ä" * 100, 50)],
)
def test_without_a_vocabulary_the_count_is_an_estimate(text: str, estimate: int) -> None:
    assert tokens.estimate_text(text) == estimate


@pytest.mark.parametrize("folder", ["", "/nowhere"])
def test_nothing_is_fetched(folder: str) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from agent_runtime.models.tokens import count_text\n"
        "print(count_text('hello world'))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("TIKTOKEN_CACHE_DIR", None)
    if folder:
        environment["TIKTOKEN_CACHE_DIR"] = folder
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == ("3" if folder else "2")


def test_a_message_counts_all_that_is_sent_of_it() -> None:
    plain = PromptMessage("assistant", "Hi.")
    image = FileRef("image", "https://example.com/a.png")
    document = FileRef("document", "file:report.pdf", "application/pdf", "report.pdf")
    call = ToolCall("c00000001", "read", {"path": "a.py"})
    thought = Opaque("m", {"thinking_blocks": [{"thinking": "one two three", "signature": "x"}]})
    base = count_message(plain)
    assert base == tokens.MESSAGE_OVERHEAD + count_text("Hi.")
    assert count_message(PromptMessage("assistant", "Hi.", calls=(call,))) == (
        base + tokens.CALL_OVERHEAD + count_text("read") + count_text('{"path":"a.py"}')
    )
    assert count_message(PromptMessage("user", "Hi.", files=(image,))) == base + 1600
    assert count_message(PromptMessage("user", "Hi.", files=(document,))) == base + count_text(
        "[file: report.pdf (document, application/pdf) file:report.pdf]"
    )
    assert count_message(PromptMessage("assistant", "Hi.", opaque=thought)) == base + 3


def test_tools_count_by_their_schemas() -> None:
    small = ToolSpec("now", "Tells the time.")
    large = ToolSpec("now", "Tells the time.", {"type": "object", "properties": {"zone": {}}})
    assert 0 < count_tools([small]) < count_tools([large])
    assert count_tools([small, large]) == count_tools([small]) + count_tools([large])
    assert count_tools([]) == 0


class TestCalibration:
    """From our tokens to a model's."""

    def test_before_any_report_the_estimate_is_high(self) -> None:
        assert Calibration(1.6).estimate(1000) == 1600

    def test_a_reported_prompt_is_estimated_as_reported(self) -> None:
        calibration = Calibration(1.6)
        calibration.observe(10_000, 12_345)
        assert calibration.estimate(10_000) == 12_345

    def test_what_is_added_counts_by_the_ratio_of_what_was_added_before(self) -> None:
        # The provider adds 5,000 tokens of its own to every prompt, and counts 1.2 for 1.
        calibration = Calibration(1.6)
        for counted in (1000, 2000, 3000):
            calibration.observe(counted, 5000 + counted * 12 // 10)
        assert calibration.ratio == pytest.approx(1.2)
        assert calibration.estimate(4000) == 9800

    def test_without_an_anchor_the_highest_recent_ratio_counts(self) -> None:
        calibration = Calibration(1.6)
        for reported in (1200, 1400, 1300):
            calibration.observe(1000, reported)
        calibration.reset_anchor()
        assert calibration.estimate(2000) == 2800
        assert calibration.safe_ratio == 1.4

    def test_tools_that_count_too_much_do_not_make_a_longer_prompt_seem_short(self) -> None:
        calibration = Calibration(1.05)
        # The same overcount of 60 in every prompt, and text that counts as it is reported.
        for counted in range(2000, 8000, 1000):
            calibration.observe(counted, counted - 60)
        calibration.reset_anchor()
        assert calibration.estimate(7500) >= 7440

    def test_only_the_last_observations_count(self) -> None:
        calibration = Calibration(1.6)
        calibration.observe(1000, 3000)
        assert calibration.safe_ratio == 3.0
        for _ in range(calibration.REMEMBERED):
            calibration.reset_anchor()
            calibration.observe(1000, 1100)
        assert calibration.safe_ratio == 1.1

    @pytest.mark.parametrize(("counted", "reported"), [(0, 10), (10, 0), (-1, 5)])
    def test_a_report_that_says_nothing_is_ignored(self, counted: int, reported: int) -> None:
        calibration = Calibration(1.3)
        calibration.observe(counted, reported)
        assert calibration.estimate(1000) == 1300

    @pytest.mark.parametrize(
        ("counted", "reported"), [(60, 6_000_000), (10_000, 6_000_000), (10_000, 100)]
    )
    def test_a_report_that_cannot_be_true_teaches_nothing(
        self, counted: int, reported: int
    ) -> None:
        calibration = Calibration(1.3)
        calibration.observe(counted, reported)
        assert calibration.estimate(counted + 1000) == round(1.3 * (counted + 1000))
        calibration.reset_anchor()
        assert calibration.estimate(1000) == 1300

    def test_a_report_that_cannot_be_true_leaves_the_anchor_as_it_was(self) -> None:
        calibration = Calibration(1.3)
        calibration.observe(10_000, 12_000)
        calibration.observe(11_000, 6_000_000)
        assert calibration.estimate(11_000) == 13_200

    def test_what_a_provider_adds_to_a_short_prompt_is_its_overhead_and_no_ratio(self) -> None:
        calibration = Calibration(1.6)
        calibration.observe(1000, 6200)
        assert calibration.estimate(1000) == 6200
        calibration.reset_anchor()
        assert calibration.estimate(10_000) == 16_000

    def test_a_tiny_prompt_teaches_no_ratio(self) -> None:
        calibration = Calibration(1.3)
        calibration.observe(20, 400)
        calibration.reset_anchor()
        assert calibration.estimate(1000) == 1300

    def test_unrelated_prompts_do_not_spoil_what_growth_has_taught(self) -> None:
        calibration = Calibration(1.3)
        for counted, reported in [(10_000, 12_000), (10_100, 14_900), (11_000, 13_200)]:
            calibration.observe(counted, reported)
        assert 1.0 < calibration.ratio < 1.5

    def test_a_growing_prompt_is_estimated_within_two_percent(self) -> None:
        chance = random.Random(7)
        calibration, counted, reported, errors = Calibration(1.6), 2000, 2760, list[float]()
        for _ in range(200):
            calibration.observe(counted, reported)
            added = chance.randint(50, 2000)
            counted, reported = counted + added, reported + round(added * chance.uniform(1.2, 1.6))
            errors.append(abs(calibration.estimate(counted) - reported) / reported)
        assert sorted(errors[10:])[int(len(errors[10:]) * 0.95)] < 0.02
