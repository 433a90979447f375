"""Offer functions to the model of an agent, and let an agent execute them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from ..agent import Configuration
from ..names import assert_valid_name
from .function_arguments import load_basemodels_if_needed, serialize_to_str
from .function_schema import JsonSchema, get_function_schema
from .function_signature import is_async_function, name_of_function

if TYPE_CHECKING:
    from ..models.model_wrapper import OpenAIWrapper

F = TypeVar("F", bound=Callable[..., Any])
_Kind = Literal["function", "tool"]
_NAME, _DESCRIPTION = "_name", "_description"  # attributes of a function: decorators share them


class HasModel(Protocol):
    """An agent with a model."""

    llm_config: Configuration
    client: OpenAIWrapper | None


class RegistersTools(Protocol):
    """An agent that offers functions to its model, or executes them."""

    def register_for_llm(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        api_style: Literal["function", "tool"] = "tool",
    ) -> Callable[[F], F]: ...
    def register_for_execution(self, name: str | None = None) -> Callable[[F], F]: ...


def described_schema(
    func: Callable[..., Any], name: str | None, description: str | None
) -> JsonSchema:
    """Return the schema of a tool; `name` and `description` stay with the function `func`."""
    known_name = own_name(func, name)
    known_description = _remembered(func, _DESCRIPTION, description)
    if known_description is None:
        raise ValueError("Function description is required, none found.")
    return get_function_schema(func, name=known_name, description=known_description)


def wrapped_function(func: F) -> F:
    """Return `func` so that it takes the arguments of a model's call and returns text."""
    call = load_basemodels_if_needed(func)
    if is_async_function(func):

        @functools.wraps(func)
        async def execute_async(*args: Any, **kwargs: Any) -> str:
            return serialize_to_str(await call(*args, **kwargs))

        return _with_origin(execute_async, func)

    @functools.wraps(func)
    def execute(*args: Any, **kwargs: Any) -> str:
        return serialize_to_str(call(*args, **kwargs))

    return _with_origin(execute, func)


def update_signatures(
    agent: HasModel, kind: _Kind, signature: str | JsonSchema, is_remove: bool | None
) -> None:
    """Add `signature` to what the model of `agent` can call, or remove it."""
    if not agent.llm_config:
        raise AssertionError(f"To update a {kind} signature, agent must have an llm_config")
    key = f"{kind}s"
    known: list[JsonSchema] = agent.llm_config.get(key) or []
    if is_remove and not known:
        raise AssertionError(f"The agent config doesn't have {kind} {signature}.")
    if not is_remove:
        _check_signature(kind, signature)
    name = signature if isinstance(signature, str) else _name_in(kind, signature)
    others = [each for each in known if _name_in(kind, each) != name]
    if not is_remove:
        if len(others) < len(known):
            warn_of_function(f"Function '{name}' is being overridden.")
        others.append(cast(JsonSchema, signature))
    agent.llm_config[key] = others
    if not others:
        del agent.llm_config[key]
    if agent.client is not None:
        agent.client = agent.client.with_config(**agent.llm_config)


def register_function(
    f: Callable[..., Any],
    *,
    caller: RegistersTools,
    executor: RegistersTools,
    name: str | None = None,
    description: str,
) -> None:
    """Offer the function `f` to the model of `caller`, and let `executor` execute it.

    name          None means the function's name
    description   what the function does, for the model
    """
    f = caller.register_for_llm(name=name, description=description)(f)
    executor.register_for_execution(name=name)(f)


def own_name(func: Callable[..., Any], name: str | None) -> str:
    """Return `name`, or that of an earlier decorator, or that of the function."""
    checked = assert_valid_name(name) if name else None
    return _remembered(func, _NAME, checked) or name_of_function(func)


def _remembered(func: Callable[..., Any], attribute: str, value: str | None) -> str | None:
    """Return `value`, or what an earlier decorator stored; store it with the function.

    A bound method or a builtin stores nothing.
    """
    if value:
        try:
            setattr(func, attribute, value)
        except AttributeError:
            return value
    return getattr(func, attribute, None)


def _with_origin(wrapper: Callable[..., Any], func: F) -> F:
    vars(wrapper)["_origin"] = func
    return cast(F, wrapper)


def _check_signature(kind: _Kind, signature: object) -> None:
    if not isinstance(signature, dict):
        raise ValueError(
            f"The {kind} signature must be of the type dict. "
            f"Received {kind} signature type {type(signature)}"
        )
    name = _name_in(kind, cast(JsonSchema, signature))
    if not isinstance(name, str):
        where = "'name'" if kind == "function" else "'function' with a 'name'"
        raise ValueError(f"The {kind} signature {signature!r} has no {where}.")
    assert_valid_name(name)


def _name_in(kind: _Kind, signature: Mapping[str, Any]) -> Any:
    function = signature if kind == "function" else signature.get("function")
    return cast(Mapping[str, Any], function).get("name") if isinstance(function, Mapping) else None


def warn_of_function(text: str) -> None:
    """Warn the caller of the agent's method that calls the caller of this function."""
    warnings.warn(text, UserWarning, stacklevel=4)
