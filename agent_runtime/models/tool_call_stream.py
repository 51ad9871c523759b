"""Assemble tool calls from the fragments of a stream.

By the specification, `index` assigns a fragment to its call, and a call's first fragment has its id
and name.  Compatible servers omit the index or send 0 for all, repeat id and name in each fragment,
send a new id with each, or send whole calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

SIGNATURE = "__thought__"
"""Separates a tool call's id from a signature of Gemini's."""
_TOKEN = re.compile(r'\\.?|["{}]', re.DOTALL)


class _Braces:
    """Tracks whether the text so far is a whole JSON object; reads each piece once."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self.closed = False

    def add(self, piece: str) -> None:
        """Read the next piece."""
        start = 1 if self._escaped and piece else 0
        self._escaped = self._escaped and not piece
        for token in _TOKEN.findall(piece, start):
            if token == '"':
                self._quoted = not self._quoted
            elif token == "\\":
                self._escaped = True
            elif not self._quoted and token in "{}":
                self._depth += 1 if token == "{" else -1
                self.closed = self._depth <= 0


@dataclass(slots=True)
class PartialCall:
    """A tool call that is being streamed."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    signature: str | None = None
    braces: _Braces = field(default_factory=_Braces)
    named_again: bool = False
    """Whether its name was repeated after its end: further arguments begin another call."""


class ToolCallAssembler:
    """Collects the fragments of an answer's calls.

    Attributes:
        opened: the calls, in the order of their beginning.
    """

    def __init__(self) -> None:
        self.opened: list[PartialCall] = []
        self._at: dict[int, PartialCall] = {}
        self._known: dict[tuple[str, int | None], PartialCall] = {}

    def add(self, fragment: Any) -> bool:
        """Add a fragment; return whether it begins a call."""
        identity, _, signature = (fragment.id or "").partition(SIGNATURE)
        function = fragment.function
        name = (function.name or "") if function is not None else ""
        arguments = arguments_text(function.arguments) if function is not None else ""
        extra = cast("dict[str, Any]", getattr(fragment, "provider_specific_fields", None) or {})
        signature = extra.get("thought_signature") or signature
        return self.add_piece(fragment.index or 0, identity, name, arguments, signature)

    def add_piece(
        self, index: int, identity: str, name: str, arguments: str, signature: str | None = None
    ) -> bool:
        """Add the parts of a fragment, each empty where it has none; return whether it begins a
        call.
        """
        call = self._continued(index, identity, name, arguments)
        if begins := call is None:
            if not identity and not name and index in self._at:
                name = self._at[index].name
            call = self._at[index] = PartialCall(index)
            self.opened.append(call)
        elif name and call.braces.closed:
            call.named_again = True
        if identity and not call.id:
            call.id = identity
            self._known[identity, index] = self._known[identity, None] = call
        # The first name counts: some servers repeat it with each fragment.
        call.name = call.name or name
        call.arguments.append(arguments)
        call.braces.add(arguments)
        call.signature = signature or call.signature
        return begins

    def _continued(
        self, index: int, identity: str, name: str, arguments: str
    ) -> PartialCall | None:
        """Return the call that a fragment belongs to; None if it begins one."""
        # Some servers give all calls the same id, so a name at another index begins a call.
        known = self._known.get((identity, index))
        if known is None and not name:
            known = self._known.get((identity, None))
        if known is not None:
            return known if _fits(known, name, arguments) else None
        call = self._at.get(index)
        if call is None:
            # Without id and name it cannot begin a call.
            return self.opened[-1] if self.opened and not identity and not name else None
        if identity and call.id and (name or (call.braces.closed and arguments.strip())):
            return None
        if not identity and not name and call.braces.closed:
            if call.named_again and arguments.strip():
                return None
            # Without indices, it belongs to the call that is still open.
            return next((one for one in reversed(self.opened) if not one.braces.closed), call)
        return call if _fits(call, name, arguments) else None


def _fits(call: PartialCall, name: str, arguments: str) -> bool:
    """Return whether a fragment with this name and these arguments can continue a call."""
    if not name or not call.name:
        return True
    return name == call.name and not (call.braces.closed and arguments.strip())


def arguments_text(arguments: object) -> str:
    # Some servers send the object itself instead of text.
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return orjson.dumps(arguments).decode()
