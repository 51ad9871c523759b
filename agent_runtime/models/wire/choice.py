"""Choose the wire of a model, and address it."""

from __future__ import annotations

from collections.abc import Collection

from agent_runtime.messages import FileKind
from agent_runtime.models.catalog import entry_of, provider_of
from agent_runtime.models.wire.base import Target, Wire
from agent_runtime.models.wire.servers import WireName, server_of, url_of, wire_of


def can_call(name: str, base_url: str | None = None) -> bool:
    """Return whether there is a wire of ours for a model's full name."""
    server = server_of(provider_of(name))
    return server is not None and bool(url_of(server, base_url))


def target_of(
    name: str,
    *,
    base_url: str | None = None,
    key: str = "",
    takes: Collection[FileKind] = (),
    marks: bool = False,
    max_output: int = 0,
) -> tuple[Target, WireName]:
    """Return a model as its wire addresses it, and the name of that wire.

    Args:
        name: its full name; its provider has a server.
        base_url: the user's; None for the provider's own.
        max_output: the most tokens of an answer; 0 if that is not known.
    """
    provider = provider_of(name)
    server = server_of(provider)
    # Whoever asks knows that the provider has one.
    assert server is not None
    entry = entry_of(name)
    url, own = url_of(server, base_url), url_of(server, None)
    model = name.partition("/")[2] if "/" in name else name
    wire = wire_of(model, server, entry, own_host=url == own)
    target = Target(
        name=name,
        provider=provider,
        model=model.removeprefix("responses/"),
        base_url=url,
        key=key,
        # Rules of the provider's own API hold there only; what stands at another address is
        # merely compatible.
        own_host=url == own,
        takes=frozenset(takes),
        marks=marks,
        max_output=max_output,
        entry=entry,
    )
    return target, wire


def wire_for(target: Target, wire: WireName) -> Wire:
    """Return the wire for a model; loads its module."""
    match wire:
        case "chat":
            from agent_runtime.models.wire.chat import ChatWire

            return ChatWire(target)
        case "responses":
            from agent_runtime.models.wire.responses import ResponsesWire

            return ResponsesWire(target)
        case "messages":
            from agent_runtime.models.wire.messages import MessagesWire

            return MessagesWire(target)
        case "gemini":
            from agent_runtime.models.wire.gemini import GeminiWire

            return GeminiWire(target)
