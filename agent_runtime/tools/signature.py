"""Turn a function's signature and docstring into a JSON schema, and a model's arguments back."""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaWarningKind
from pydantic_core.core_schema import CoreSchema, WithDefaultSchema

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.tools.argument_repair import repaired

_ARGS = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ARG = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function, as a model sees them.

    Attributes:
        description: the docstring without its `Args:`.
        schema: a JSON schema of type object.
        context: the name of the parameter for the context; None if there is none.
    """

    description: str
    schema: dict[str, Any]
    context: str | None
    _arguments: type[BaseModel]

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments to call the function with.

        Raises:
            ToolError: an argument is missing, unknown or of the wrong type.
        """
        model, _ = self._validated(arguments)
        return {
            typing.cast("str", info.alias): getattr(model, name)
            for name, info in self._arguments.model_fields.items()
        }

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the function's arguments as JSON.

        Fields of models are left out if they have the default None or False.

        Raises:
            ToolError: an argument is missing, unknown, of the wrong type, or has no JSON form.
        """
        try:
            model, used = self._validated(arguments)
            made = model.model_dump(mode="json", by_alias=True, warnings=False, fallback=str)
        except (PydanticUserError, ValueError, TypeError, AttributeError) as error:
            raise ToolError(f"The arguments cannot be written as JSON: {error}") from None
        held = {info.alias: getattr(model, name) for name, info in type(model).model_fields.items()}
        return {
            name: _complete(_as_held(held.get(name), value), used.get(name))
            for name, value in made.items()
        }

    def _validated(self, arguments: Mapping[str, Any]) -> tuple[BaseModel, Mapping[str, Any]]:
        """Return the arguments as a model, and as they were given or repaired."""
        try:
            return self._arguments.model_validate(arguments), arguments
        except ValidationError as error:
            if (other := repaired(arguments, error)) is not None:
                with suppress(ValidationError):
                    return self._arguments.model_validate(other), other
            known = [info.alias for info in self._arguments.model_fields.values()]
            raise ToolError(_problems(error, ", ".join(map(str, known)))) from None


def read_signature(function: Callable[..., Any], context_type: type) -> Signature:
    """Return the signature of a function as a tool.

    Raises:
        ConfigError: a parameter cannot be passed by name or has no usable type hint.
    """
    name = function_name(function)
    hints = _hints(function, name)
    description, described = read_docstring(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        hint = _hint(name, parameter, hints)
        if context_type in (hint, typing.get_origin(hint)):
            if context is not None:
                raise _unusable(name, parameter.name, "is a second context", "Take only one.")
            context = parameter.name
        else:
            # The alias is the real name: a field could not be called `copy` or `_private`.
            fields[f"argument_{len(fields)}"] = _field(parameter, hint, described)
    try:
        arguments: type[BaseModel] = create_model(
            name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
        )
        schema = arguments.model_json_schema(schema_generator=_Schema)
    except (PydanticUserError, TypeError, NameError) as error:
        raise ConfigError(
            f"The tool {name} has a type hint without a JSON schema: {error}",
            cure="Use types that JSON can carry: plain types, pydantic models, dataclasses.",
        ) from error
    return Signature(description, schema, context, arguments)


def function_name(function: Callable[..., Any]) -> str:
    """Return the function's name. Raises `ConfigError` if it has none."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"{function!r} has no name, so it cannot be a tool.", cure="Wrap it in a function."
        )
    return name


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function is async.  Raises `ConfigError` for a generator."""
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(
            f"The tool {function_name(function)} is a generator; a tool has one result.",
            cure="Return a list, or the joined text.",
        )
    return inspect.iscoroutinefunction(target)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return a docstring without its `Args:`, and the parameters' descriptions from these."""
    kept: list[str] = []
    described: dict[str, str] = {}
    inside = False
    name, depth = "", 0
    for line in text.splitlines():
        if _ARGS.match(line):
            inside, name = True, ""
        elif not inside or (line and not line[0].isspace()):
            inside = False
            kept.append(line)
        # Indented further, a line with a colon belongs to the description before it.
        elif (match := _ARG.match(line)) and (not name or _indent(line) <= depth):
            name, depth = match[1], _indent(line)
            described[name] = match[2]
        elif name:
            described[name] = f"{described[name]} {line.strip()}".strip()
    return "\n".join(kept).strip(), described


def _problems(error: ValidationError, known: str) -> str:
    """Describe invalid arguments for the model, one line per problem."""
    lines = ["The arguments are not valid, so the call was not made:"]
    for one in error.errors(include_url=False, include_input=False):
        where = ".".join(map(str, one["loc"])) or "arguments"
        what = one["msg"]
        if one["type"] == "missing":
            what = "is missing"
        elif one["type"] == "extra_forbidden" and len(one["loc"]) == 1:
            what = f"there is no such argument; there are: {known or 'none'}"
        lines.append(f"- {where}: {what}")
    return "\n".join(lines)


