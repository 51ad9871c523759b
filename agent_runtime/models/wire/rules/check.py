"""Check a request by the rules of the provider that it is for, before it is sent.

A provider's refusal of a prompt comes late: in production, and only from the provider that is
called.  Here the prompt is encoded as it would be sent and checked by the documented rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import orjson

from agent_runtime.errors import InvariantError
from agent_runtime.models.base import Json, ModelRequest
from agent_runtime.models.catalog import (
    full_name,
    known_output,
    provider_of,
    takes_files,
    takes_marks,
)
from agent_runtime.models.wire.base import Target, Wire
from agent_runtime.models.wire.choice import target_of, wire_for
from agent_runtime.models.wire.rules import chat, gemini, messages, responses
from agent_runtime.models.wire.rules.refusal import RefusedError
from agent_runtime.models.wire.servers import WireName, server_of

# One model for each wire, for models that have none: a prompt has to suit every provider, because
# a run may be resumed with another model.
_ANY = (
    "anthropic/claude-sonnet-4-5",
    "openai/gpt-4o",
    "openai/gpt-5.4",
    "gemini/gemini-3-pro-preview",
)
# What compatible servers take of assistants in addition to OpenAI's fields.  They are called under
# OpenAI's name too, at a base URL that a model's name does not say.
_COMPATIBLE = frozenset({"reasoning_content", "reasoning_details"})


def check_request(request: ModelRequest, model: str) -> None:
    """Check a request for a model by its name, or for several with commas between them.

    Raises:
        InvariantError: its provider would refuse it; without a wire of ours, any provider would.
    """
    names = tuple(_names(model))
    if names == _ANY:
        # What is added to a body is meant for one provider.
        request = replace(request, settings=replace(request.settings, extra_body={}))
    for name in names:
        wire_name, wire, target = _wire(name)
        pieces = [
            wire.piece(message, request.files.get(index, ()), mark=index in request.marks)
            for index, message in enumerate(request.messages)
        ]
        body = orjson.loads(wire.request(request, pieces, wire.tools(request)).body)
        try:
            check_body(body, wire_name, target)
        except RefusedError as refused:
            raise InvariantError(f"{name} would refuse the request: {refused}") from refused


def check_body(body: Json, wire: WireName, target: Target) -> None:
    """Check the body of a request.

    Raises:
        RefusedError: the provider would refuse it.
    """
    match wire:
        case "messages":
            messages.check_request(body)
        case "chat":
            chat.check_request(body, more=_COMPATIBLE)
        case "responses":
            plain = target.provider == "xai"
            responses.check_request(body, responses.ResponsesModel(plain_results=plain))
        case "gemini":
            gemini.check_request(body, target.model)


def _names(model: str) -> Iterator[str]:
    for name in map(full_name, model.split(",")):
        if server_of(provider_of(name)) is None:
            yield from _ANY
        else:
            yield name


@functools.lru_cache(maxsize=32)
def _wire(name: str) -> tuple[WireName, Wire, Target]:
    """Return the wire of a model at its provider's own address, without a key."""
    target, wire = target_of(
        name,
        takes=takes_files(name),
        marks=takes_marks(name),
        # A scripted model's answers may be longer than those of the model that stands for it.
        max_output=known_output(name) or 0,
    )
    return wire, wire_for(target, wire), target
