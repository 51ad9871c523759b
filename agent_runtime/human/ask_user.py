"""The tool `ask_user`: a question to the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from agent_runtime.errors import ToolError
from agent_runtime.messages import ASK_USER, ToolResult, ToolSpec
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext

MAX_QUESTION = 4000
"""How many characters a question may have."""
# As many as a person reads in a list.
MAX_CHOICES = 20
MAX_CHOICE = 200
"""How many characters a choice may have."""
AskedKind = Literal["single", "multiple", "text"]
KINDS: tuple[AskedKind, ...] = ("single", "multiple", "text")
NOBODY = (
    "Nobody can be asked from here. Decide yourself if that is safe, and say what you assumed; "
    "otherwise end the task and say what is missing."
)

_DESCRIPTION = """\
Ask the user what you cannot find out and must not assume, related things in one question."""
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "kind": {
            "type": "string",
            "enum": list(KINDS),
        },
        "choices": {
            "type": "array",
            "items": {"type": "string"},
            "description": f"2 to {MAX_CHOICES}.",
        },
    },
    "required": ["question", "kind"],
}


class AskUser(Tool):
    """Asks the user.  The gate answers its calls: the run is suspended until there is an answer."""

    def __init__(self) -> None:
        super().__init__(
            name=ASK_USER, spec=ToolSpec(ASK_USER, _DESCRIPTION, _PARAMETERS), idempotent=True
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Refuse: where somebody can be asked, the gate does so before a call gets here."""
        return ToolResult(NOBODY, outcome="refused")


ask_user = AskUser()


def parse_question(arguments: Mapping[str, Any]) -> tuple[str, AskedKind, list[str]]:
    """Return the question, kind and choices of a call.

    Raises:
        ToolError: they are not valid.
    """
    question, kind = arguments.get("question"), arguments.get("kind", "text")
    choices: object = arguments.get("choices") or []
    if not isinstance(question, str) or not question.strip():
        raise ToolError("The question is missing, or is not a text.")
    if len(question) > MAX_QUESTION:
        raise ToolError(f"The question is longer than {MAX_QUESTION} characters.")
    if kind not in KINDS:
        raise ToolError(f"The kind must be one of: {', '.join(KINDS)}.")
    if not isinstance(choices, list) or not all(
        isinstance(one, str) and one.strip() for one in cast("list[object]", choices)
    ):
        raise ToolError("The choices must be a list of texts.")
    # Stripped before they are compared: people see no difference between "a" and "a ".
    given = [one.strip() for one in cast("list[str]", choices)]
    _check_choices(kind, given)
    return question.strip(), kind, given


def _check_choices(kind: str, choices: Sequence[str]) -> None:
    if kind == "text":
        if choices:
            raise ToolError("A question of kind text has no choices; use single or multiple.")
        return
    if not 2 <= len(choices) <= MAX_CHOICES:
        raise ToolError(f"A question of kind {kind} needs 2 to {MAX_CHOICES} choices.")
    if len(set(choices)) != len(choices):
        raise ToolError("A choice occurs twice.")
    if any(len(one) > MAX_CHOICE for one in choices):
        raise ToolError(f"A choice is longer than {MAX_CHOICE} characters.")
