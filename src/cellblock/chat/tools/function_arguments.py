"""Convert what a model passes to a function, and what the function returns, from and to text.

The names are those of `autogen.function_utils`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel

from .function_schema import get_param_annotations
from .function_signature import get_typed_signature, is_async_function

_F = TypeVar("_F", bound=Callable[..., Any])
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_Load = Callable[[Any, type[BaseModel]], BaseModel]


def get_load_param_if_needed_function(t: Any) -> _Load | None:
    """Return the function that makes an object of the pydantic class `t` from a dict.

    Return None if `t` is another type. The function leaves such an object as it is.
    """
    plain = _without_metadata(t)
    return _load_model if inspect.isclass(plain) and issubclass(plain, BaseModel) else None


def load_basemodels_if_needed(func: _F) -> _F:
    """Return `func` with dicts accepted where it takes a pydantic object.

    Calling it raises `pydantic.ValidationError` if a dict does not fit.
    """
    signature = get_typed_signature(func)
    names = list(signature.parameters)
    classes = {
        name: _without_metadata(annotation)
        for name, annotation in get_param_annotations(signature).items()
        if get_load_param_if_needed_function(annotation)
    }

    def load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments:
        positional = tuple(
            _loaded(value, classes.get(name))
            for name, value in itertools.zip_longest(names[: len(args)], args)
        )
        return positional, {
            name: _loaded(value, classes.get(name)) for name, value in kwargs.items()
        }

    return cast(_F, _with_loader(func, load))


def serialize_to_str(x: Any) -> str:
    """Return `x` as text for a model: text as it is, other values as JSON.

    Raise `TypeError` if JSON cannot express `x`.
    """
    if isinstance(x, str):
        return x
    if isinstance(x, BaseModel):
        return x.model_dump_json()
    return json.dumps(x, ensure_ascii=False)


def _without_metadata(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _load_model(value: Any, cls: type[BaseModel]) -> BaseModel:
    return value if isinstance(value, cls) else cls.model_validate(value)


def _loaded(value: Any, cls: type[BaseModel] | None) -> Any:
    return value if cls is None else _load_model(value, cls)


def _with_loader(
    func: Callable[..., Any], load: Callable[[tuple[Any, ...], dict[str, Any]], _Arguments]
) -> Callable[..., Any]:
    if is_async_function(func):

        @functools.wraps(func)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = load(args, kwargs)
            return await func(*args, **kwargs)

        return call_async

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = load(args, kwargs)
        return func(*args, **kwargs)

    return call
