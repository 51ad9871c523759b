"""The OpenAPI 3.1 description of the service, made from the declarations of its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agent_runtime.server.operations import KEY_HEADER, Operation
from agent_runtime.server.problems import MEDIA_TYPE, ProblemDetails

_REF = "#/components/schemas/{model}"


def openapi_of(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the description of the operations."""
    inputs = {one for op in operations for one in (op.query, op.body) if one is not None}
    outputs = {ProblemDetails, *(op.answer for op in operations if op.answer is not None)}
    models: list[tuple[type[BaseModel], Any]] = [
        *((one, "validation") for one in sorted(inputs, key=_name)),
        *((one, "serialization") for one in sorted(outputs, key=_name)),
    ]
    # All at once: two models of one name get different references.
    refs, schema = models_json_schema(models, ref_template=_REF)
    schemas: dict[str, Any] = dict(schema.get("$defs", {}))
    queries = {op.query: schemas for op in operations if op.query is not None}
    paths: dict[str, dict[str, Any]] = {}
    for op in operations:
        described = _operation(op, refs, schemas)
        paths.setdefault(f"/api{op.path}", {})[op.method.lower()] = described
    # They stand among the parameters.
    for query in queries:
        schemas.pop(refs[query, "validation"]["$ref"].rpartition("/")[2], None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agent-runtime",
            "version": version("agent-runtime-om"),
            "description": "Threads, runs and memory of long autonomous agents.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _operation(
    op: Operation, refs: Mapping[Any, Mapping[str, Any]], schemas: Mapping[str, Any]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": op.name,
        "summary": op.summary,
        "tags": [op.tag],
        "responses": _responses(op, refs),
    }
    if op.description:
        described["description"] = op.description
    if op.public:
        described["security"] = []
    parameters = [_path_parameter(name, kind) for name, kind in op.parameters.items()]
    if op.query is not None:
        model = schemas[refs[op.query, "validation"]["$ref"].rpartition("/")[2]]
        needed = model.get("required", ())
        for name, schema in model.get("properties", {}).items():
            parameters.append(
                {"name": name, "in": "query", "required": name in needed, "schema": schema}
            )
    if op.repeatable:
        parameters.append(
            {
                "name": KEY_HEADER,
                "in": "header",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                "description": "Sent again with the same key within a day, the request is not "
                "made twice, and gets the same answer.",
            }
        )
    if parameters:
        described["parameters"] = parameters
    if op.body is not None:
        content = {op.consumes: {"schema": dict(refs[op.body, "validation"])}}
        described["requestBody"] = {"required": True, "content": content}
    elif op.consumes != "application/json":
        content = {op.consumes: {"schema": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameter(name: str, kind: type) -> dict[str, Any]:
    schema = (
        {"type": "integer", "minimum": 0} if kind is int else {"type": "string", "minLength": 1}
    )
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _responses(op: Operation, refs: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": op.summary or "The answer."}
    if op.answer is not None:
        schema = dict(refs[op.answer, "serialization"])
        answer["content"] = {op.produces: {"schema": schema}}
    elif op.status != 204:
        kind = {"type": "string"}
        if op.produces == "application/json":
            kind = {"type": "object"}
        answer["content"] = {op.produces: {"schema": kind}}
    problem = {
        "description": "What went wrong, why, and what to do.",
        "content": {MEDIA_TYPE: {"schema": dict(refs[ProblemDetails, "serialization"])}},
    }
    responses: dict[str, Any] = {str(op.status): answer, "default": problem}
    if op.produces == "text/event-stream":
        responses["204"] = {"description": "The run is over, and the cursor is at its end."}
    if op.produces == "application/octet-stream":
        responses["206"] = {**answer, "description": "The part that `Range` asks for."}
        responses["416"] = problem
    return responses
