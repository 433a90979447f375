"""Compare the arguments of a call with the parameters of ours."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def unknown_arguments(function: Callable[..., Any], call: ast.Call, bound: int = 0) -> list[str]:
    """Return the arguments of `call` that `function` does not take.

    The first `bound` parameters are not given by the call: `self` of a method.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())[bound:]
    except (TypeError, ValueError):  # a type, or a function without a signature
        return []
    return [*_unknown_keywords(parameters, call), *_extra_positional(parameters, call)]


def _unknown_keywords(parameters: list[inspect.Parameter], call: ast.Call) -> Iterator[str]:
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    known = {parameter.name: parameter for parameter in parameters if parameter.kind in _NAMED}
    for keyword in call.keywords:
        if keyword.arg is None or (takes_all and keyword.arg not in known):
            continue
        if not _is_taken(known.get(keyword.arg), keyword.value):
            yield f"{keyword.arg}="


def _is_taken(parameter: inspect.Parameter | None, value: ast.expr) -> bool:
    """Return True if a parameter exists, and takes more than None if the call has more."""
    if parameter is None:
        return False
    takes_only_none = parameter.annotation in (None, "None")
    return not takes_only_none or (isinstance(value, ast.Constant) and value.value is None)


def _extra_positional(parameters: list[inspect.Parameter], call: ast.Call) -> Iterator[str]:
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return
    most = sum(parameter.kind in _POSITIONAL for parameter in parameters)
    if len(call.args) > most:
        yield f"{len(call.args)} positional arguments; pass those after the first {most} by name"
