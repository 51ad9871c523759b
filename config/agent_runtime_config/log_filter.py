"""Keep credentials out of what other libraries log."""

from __future__ import annotations

import logging
import re

from agent_runtime_config.urls import redact_secrets

# At DEBUG these log URLs with the credentials in them, headers, or the options of a call.
_LOGGERS = (
    "openai",
    "openai._base_client",
    "httpx",
    "httpcore",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "LiteLLM",
)
_CREDENTIALS = re.compile(r"(//)[^/@\s'\"]+@")
_HEADER = re.compile(
    r"((?:authorization|x-api-key|api-key|api_key|x-goog-api-key)['\"]?\s*[:,]\s*b?['\"])[^'\"]+",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Return a text without what looks like credentials."""
    return redact_secrets(_HEADER.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text)))


class _SecretFilter(logging.Filter):
    """Masks the credentials in a record's text."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:
            # The record's own fault; `logging` reports it when it is written, and raises nothing.
            return True
        shown = mask_secrets(text)
        if shown != text:
            record.msg, record.args = shown, ()
        return True


_FILTER = _SecretFilter()


def hide_secrets_in_logs() -> None:
    """Mask credentials in the records of libraries that call models; doing it again is harmless."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
