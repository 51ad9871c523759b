"""The root of every error that the runtime raises on purpose.

It lives here because imports run one way (config, then storage, then the engine), and all three
raise errors of one hierarchy.  `agent_runtime.errors` draws the whole of it.
"""

from __future__ import annotations


class AgentRuntimeError(Exception):
    """Something went wrong that the caller can act on.

    Cause: see the subclass.
    Cure: `.cure` says what to do.

    Args:
        message: what happened and why, without secrets.
        cure: what the reader can do about it; empty where there is nothing to do.
    """

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        # A message that ends with a quoted text must not look as if the cure belonged to it.
        gap = "\n" if "\n" in self.message.rstrip() else " "
        return f"{self.message.rstrip()}{gap}{self.cure}".rstrip()


class ConfigError(AgentRuntimeError):
    """A setting, a model name or an agent is not usable; the message names it.

    Cause: a misspelt variable, a value out of range, or arguments that exclude each other.
    Cure: correct what the message names; `agent-runtime config` shows every value and its origin.
    """
