"""What can go wrong with a request to a server."""

from __future__ import annotations


class ToolChanged(Exception):
    """A tool is not what it was when its call was checked: nothing was sent."""


class CallLost(Exception):
    """The connection ended while a request was on its way: its effect is not known."""


class McpErrorAnswer(Exception):
    """A server answers a request with an error; the text is safe to show."""
