"""Split a stream of server-sent events, by the HTML standard's rules."""

from __future__ import annotations

from collections.abc import Iterator

from agent_runtime.models.wire.base import ServerEvent

_LONGEST = 64 * 1024 * 1024
"""Bytes of one event; a stream without an end of event would otherwise fill the memory."""


class SseParser:
    """Turns chunks of bytes into events; comments and empty events are dropped."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._return = False
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._bare = False

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Add a chunk; yield the events that it completes.

        Raises:
            ValueError: an event is too long.
        """
        if self._return:
            chunk, self._return = b"\r" + chunk, False
        if b"\r" in chunk:
            # The next chunk may begin with the second character of this line end.
            self._return = chunk.endswith(b"\r")
            chunk = chunk.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        # Only the chunk is searched, so that a long line is not read again and again.
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._line += chunk
            self._check(len(self._line))
            return
        complete = bytes(self._line) + chunk[:end]
        self._line[:] = chunk[end:]
        for line in complete.split(b"\n")[:-1]:
            if line:
                self._field(line)
            elif (event := self._event()) is not None:
                yield event

    def close(self) -> Iterator[ServerEvent]:
        """Yield the event that the end of the stream completes; some servers omit its last line."""
        yield from self.feed(b"\n")
        if (event := self._event()) is not None:
            yield event

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif self._bare or line.startswith((b"{", b"[")):
            # Some servers send an error in mid-stream as bare JSON, which may have several lines.
            self._bare = True
            self._add(line)

    def _event(self) -> ServerEvent | None:
        name, data = self._name, b"\n".join(self._data)
        self._name, self._data, self._size, self._bare = "", [], 0, False
        return ServerEvent(name, data) if data else None

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data)
        self._check(self._size)

    def _check(self, size: int) -> None:
        if size > _LONGEST:
            raise ValueError(f"an event of more than {_LONGEST} bytes")
