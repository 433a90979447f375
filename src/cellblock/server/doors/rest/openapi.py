"""The OpenAPI document of the door, made from its operations and their models. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from .... import __version__
from .answers import ErrorAnswer, RunInfo
from .event_stream import EVENT_MODELS, MAX_POSITION
from .operations import EVENTS, Answer, Operation

_REFERENCE = "#/components/schemas/{model}"
_ERRORS = {
    400: "The request is malformed",
    401: "The API key is missing or not valid",
    403: "A server without keys was addressed by another name or from a page of another site, or "
    "the key's policy cannot be applied in containers",
    404: "There is no such session, run, checkpoint or file, or the server keeps no records",
    408: "The client stopped sending the request",
    409: "The session cannot do this in its present state",
    413: "The body is too large",
    416: "The file has none of the bytes of the header Range",
    421: "Another server that uses the same database has the session",
    422: "The header Idempotency-Key belongs to another request",
    429: "The key has used up a quota. Retry after the seconds in the header Retry-After",
    500: "The server failed",
    503: "The server is about to stop, or cannot start sessions",
    507: "The session's folder is full, or the key's disk quota is used up",
}
_EVENT_LIST = ", ".join(f"`{name}`" for name in EVENT_MODELS)
_ABOUT = f"""\
Run code in sandboxed sessions. Send an API key as bearer token.

Runs with `stream` and `/v1/runs/{{run_id}}/events` answer with server-sent events. The first one
is `run`, with the run. The others have numbers as `id`: {_EVENT_LIST}. The last one of a run is
`ended` or `failed`. After a lost connection, send the last `id` as header `Last-Event-ID`.
"""
_EVENT_SCHEMA: dict[str, Any] = {
    "description": "One event of the stream.",
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "description": "The number of the event."},
        "event": {"type": "string", "enum": ["run", *EVENT_MODELS]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_PATH_PARAMETERS = {
    "session_id": "The identifier of a session.",
    "run_id": "The ID of a run.",
    "name": "The name of a checkpoint.",
    "path": "The path of a file in the session's folder, or after ~/ in its home. It may contain "
    "slashes.",
}


def document(operations: Sequence[Operation], *, needs_keys: bool) -> dict[str, Any]:
    """Return the document for `operations` and the server's own paths.

    It has no `servers`: the address depends on the request.
    """
    paths = dict[str, dict[str, Any]]()
    for operation in operations:
        path = paths.setdefault(f"/v1{operation.path}", {})
        path[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Cellblock", "version": __version__, "description": _ABOUT},
        "security": [{"key": []}] if needs_keys else [],
        "paths": {**paths, **_own_paths()},
        "components": {
            "schemas": _schemas(operations),
            "responses": {f"Error{status}": _error(status) for status in _ERRORS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", operation.path)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [*map(_path_parameter, names), *_parameters(operation)],
        "responses": {
            **_answers(operation.answers),
            **{str(status): {"$ref": _error_reference(status)} for status in _ERRORS},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.is_body_optional,
            "content": _content(operation.body),
        }
    return described


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": _PATH_PARAMETERS[name],
        "schema": {"type": "string", "minLength": 1},
    }


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for each in operation.parameters:
        bounds: dict[str, int | str] = (
            {"minimum": 0, "maximum": MAX_POSITION} if each.kind == "integer" else {}
        )
        if each.max_length is not None:
            bounds = {"minLength": 1, "maxLength": each.max_length}
        if each.format is not None:
            bounds = {"format": each.format}
        yield {
            "name": each.name,
            "in": each.place,
            "description": each.description,
            "schema": {"type": each.kind, **bounds},
        }


def _answers(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the answers by their status. Several contents of one status are alternatives."""
    found = dict[str, dict[str, Any]]()
    for each in answers:
        described = found.setdefault(str(each.status), {"description": each.description})
        if each.content is not None:
            described.setdefault("content", {}).update(_content(each.content))
    return found


def _content(content: type[BaseModel] | str) -> dict[str, Any]:
    if not isinstance(content, str):
        return {"application/json": {"schema": {"$ref": _reference(content)}}}
    if content == EVENTS:
        return {content: {"schema": _EVENT_SCHEMA}}
    return {content: {"schema": {"type": "string", "format": "binary"}}}


def _schemas(operations: Sequence[Operation]) -> dict[str, Any]:
    bodies = {each.body for each in operations}
    contents = {answer.content for each in operations for answer in each.answers}
    models = {RunInfo, ErrorAnswer, *EVENT_MODELS.values()}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((model, "validation") for model in _models(bodies)),
        *((model, "serialization") for model in _models(contents | models)),
    ]
    _, schemas = models_json_schema(modes, ref_template=_REFERENCE)
    found: dict[str, Any] = schemas["$defs"]
    return dict(sorted(found.items()))


def _models(contents: Iterable[type[BaseModel] | str | None]) -> list[type[BaseModel]]:
    models = (each for each in contents if each is not None and not isinstance(each, str))
    return sorted(models, key=lambda model: model.__name__)


def _reference(model: type[BaseModel]) -> str:
    return _REFERENCE.format(model=model.__name__)


def _error(status: int) -> dict[str, Any]:
    return {"description": _ERRORS[status], "content": _content(ErrorAnswer)}


def _error_reference(status: int) -> str:
    return f"#/components/responses/Error{status}"


def _own_paths() -> dict[str, Any]:
    """Return the paths that are not below /v1."""
    json_content = {"application/json": {"schema": {"type": "object"}}}
    ready = {"description": "The server accepts work", "content": json_content}
    stopping = {"description": "The server is about to stop", "content": json_content}
    metrics = {
        "description": "Metrics in the text format of Prometheus",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    is_open: dict[str, Any] = {"tags": ["server"], "security": []}
    alive = {"description": "The server answers", "content": json_content}
    forbidden = {"403": {"$ref": _error_reference(403)}}
    return {
        "/health": {"get": {
            **is_open, "operationId": "health", "summary": "See whether the server answers",
            "responses": {"200": alive, **forbidden},
        }},
        "/ready": {"get": {
            **is_open, "operationId": "ready", "summary": "See whether the server accepts work",
            "responses": {"200": ready, "503": stopping, **forbidden},
        }},
        "/metrics": {"get": {
            "tags": ["server"], "operationId": "metrics", "summary": "Get metrics for Prometheus",
            "responses": {
                "200": metrics, "401": {"$ref": _error_reference(401)}, **forbidden,
            },
        }},
    }  # fmt: skip
