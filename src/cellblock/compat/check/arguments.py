"""Compare the arguments of a call with the parameters of Cellblock's class or function."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any, is_typeddict

from ...chat.conversable_agent import ConversableAgent

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def unknown_arguments(
    function: Callable[..., Any], call: ast.Call, bound: int = 0
) -> list[tuple[str, str]]:
    """Return the arguments of `call` that `function` does not take, each with a note.

    The first `bound` parameters are not given by the call: `self` of a method.
    """
    try:
        parameters = _parameters(function)[bound:]
    except (TypeError, ValueError):  # a type, or a function without a signature
        return []
    keywords = [
        (name, "This argument is not taken.") for name in _unknown_keywords(parameters, call)
    ]
    return [*keywords, *_extra_positional(parameters, call)]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of `function`; an agent passes those it does not name to its base."""
    own = inspect.signature(function).parameters
    if not isinstance(function, type) or not issubclass(function, ConversableAgent):
        return [each for parameter in own.values() for each in _expanded(parameter, function)]
    base = inspect.signature(ConversableAgent).parameters
    named = [each for each in own.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in base.values()]
    return [*named, *(each for each in more if each.name not in own)]


def _expanded(parameter: inspect.Parameter, function: Any) -> list[inspect.Parameter]:
    """Return the keywords that `**arguments: Unpack[TYPED_DICT]` stands for, or the parameter."""
    name = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
    code = function.__init__ if isinstance(function, type) else function
    typed: Any = getattr(code, "__globals__", {}).get(name)
    if parameter.kind is not inspect.Parameter.VAR_KEYWORD or not is_typeddict(typed):
        return [parameter]
    keys = sorted(typed.__required_keys__ | typed.__optional_keys__)
    return [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY) for key in keys]


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


def _extra_positional(
    parameters: list[inspect.Parameter], call: ast.Call
) -> Iterator[tuple[str, str]]:
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return
    most = sum(parameter.kind in _POSITIONAL for parameter in parameters)
    if len(call.args) > most:
        others = f"all but the first {most}" if most else "them"
        yield f"{len(call.args)} positional arguments", f"Pass {others} by name."