def _as_held(held: Any, made: Any) -> Any:
    """Return a value's JSON form with its texts and numbers as the function gets them.

    A type may serialize itself shortened, or with another text.
    """
    if type(held) in (str, int, float, bool):
        return held
    if isinstance(made, list):
        news = cast("list[Any]", made)
        olds = list(cast("Sequence[Any]", held)) if isinstance(held, list | tuple) else []
        if len(olds) != len(news):
            return news
        return [_as_held(old, new) for old, new in zip(olds, news, strict=True)]
    if isinstance(made, dict):
        within = _parts_of(held)
        pairs = cast("dict[str, Any]", made).items()
        return {key: _as_held(within.get(key), one) for key, one in pairs}
    return made


def _parts_of(held: object) -> dict[Any, Any]:
    """Return the values inside of a value, by the names that they have in its JSON form."""
    if isinstance(held, BaseModel):
        fields = type(held).model_fields.items()
        return {
            info.serialization_alias or info.alias or name: getattr(held, name)
            for name, info in fields
        }
    if isinstance(held, dict):
        return dict(cast("dict[Any, Any]", held))
    return dict(cast("dict[Any, Any]", getattr(held, "__dict__", {})))


def _complete(made: Any, given: Any) -> Any:
    """Return a coerced value with whatever its JSON form lost of the given one.

    A type may serialize itself without some fields, or with masked values.
    """
    if isinstance(made, dict):
        old = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        new = cast("dict[str, Any]", made)
        kept = {key: _complete(one, old.get(key)) for key, one in new.items()
                if key in old or (one is not None and one is not False)}  # fmt: skip
        return {**{key: one for key, one in old.items() if key not in new}, **kept}
    if isinstance(made, list):
        news = cast("list[Any]", made)
        olds = cast("list[Any]", given) if isinstance(given, list) else []
        return [_complete(one, olds[n] if n < len(olds) else None) for n, one in enumerate(news)]
    # A secret type writes itself as stars, and a person has to see what would run.
    hidden = made is None or (isinstance(made, str) and not made.strip("*"))
    if hidden and given is not None:
        return given
    # The store's JSON cannot hold such integers, and turns such floats into null.
    large = isinstance(made, int) and not -(1 << 63) <= made < 1 << 63
    endless = isinstance(made, float) and not math.isfinite(made)
    return str(made) if large or endless else made


class _Schema(GenerateJsonSchema):
    """Leaves out what says nothing to a model and costs tokens in every prompt.

    That are titles, which repeat names, the defaults that any absent argument has, and that there
    are no other arguments: the error for such a call names those that there are.
    """

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        made = super().generate(schema, mode)
        for one in (made, *made.get("$defs", {}).values()):
            one.pop("title", None)
            # Without it a tool that takes no arguments would seem to take any.
            if one.get("properties") and one.get("additionalProperties") is False:
                del one["additionalProperties"]
        return made

    def default_schema(self, schema: WithDefaultSchema) -> dict[str, Any]:
        made = super().default_schema(schema)
        if "default" not in made or made["default"] not in (None, "", False):
            return made
        kinds: list[dict[str, Any]] = made.get("anyOf", [])
        # An optional argument: a model leaves it out rather than sending null.
        if made.pop("default") is None and len(kinds) == 2 and kinds[1] == {"type": "null"}:
            del made["anyOf"]
            return {**kinds[0], **made}
        return made

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        # A default without a JSON form is used, but not shown.
        if kind != "non-serializable-default":
            super().emit_warning(kind, detail)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"A type hint of the tool {name} cannot be resolved: {error}",
            cure="Import it, or define it, at the top level of the module and outside of "
            "`if TYPE_CHECKING`.",
        ) from error


def _hint(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        shown = f"{stars}{parameter.name}"
        raise _unusable(name, shown, "takes any number", "Take a list or a dict.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise _unusable(name, parameter.name, "is positional-only", "Remove the `/`.")
    if isinstance(parameter.default, FieldInfo):
        raise _unusable(
            name,
            parameter.name,
            "has a `Field` as its default",
            "Write `Annotated[..., Field(...)]` and the plain default.",
        )
    if parameter.name not in hints:
        cure = f"Annotate it, as in `{parameter.name}: str`."
        if parameter.name in ("self", "cls"):
            cure = "Make a tool of the bound method: `tool(instance.method)`."
        raise _unusable(name, parameter.name, "has no type hint", cure)
    return hints[parameter.name]


def _field(parameter: inspect.Parameter, hint: Any, described: Mapping[str, str]) -> Any:
    options: dict[str, Any] = {"alias": parameter.name}
    if parameter.default is not parameter.empty:
        options["default"] = parameter.default
    if parameter.name in described and FieldInfo.from_annotation(hint).description is None:
        options["description"] = described[parameter.name]
    return hint, Field(**options)


def _unusable(name: str, parameter: str, reason: str, cure: str) -> ConfigError:
    return ConfigError(f"The parameter {parameter} of the tool {name} {reason}.", cure=cure)
