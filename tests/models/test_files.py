"""Files on their way to a model: as what they are sent, and where they are only named."""

from __future__ import annotations

import base64
import importlib
from typing import Any

import pytest

from agent_runtime.messages import FileKind, FileRef, PromptMessage, ToolCall
from agent_runtime.models.base import FilePart, ModelRequest
from agent_runtime.models.litellm import load_litellm
from agent_runtime.models.openai_format import Dialect, messages_of
from agent_runtime.testing.model_server import Reply
from tests.models.conftest import Play

DATA = base64.b64encode(b"content").decode()
EVERY: frozenset[FileKind] = frozenset({"image", "audio", "video", "document"})
IMAGE = FileRef("image", "upload:1", "image/png", "cat.png", 1234)
PDF = FileRef("document", "upload:2", "application/pdf", "paper.pdf", 5_000_000)
SOUND = FileRef("audio", "tool:3", "audio/wav", "voice.wav", 99)
FILM = FileRef("video", "upload:4", "video/mp4", "film.mp4", 7)
NOTES = FileRef("document", "upload:5", "text/plain", "notes.txt", 5)
URL = FileRef("image", "https://example.com/dog.png", "image/png", "dog.png")
NAME = "[file: cat.png (image, image/png, 1.2 KB) upload:1]"


def sent(
    *messages: tuple[PromptMessage, list[FilePart]],
    provider: str = "openai",
    takes: frozenset[FileKind] = EVERY,
    marks: tuple[int, ...] = (),
) -> list[dict[str, Any]]:
    """What messages with these files become."""
    request = ModelRequest(
        tuple(message for message, _ in messages),
        files={index: parts for index, (_, parts) in enumerate(messages)},
        marks=marks,
    )
    return messages_of(request, Dialect(f"{provider}/m", provider, takes, marks=bool(marks)))


def look(*parts: FilePart) -> tuple[PromptMessage, list[FilePart]]:
    """A user message with files."""
    return PromptMessage("user", "Look.", files=tuple(part.file for part in parts)), list(parts)


def exchange(*parts: FilePart) -> list[tuple[PromptMessage, list[FilePart]]]:
    """Two calls, of which the first returned files."""
    calls = (ToolCall("c00000001", "draw", {}), ToolCall("c00000002", "read", {}))
    files = tuple(part.file for part in parts)
    first = PromptMessage("tool", "Drawn.", call_id="c00000001", name="draw", files=files)
    second = PromptMessage("tool", "Read.", call_id="c00000002", name="read")
    return [(PromptMessage("assistant", "", calls=calls), []), (first, list(parts)), (second, [])]


def test_each_kind_of_file_has_its_own_form() -> None:
    [message] = sent(look(*(FilePart(one, DATA) for one in (IMAGE, PDF, SOUND))))
    pdf = {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}
    assert message["content"] == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "file", "file": pdf},
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
    ]
    [film] = sent(look(FilePart(FILM, DATA)), provider="gemini")
    data = {"file_data": f"data:video/mp4;base64,{DATA}", "format": "video/mp4"}
    assert film["content"][1] == {"type": "file", "file": data}


def test_a_model_that_does_not_take_a_kind_is_told_kind_name_type_and_size() -> None:
    parts = [FilePart(one, DATA) for one in (IMAGE, PDF, SOUND, FILM)]
    [message] = sent(look(*parts), takes=frozenset())
    assert message == {
        "role": "user",
        "content": "\n".join([
            "Look.",
            NAME,
            "[file: paper.pdf (document, application/pdf, 5.0 MB) upload:2]",
            "[file: voice.wav (audio, audio/wav, 99 bytes) tool:3]",
            "[file: film.mp4 (video, video/mp4, 7 bytes) upload:4]",
        ]),
    }  # fmt: skip


def test_a_file_that_cannot_be_shown_says_why() -> None:
    [message] = sent(look(FilePart(IMAGE, problem="it is not there")))
    assert message["content"] == (
        "Look.\n[file: cat.png (image, image/png, 1.2 KB) upload:1; not shown: it is not there]"
    )


@pytest.mark.parametrize("media_type", ["image/svg+xml", "image/tiff"])
def test_an_image_of_a_type_that_providers_refuse_is_only_named(media_type: str) -> None:
    [message] = sent(look(FilePart(FileRef("image", "upload:1", media_type, "a"), DATA)))
    assert message["content"] == f"Look.\n[file: a (image, {media_type}) upload:1]"


def test_a_text_document_is_read_out_to_every_model() -> None:
    [message] = sent(look(FilePart(NOTES, text="Buy milk.")), takes=frozenset())
    assert message["content"].splitlines() == [
        "Look.",
        "[file: notes.txt (document, text/plain, 5 bytes) upload:5]",
        "Buy milk.",
        "[end of file]",
    ]


def test_how_closely_to_look_is_said_where_it_is_not_left_open() -> None:
    [message] = sent(look(FilePart(IMAGE, DATA, detail="low")))
    assert message["content"][1]["image_url"]["detail"] == "low"


