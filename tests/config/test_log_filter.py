"""The logs of other libraries hold no credentials."""

from __future__ import annotations

import logging
import time

import pytest

from agent_runtime_config.log_filter import hide_secrets_in_logs
from agent_runtime_config.urls import is_misspelt, redact_secrets

RECORDS = [
    ("httpx", "HTTP Request: %s %s", ("POST", "https://ada:hunter2@host/v1/chat")),
    ("openai._base_client", "Request options: %s", ({"url": "//ada:hunter2@h", "n": 1},)),
    ("openai._base_client", "Headers %s", ({"Authorization": "Bearer hunter2"},)),
    ("httpcore.http11", "send_request_headers %r", ([(b"x-api-key", b"hunter2")],)),
    ("httpx", "connecting by host=h password='a hunter2' options=-c%20password%3Dhunter2", ()),
    ("httpcore.http2", "GET https://bucket/x?X-Amz-Signature=hunter2&sig=hunter2", ()),
    ("LiteLLM", "POST https://h/v1?key=hunter2&alt=sse api_key=hunter2", ()),
]


@pytest.mark.parametrize(("name", "text", "values"), RECORDS)
def test_a_librarys_record_is_written_without_its_credentials(
    name: str, text: str, values: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    hide_secrets_in_logs()
    with caplog.at_level(logging.DEBUG, logger=name):
        logging.getLogger(name).debug(text, *values)
    assert "hunter2" not in caplog.text
    assert "***" in caplog.text


def test_other_records_and_broken_ones_stay_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hide_secrets_in_logs()
    with caplog.at_level(logging.DEBUG, logger="httpx"):
        logging.getLogger("httpx").debug("GET %s", "https://host/v1")
    assert caplog.messages == ["GET https://host/v1"]


def test_a_record_that_cannot_be_written_raises_nothing() -> None:
    # What logs it is in the middle of a call of a model.
    hide_secrets_in_logs()
    record = logging.LogRecord("httpx", logging.DEBUG, "", 1, "%(lost)s", ({"other": 1},), None)
    assert logging.getLogger("httpx").filter(record)


def test_a_long_text_is_searched_for_secrets_once() -> None:
    begun = time.thread_time()
    assert redact_secrets("auth" * 20_000) == "auth" * 20_000
    assert not is_misspelt("a:" * 20_000)
    assert "***" in redact_secrets("key='" * 20_000)
    assert time.thread_time() - begun < 0.5
