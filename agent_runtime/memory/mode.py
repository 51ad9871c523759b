"""What an agent remembers of a conversation: the modes of Dify's `MemoryConfig`, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MAX_TOKENS = 2000
"""How many tokens of history are given by default, in our count."""
MAX_MESSAGES = 500
"""How many messages of history are given by default."""


class MemoryMode(StrEnum):
    """What a run begins with: its thread's own messages, or those of its node.

    With `conversation` a thread is the memory, as always.  With `node` each run has a thread of
    its own, which begins with what the same node said and was told earlier in the conversation.
    """

    CONVERSATION = "conversation"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class RolePrefix:
    """What stands before what each said, where a history is given as plain text."""

    user: str = "Human"
    assistant: str = "Assistant"


@dataclass(frozen=True, slots=True)
class MemoryWindow:
    """A limit to the number of messages, which can be switched off.

    Attributes:
        size: the most messages; turns are kept whole.
    """

    enabled: bool = True
    size: int = MAX_MESSAGES

    def limit(self, otherwise: int) -> int:
        """Return the most messages that are given; `otherwise` while it is off."""
        return self.size if self.enabled else otherwise


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How an agent remembers.

    Attributes:
        app_id: with the ids below the key of a node's memory.
        conversation_id: None for the thread that is given to the run, or for a child run the
            thread of the run at the root of its tree.
        node_id: None for the agent's name.
        max_token_limit: the most tokens of history, in our count.
        window: the most messages of history.
        compressed: whether the node's document is kept compressed.
    """

    mode: MemoryMode = MemoryMode.CONVERSATION
    app_id: str = "default"
    conversation_id: str | None = None
    node_id: str | None = None
    max_token_limit: int = MAX_TOKENS
    window: MemoryWindow = field(default_factory=MemoryWindow)
    compressed: bool = False
