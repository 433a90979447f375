"""The answers that a cache keeps: which request they belong to, and their JSON values."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from .cache import AbstractCache
from .chat_completion import ChatCompletion
from .config_keys import ADDRESS_KEYS, CONTROL_KEYS

_logger = logging.getLogger(__name__)
_HIDDEN = ADDRESS_KEYS | CONTROL_KEYS
_ATTRIBUTES = "attributes of an object"


def get_key(config: Mapping[str, Any]) -> str:
    """Return the text that identifies a request: its parameters, without addresses and keys."""
    shown = {name: value for name, value in config.items() if name not in _HIDDEN}
    return json.dumps(to_jsonable_python(shown, fallback=_describe), sort_keys=True)


def _describe(value: object) -> object:
    schema = getattr(value, "model_json_schema", None)
    return schema() if isinstance(value, type) and schema is not None else repr(value)


def kept_answer(cache: AbstractCache, params: Mapping[str, Any]) -> Any:
    """Return the answer to the request `params` from `cache`, or None.

    A `ChatCompletion`, or for your own client an object with the same attributes.
    """
    value = cache.get(_hash(params))
    if not isinstance(value, dict):
        return None
    answer = cast(dict[str, Any], value)
    try:
        if "chat_completion" in answer:
            return ChatCompletion.model_validate(answer["chat_completion"])
    except ValidationError:
        return None
    return _from_json(answer["answer"]) if "answer" in answer else None


def keep_answer(cache: AbstractCache, params: Mapping[str, Any], answer: object) -> None:
    """Keep `answer` in `cache`. Log a warning if it cannot be expressed in JSON."""
    try:
        if isinstance(answer, ChatCompletion):
            value: dict[str, Any] = {"chat_completion": answer.model_dump(mode="json")}
        else:
            value = {"answer": _to_json(answer)}
    except TypeError as error:
        _logger.warning("An answer is not cached: %s.", error)
    else:
        cache.set(_hash(params), value)


def _hash(params: Mapping[str, Any]) -> str:
    return hashlib.sha256(get_key(params).encode()).hexdigest()


def _to_json(value: object) -> object:
    match value:
        case None | str() | int() | float():
            return value
        case list() | tuple():
            return [_to_json(item) for item in cast(list[object], value)]
        case dict():
            return {str(key): _to_json(item) for key, item in cast(dict[Any, Any], value).items()}
        case SimpleNamespace():
            shown = {name: item for name, item in vars(value).items() if not callable(item)}
            return {_ATTRIBUTES: _to_json(shown)}
        case _:
            raise TypeError(f"{type(value).__name__} is neither a SimpleNamespace nor JSON")


def _from_json(value: object) -> object:
    if isinstance(value, list):
        return [_from_json(item) for item in cast(list[object], value)]
    if not isinstance(value, dict):
        return value
    items = {key: _from_json(item) for key, item in cast(dict[str, object], value).items()}
    attributes = items.get(_ATTRIBUTES)
    return SimpleNamespace(**cast(dict[str, Any], attributes)) if attributes else items
