"""Assemble a model's answer from the pieces of its stream, whichever transport carries them."""

from __future__ import annotations

from collections.abc import Iterator

from agent_runtime.errors import ModelProtocolError
from agent_runtime.messages import Opaque, encodable
from agent_runtime.models.base import (
    FinishReason,
    Json,
    ModelAnswer,
    RawCall,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
)
from agent_runtime.models.finish_reasons import reason_of


class _Text:
    """The text of a stream; joins a character whose two surrogates arrive in different pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Add a piece; return the new text that is complete."""
        self._pieces.append(piece)
        # Nearly every piece, so this costs no copy.
        if not self._half and piece.isascii():
            return piece
        text = self._half + piece
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return encodable(text.removesuffix(self._half))

    def __str__(self) -> str:
        return encodable("".join(self._pieces))


class AnswerBuilder:
    """One answer in the making.

    Attributes:
        word: the provider's finish reason; empty until the answer ends.
        refusal: the text that the provider marked as a refusal.
        calls: the tool calls, in order.
        files: the files that the model made, as `data:` URLs.
        usage: as last reported.
        data: what the provider needs back.
        reported_model: the name under which the provider answers.
    """

    def __init__(self, model: str) -> None:
        self.word = ""
        self.refusal = ""
        self.calls: list[RawCall] = []
        self.files: list[str] = []
        self.usage: TokenUsage | None = None
        self.data: Json = {}
        self.reported_model = ""
        self._model = model
        self._text = _Text()
        self._reasoning = _Text()

    def say(self, piece: str) -> Iterator[TextDelta]:
        """Add a piece of text; yield what of it is complete."""
        if piece and (text := self._text.add(piece)):
            yield TextDelta(text)

    def think(self, piece: str) -> Iterator[ReasoningDelta]:
        """Add a piece of readable reasoning; yield what of it is complete."""
        if piece and (text := self._reasoning.add(piece)):
            yield ReasoningDelta(text)

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self._text)

    @property
    def reasoning(self) -> str:
        """The readable reasoning so far."""
        return str(self._reasoning)

    @property
    def finish(self) -> FinishReason:
        """The meaning of the finish reason; `broken` where there is none."""
        if self.refusal:
            return "refusal"
        return reason_of(self.word) if self.word else "broken"

    def answer(self) -> ModelAnswer:
        """Return the whole answer, without its cost.

        Raises:
            ModelProtocolError: the stream ended in the middle, or the answer is empty though
                nothing kept the model from answering.
        """
        finish = self.finish
        if not self.word or finish == "broken":
            why = f" ({self.word})" if self.word else ""
            raise ModelProtocolError(
                f"The answer of {self._model} broke off in the middle{why}.",
                cure="Try again; if it persists, look at the provider's status.",
            )
        text = self.text or encodable(self.refusal)
        if not (self.calls or text.strip() or self.files) and finish in (
            "stop",
            "tool_calls",
            "pause",
        ):
            raise ModelProtocolError(
                f"{self._model} answered nothing: neither text nor a call.",
                cure="Try again, or use another model.",
            )
        # It meant to call something, and what it wrote was no call.
        if finish == "tool_calls" and not self.calls:
            finish = "malformed"
        return ModelAnswer(
            text=text,
            calls=tuple(self.calls),
            # Several providers end an answer with calls by `stop`.
            finish="tool_calls" if self.calls and finish in ("stop", "pause") else finish,
            word=self.word,
            model=self._model,
            usage=self.usage,
            reasoning=self.reasoning,
            opaque=Opaque(self._model, self.data) if self.data else None,
            extra={"reported_model": self.reported_model},
            files=tuple(self.files),
        )
