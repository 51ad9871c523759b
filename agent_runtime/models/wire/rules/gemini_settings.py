"""What Gemini refuses of settings and tools, by generation."""

from __future__ import annotations

import re
from typing import Any, cast

from agent_runtime.models.base import Json
from agent_runtime.models.wire.rules.refusal import refuse_if

_CONFIG = {
    "candidateCount",
    "frequencyPenalty",
    "maxOutputTokens",
    "presencePenalty",
    "responseJsonSchema",
    "responseMimeType",
    "responseModalities",
    "seed",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
}
_SCHEMA = {
    "$schema",
    "const",
    "discriminator",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "title",
}
_NAMED = ("properties", "$defs")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_WITHOUT_MINIMAL = re.compile(r"gemini-(4|3\.[78]|3\.1-pro|3-pro)")


def camel(given: Json) -> Json:
    """Return an object with its own keys in the form that the documentation has."""
    return {re.sub(r"_([a-z])", lambda m: m[1].upper(), key): one for key, one in given.items()}


def check_config(model: str, given: Json) -> None:
    """Look at the configuration of a request for a model."""
    config = camel(given)
    refuse_if(config.keys() - _CONFIG, f"Unknown name {config.keys() - _CONFIG}")
    stops = cast("list[str]", config.get("stopSequences") or [])
    refuse_if(len(stops) > 5, "stop_sequences: at most 5 are allowed")
    refuse_if(config.get("maxOutputTokens", 1) < 1, "max_output_tokens must be positive")
    if model.startswith(("gemini-3", "gemini-4")):
        several = config.get("candidateCount", 1) != 1
        refuse_if(several, "Multiple candidates is not enabled for this model")
        penalized = config.keys() & {"frequencyPenalty", "presencePenalty"}
        refuse_if(penalized, "Penalty is not enabled for this model")
    if "thinkingConfig" in config:
        _check_thinking(model, camel(config["thinkingConfig"]))


def _check_thinking(model: str, thinking: Json) -> None:
    unknown = thinking.keys() - {"includeThoughts", "thinkingBudget", "thinkingLevel"}
    refuse_if(unknown, f"Unknown name {unknown}")
    budget, level = thinking.get("thinkingBudget"), str(thinking.get("thinkingLevel", "")).upper()
    both = budget is not None and level
    refuse_if(both, "You can only set only one of thinking budget and thinking level.")
    if not model.startswith("gemini-2"):
        refuse_if(level == "MINIMAL" and _WITHOUT_MINIMAL.match(model), "Thinking level MINIMAL")
        known = ("", "MINIMAL", "LOW", "MEDIUM", "HIGH")
        refuse_if(level not in known, f"Invalid value at 'thinking_level': {level}")
        refuse_if(budget is not None, "Thinking budget is not supported for this model")
        return
    refuse_if(not model.startswith("gemini-2.5"), "Thinking is not enabled for this model")
    refuse_if(level, "Thinking level is not supported for this model.")
    if budget is None or budget == -1:
        return
    pro = "pro" in model
    refuse_if(budget == 0 and pro, "Budget 0 is invalid. This model only works in thinking mode.")
    least, most = (128, 32_768) if pro else (512 if "lite" in model else 0, 24_576)
    outside = budget != 0 and not least <= budget <= most
    refuse_if(outside, f"The thinking budget {budget} is invalid. Please choose a value between")


def check_tools(body: Json) -> None:
    """Look at the tools of a request, and at how it wants them called."""
    names: list[str] = []
    for tool in map(camel, body.get("tools") or []):
        for one in map(camel, tool.get("functionDeclarations") or []):
            refuse_if(not _NAME.fullmatch(one["name"]), f"Invalid function name {one['name']}")
            names.append(one["name"])
            both = "parameters" in one and "parametersJsonSchema" in one
            refuse_if(both, "parameters and parameters_json_schema are exclusive")
            _check_schema(one["name"], one.get("parametersJsonSchema", {}))
    refuse_if(len(names) != len(set(names)), "Duplicate function declaration found")
    if "toolConfig" not in body:
        return
    refuse_if(not names, "Function calling config is set without function_declarations.")
    choice = camel(camel(body["toolConfig"])["functionCallingConfig"])
    refuse_if(choice["mode"] not in ("AUTO", "ANY", "NONE", "VALIDATED"), "Invalid mode")
    allowed = choice.get("allowedFunctionNames")
    refuse_if(allowed and choice["mode"] not in ("ANY", "VALIDATED"), "allowed_function_names")
    refuse_if(set(allowed or ()) - set(names), "allowed_function_names: not declared")


def _check_schema(where: str, schema: Any) -> None:
    if isinstance(schema, list):
        for one in cast("list[Any]", schema):
            _check_schema(where, one)
    if not isinstance(schema, dict):
        return
    given = cast(Json, schema)
    refuse_if(given.keys() & _SCHEMA, f"Unknown name \"{given.keys() & _SCHEMA}\" at '{where}'")
    dated = given.get("type") == "string" and "format" in given
    refuse_if(dated, f"only 'enum' and 'date-time' are supported for STRING type ({where})")
    for key, value in given.items():
        if key in _NAMED:
            for name, inner in cast(Json, value).items():
                _check_schema(f"{where}.{name}", inner)
        elif key not in ("enum", "default", "required"):
            _check_schema(where, value)
