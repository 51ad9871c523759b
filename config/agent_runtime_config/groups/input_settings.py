"""Settings of how much may come in."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from agent_runtime_config.fields import Count


class InputSettings(BaseSettings):
    """The limits of messages, inboxes and titles."""

    max_message_chars: Annotated[int, Field(ge=1000, le=1_000_000)] = Field(
        default=200_000,
        description="The most characters of a message that stand in prompts: a task, or a message "
        "to a run, of which it is 20000 at most. The text of a longer one is kept as a file of the "
        "thread, which `recall` opens.",
    )
    max_inbox_messages: Count = Field(
        default=100, description="How many messages to runs may wait on a thread; no more are sent."
    )
    max_user_inbox_messages: Count = Field(
        default=1_000, description="The same, on all threads of a user together."
    )
    max_title_chars: Annotated[int, Field(ge=80, le=10_000)] = Field(
        default=500,
        description="The most characters of a thread's title. A longer one is refused; an import "
        "cuts it. The title that a first task gives has at most 80.",
    )