@pytest.mark.parametrize(
    ("provider", "url", "passes"),
    [
        ("openai", "https://example.com/dog.png", True),
        ("openai", "http://example.com/dog.png", True),
        ("anthropic", "https://example.com/dog.png", True),
        ("anthropic", "http://example.com/dog.png", False),
        ("gemini", "https://example.com/dog.png", False),
        ("vertex_ai", "https://169.254.169.254/dog.png", False),
        ("bedrock", "https://example.com/dog.png", False),
        ("ollama", "http://localhost/dog.png", False),
        ("openai", "file:///etc/passwd", False),
    ],
)
def test_a_url_goes_only_to_providers_that_fetch_it_themselves(
    provider: str, url: str, passes: bool
) -> None:
    [message] = sent(look(FilePart(FileRef("image", url))), provider=provider)
    assert ("image_url" in str(message["content"])) is passes
    assert passes or url in message["content"]


def test_the_url_of_a_document_is_only_named() -> None:
    document = FileRef("document", "https://example.com/a.pdf", "application/pdf", "a.pdf")
    [message] = sent(look(FilePart(document)))
    assert message["content"].endswith("(document, application/pdf) https://example.com/a.pdf]")


def test_files_of_a_tool_go_inside_its_result_where_the_provider_takes_them() -> None:
    [_, first, second] = sent(*exchange(FilePart(IMAGE, DATA)), provider="anthropic", marks=(1,))
    assert first == {
        "role": "tool",
        "tool_call_id": "c00000001",
        "content": [
            {"type": "text", "text": "Drawn."},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        ],
        "cache_control": {"type": "ephemeral"},
    }
    assert second == {"role": "tool", "tool_call_id": "c00000002", "content": "Read."}


def test_files_of_a_tool_follow_the_results_where_they_may_not_be_inside() -> None:
    last: tuple[PromptMessage, list[FilePart]] = (PromptMessage("assistant", "Nice."), [])
    [asked, first, second, files, answer] = sent(*exchange(FilePart(IMAGE, DATA)), last)
    assert first["content"] == f"Drawn.\n{NAME}"
    assert second["content"] == "Read."
    assert files["role"] == "user"
    assert [part["type"] for part in files["content"]] == ["text", "image_url"]
    assert answer["role"] == "assistant"
    # Nothing that comes later changes it.
    assert sent(*exchange(FilePart(IMAGE, DATA))) == [asked, first, second, files]


def test_files_of_a_tool_are_named_where_neither_is_known_to_work() -> None:
    messages = sent(*exchange(FilePart(IMAGE, DATA)), provider="mistral")
    assert [one["role"] for one in messages] == ["assistant", "tool", "tool"]
    assert messages[1]["content"] == f"Drawn.\n{NAME}"


async def test_litellm_takes_the_forms_to_anthropic() -> None:
    await load_litellm()
    factory: Any = importlib.import_module("litellm.litellm_core_utils.prompt_templates.factory")
    parts = [FilePart(IMAGE, DATA), FilePart(PDF, DATA), FilePart(URL)]
    messages = sent(look(*parts), *exchange(*parts[:2]), provider="anthropic")
    user, _, results = factory.anthropic_messages_pt(messages, "claude-sonnet-4-5", "anthropic")
    assert [part["type"] for part in user["content"]] == ["text", "image", "document", "image"]
    assert user["content"][1]["source"]["data"] == DATA
    assert user["content"][3]["source"] == {"type": "url", "url": URL.uri}
    inside = results["content"][0]["content"]
    assert [part["type"] for part in inside] == ["text", "image", "document"]


async def test_litellm_takes_the_forms_to_gemini() -> None:
    await load_litellm()
    gemini: Any = importlib.import_module("litellm.llms.vertex_ai.gemini.transformation")
    parts = [FilePart(one, DATA) for one in (IMAGE, PDF, SOUND, FILM)]
    messages = sent(look(*parts), *exchange(parts[0]), provider="gemini")
    contents = gemini._gemini_convert_messages_with_history(
        messages=messages, model="gemini-2.5-flash", custom_llm_provider="gemini"
    )
    inline = [part["inline_data"]["mime_type"] for part in contents[0]["parts"][1:]]
    assert inline == ["image/png", "application/pdf", "audio/wav", "video/mp4"]
    assert "image/png" in str(contents[2])


async def test_a_server_gets_an_image_as_a_part_of_the_message(play: Play) -> None:
    message = look(FilePart(IMAGE, DATA))[0]
    request = ModelRequest((message,), files={0: [FilePart(IMAGE, DATA)]})
    async with play([Reply(text="A cat.")] * 2, name="openai/gpt-4.1") as talk:
        assert (await talk.model.info()).takes == {"image", "document"}
        await talk.answer(request)
    async with play([Reply(text="What?")], name="openai/my-own-model") as blind:
        await blind.answer(request)
    async with play([Reply(text="A cat.")], takes=["image"]) as own:
        await own.answer(request)
    url = {"url": f"data:image/png;base64,{DATA}"}
    seen = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": url}]
    assert talk.server.requests[0].json["messages"][0]["content"] == seen
    assert own.server.requests[0].json["messages"][0]["content"] == seen
    assert blind.server.requests[0].json["messages"][0]["content"] == f"Look.\n{NAME}"
