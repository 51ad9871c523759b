"""Structured output: a final tool through which the model returns a value of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import orjson

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.messages import AssistantMessage, ToolResult, ToolSpec
from agent_runtime.prompt.incomplete_answers import AnswerCutoff, asks_again
from agent_runtime.prompt.view import View
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.schema_references import references
from agent_runtime_storage.contract.records.log import Finish

FINAL = "final_result"
RETRIES = 3
"""How often an invalid output is rejected before the run fails."""
ASK = (
    f"A text is not accepted as the answer. Call the tool {FINAL} with the result of the task; "
    "nothing else ends it."
)


@dataclass(frozen=True, slots=True)
class OutputType:
    """The type of a run's output."""

    adapter: Any
    spec: ToolSpec
    wrapped: bool
    """Whether the value is wrapped as `{"value": …}`, because it is not a JSON object."""

    def validate(self, arguments: dict[str, Any]) -> Any:
        """Return the output's value.  Raises `ToolError` if it is not valid."""
        from pydantic import ValidationError

        try:
            return self.adapter.validate_python(arguments["value"] if self.wrapped else arguments)
        except KeyError:
            raise ToolError("The argument 'value' is missing.") from None
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'value'}: {one['msg']}"
                for one in error.errors(include_url=False, include_input=False)
            )
            raise ToolError(f"The result is not valid: {problems}") from None

    def from_text(self, text: str) -> dict[str, Any] | None:
        """Return the tool's arguments if the text is a valid value in JSON, else None."""
        # Many models write a code block around JSON, whatever they are asked for.
        try:
            value = orjson.loads(text.strip().removeprefix("```json").strip("`\n "))
            arguments: dict[str, Any] = {"value": value} if self.wrapped else value
            self.validate(arguments)
        except (orjson.JSONDecodeError, ToolError, TypeError):
            return None
        return arguments


def output_type(wanted: Any) -> OutputType:
    """Return the output type for anything that pydantic can validate.

    Raises:
        ConfigError: it has no JSON schema.
    """
    from pydantic import PydanticUserError, TypeAdapter

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = adapter.json_schema()
    except PydanticUserError as error:
        raise ConfigError(
            f"output_type={wanted!r} has no JSON schema: {error.message}",
            cure="Use a pydantic model, a dataclass or a plain type.",
        ) from error
    # Providers take only objects with properties as the parameters of a tool.
    wrapped = schema.get("type") != "object" or "properties" not in schema
    if wrapped:
        definitions = schema.pop("$defs", None)
        schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
        if definitions:
            # References name the definitions from the top of the schema.
            schema["$defs"] = definitions
    spec = ToolSpec(FINAL, "Return the result of the task. This ends the task.", schema)
    return OutputType(adapter, spec, wrapped)


@dataclass(frozen=True, slots=True)
class _BySchema:
    """Pydantic support for a JSON schema as a type: its values are those that are valid by it."""

    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from jsonschema import ValidationError
        from jsonschema.validators import validator_for
        from pydantic_core import PydanticCustomError, core_schema

        validator = validator_for(self.schema)(self.schema)

        def check(value: Any) -> Any:
            try:
                validator.validate(value)
            except ValidationError as error:
                # The text goes to the model; pydantic would fill in braces in a template.
                text = f"{error.json_path}: {error.message}"[:500]
                raise PydanticCustomError("json_schema", "{text}", {"text": text}) from None
            return value

        return core_schema.no_info_plain_validator_function(check)

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return dict(self.schema)


def schema_type(schema: dict[str, Any]) -> Any:
    """Return an `output_type` for the values that are valid by a JSON schema.

    Raises:
        ConfigError: the schema is not valid, or refers to another document.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise ConfigError(
            f"The output schema is no JSON schema: {error.json_path}: {error.message[:300]}",
            cure="Correct it, or leave it out for an answer in text.",
        ) from None
    if any(not one.startswith("#") for one in references(schema)):
        # A schema must not make this machine open URLs.
        raise ConfigError(
            "The output schema refers to another document.", cure="Put all of it in one schema."
        )
    return Annotated[Any, _BySchema(schema)]


class FinalTool(Tool):
    """The tool that accepts a run's output."""

    def __init__(self, output: OutputType) -> None:
        self.output = output
        super().__init__(
            name=FINAL, description=output.spec.description, spec=output.spec, idempotent=True
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Accept the arguments as the run's output, or return what is wrong with them."""
        try:
            self.output.validate(arguments)
        except ToolError as error:
            return ToolResult(str(error), outcome="error")
        return ToolResult("Accepted.")


def accepted_output(view: View) -> dict[str, Any] | None:
    """Return the output's arguments if the branch ends in an exchange that accepted them."""
    entry = next((one for one in reversed(view.entries) if one.results), None)
    if entry is None or not isinstance(entry.message, AssistantMessage):
        return None
    if view.entries[-1] is not entry:
        # A later message has to be answered first.
        return None
    for call, result in zip(entry.message.calls, entry.results, strict=True):
        if call.name == FINAL and result.outcome == "ok":
            return call.arguments
    return None


def no_output(cutoff: AnswerCutoff | None) -> Finish:
    """Return the end of a run whose model never gave a valid output."""
    detail = f"The model gave no valid output in {RETRIES + 1} attempts."
    if cutoff is None:
        return Finish("failed", "error", detail)
    return Finish("failed", "length", f"{detail} The last was cut at {cutoff.at}. {cutoff.cure}")


def count_rejected_outputs(view: View) -> int:
    """Return how many answers at the branch's end gave no valid output."""
    count, unfinished = 0, False
    for entry in reversed(view.entries):
        message = entry.message
        if asks_again(entry):
            unfinished = True
        elif isinstance(message, AssistantMessage):
            if unfinished and not message.calls:
                unfinished = False
                continue
            if not any(call.name == FINAL for call in message.calls) and message.calls:
                break
            count += 1
        # A new task begins its own count.
        elif message.type == "user":
            break
    return count
