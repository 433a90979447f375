"""Read the name, the kind and the signature of a function, with its types evaluated."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, get_type_hints


def name_of_function(function: Callable[..., Any]) -> str:
    """Return the name of `function`, for an object that can be called the name of its class."""
    plain = _without_partial(function)
    return getattr(plain, "__name__", type(plain).__name__)


def is_async_function(function: object) -> bool:
    """Return True if a call of `function` returns a coroutine."""
    plain = _without_partial(function)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(
        getattr(plain, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def get_typed_signature(call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of `call`, with the types that are written as text evaluated."""
    signature, names = inspect.signature(call), _globals_of(call)
    parameters = [
        parameter.replace(annotation=get_typed_annotation(parameter.annotation, names))
        for parameter in signature.parameters.values()
    ]
    returned = get_typed_annotation(signature.return_annotation, names)
    return signature.replace(parameters=parameters, return_annotation=returned)


def get_typed_return_annotation(call: Callable[..., Any]) -> Any:
    """Return the type of what `call` returns, None if it is not annotated."""
    annotation = inspect.signature(call).return_annotation
    if annotation is inspect.Signature.empty:
        return None
    return get_typed_annotation(annotation, _globals_of(call))


def get_typed_annotation(annotation: Any, globalns: Mapping[str, Any]) -> Any:
    """Return the type that `annotation` is or, as text, names in `globalns`.

    A name that is not defined is returned as a `ForwardRef`.
    """
    if not isinstance(annotation, str):
        return annotation
    holder: Any = types.SimpleNamespace(__annotations__={"annotation": annotation})
    try:
        return get_type_hints(holder, dict(globalns), include_extras=True)["annotation"]
    except NameError:
        return ForwardRef(annotation)


def _without_partial(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _globals_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    plain = inspect.unwrap(_without_partial(function))
    if not inspect.isroutine(plain):
        plain = type(plain).__call__
    return getattr(plain, "__globals__", {})
