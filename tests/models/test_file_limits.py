"""How many files, and how large ones, each provider is sent."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime.errors import InvariantError
from agent_runtime.messages import FileRef, PromptMessage
from agent_runtime.models.base import FilePart, ModelRequest
from agent_runtime.models.catalog import model_info
from agent_runtime.models.fallback.model import FallbackModel
from agent_runtime.models.file_limits.admission import (
    FileAdmission,
    FileLimits,
    FileSize,
    strictest,
)
from agent_runtime.models.native import NativeModel
from agent_runtime.models.wire.rules.check import check_request

CLAUDE = "anthropic/claude-sonnet-4-5"
HAIKU = "anthropic/claude-haiku-4-5"
BEDROCK = "bedrock/anthropic.claude-sonnet-4-5"
GEMINI = "gemini/gemini-3-pro-preview"
MB = 1_000_000


def image(megabytes: float = 0.1, side: int = 100, media_type: str = "image/png") -> FileSize:
    """Return an image by its size as base64."""
    return FileSize("image", media_type, int(megabytes * MB), side)


def pdf(megabytes: float = 0.1, pages: int = 1) -> FileSize:
    """Return a PDF."""
    return FileSize("document", "application/pdf", int(megabytes * MB), pages=pages)


def sent(model: str, *files: FileSize, **options: Any) -> list[str]:
    """Return for each file why a model is not sent it."""
    admission = FileAdmission(model_info(model, **options).file_limits)
    return [admission.problem(file) for file in files]


REFUSED = [
    (CLAUDE, [image(11)], "an image may have 10.5 MB as base64, it has 11.0 MB"),
    (BEDROCK, [image(6)], "5.0 MB"),
    ("vertex_ai/claude-sonnet-4-5", [image(6)], "5.2 MB"),
    (CLAUDE, [image(side=8001)], "8,000 pixels a side, it has 8,001"),
    (CLAUDE, [*[image()] * 20, image(side=2001)], "2,000 pixels a side"),
    (CLAUDE, [image(side=2001), *[image()] * 20], "with more than 20 images"),
    (CLAUDE, [image(9.9), image(9.9), image(9.9)], "all files of a request"),
    (CLAUDE, [pdf(pages=601)], "600 pages, it has 601"),
    (CLAUDE, [pdf(pages=500), pdf(pages=101)], "600 pages"),
    (HAIKU, [pdf(pages=101)], "100 pages"),
    (HAIKU, [image(0.01)] * 101, "100 images"),
    (GEMINI, [image(media_type="image/gif")], "takes no image/gif"),
    (GEMINI, [pdf(70)], "a PDF may have 66.7 MB"),
    (GEMINI, [FileSize("video", "video/mp4", 97 * MB)], "all files"),
    ("mistral/pixtral-large", [image()] * 9, "8 images"),
    ("groq/llama-4-scout", [image()] * 6, "5 images"),
    ("groq/llama-4-scout", [image(4.1)], "4.0 MB"),
    ("openai/gpt-5", [pdf(30), pdf(30)], "all files of a request may have 50.0 MB"),
    ("xai/grok-4", [image(media_type="image/webp")], "takes no image/webp"),
    (BEDROCK, [pdf()] * 6, "5 documents"),
]


@pytest.mark.parametrize(("model", "files", "why"), REFUSED)
def test_only_the_last_is_not_sent(model: str, files: list[FileSize], why: str) -> None:
    options = {"window": 1_000_000} if model == CLAUDE else {}
    *before, last = sent(model, *files, **options)
    assert set(before) <= {""}
    assert why in last


@pytest.mark.parametrize("model", ["openai/test", "ollama/llava", "unknown"])
def test_nothing_is_assumed_of_other_servers(model: str) -> None:
    files = [image(200, 99_999, "image/tiff"), *[image()] * 2000, pdf(900, 9999)]
    assert not any(sent(model, *files, base_url="http://here/v1"))


def test_a_file_that_is_not_sent_does_not_count() -> None:
    assert sent(CLAUDE, image(99), image(9), image(9))[1:] == ["", ""]


async def test_a_fallback_sends_what_each_of_its_models_takes() -> None:
    limits = (await FallbackModel([CLAUDE, GEMINI], api_key="k").info()).file_limits
    assert (limits.image, limits.pages) == (10 << 20, 100)
    types = limits.media_types
    assert types is not None and "image/gif" not in types and "image/png" in types


def test_models_without_a_common_type_of_images_are_sent_none() -> None:
    limits = strictest(
        [FileLimits(media_types=frozenset({one})) for one in ("image/png", "image/webp")]
    )
    assert FileAdmission(limits).problem(image()) != ""


async def test_a_compatible_server_has_no_limits_of_openais() -> None:
    own = NativeModel("openai/test", base_url="http://127.0.0.1:1/v1", api_key="k")
    assert (await own.info()).file_limits == FileLimits()


def test_the_rules_of_the_wire_know_the_same_limits() -> None:
    file = FileRef("image", "upload:1", "image/png")
    part = FilePart(file, data="A" * (12 << 20))
    shown = (PromptMessage("user", "Look.", files=(file,)),)
    with pytest.raises(InvariantError, match=r"10\.5 MB as base64"):
        check_request(ModelRequest(shown, files={0: [part]}), CLAUDE)
