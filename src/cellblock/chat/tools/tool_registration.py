"""ToolRegistration: which functions an agent suggests to its model, and which it executes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from ..agent_state import AgentState
from ..names import assert_valid_name
from .function_arguments import load_basemodels_if_needed, serialize_to_str
from .function_schema import get_function_schema
from .function_signature import is_async_function, name_of_function

F = TypeVar("F", bound=Callable[..., Any])
_Kind = Literal["function", "tool"]
_NAME, _DESCRIPTION = "_name", "_description"  # attributes of a function: decorators share them


class ToolRegistration(AgentState):
    """The part of a `ConversableAgent` that knows its functions."""

    def _set_up_tools(self, function_map: Mapping[str, Callable[..., Any] | None] | None) -> None:
        self._function_map = {}
        for name, function in (function_map or {}).items():
            assert_valid_name(name)
            if function is not None:
                self._function_map[name] = _callable(name, function)

    @property
    def function_map(self) -> dict[str, Callable[..., Any]]:
        """The functions that the agent executes, by name."""
        return self._function_map

    def can_execute_function(self, name: Sequence[str] | str) -> bool:
        """Return True if the agent executes the function `name`, or all of a list of names."""
        names = [name] if isinstance(name, str) else name
        return all(each in self._function_map for each in names)

    def register_function(self, function_map: Mapping[str, Callable[..., Any] | None]) -> None:
        """Execute these functions by these names. None removes the function of that name."""
        for name, function in function_map.items():
            assert_valid_name(name)
            if function is None:
                self._remove_function(name)
                continue
            if name in self._function_map:
                _warn(f"Function '{name}' is being overridden.")
            self._function_map[name] = _callable(name, function)

    def _remove_function(self, name: str) -> None:
        if self._function_map.pop(name, None) is None:
            _warn(f"The function {name} to remove doesn't exist")

    def register_for_llm(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        api_style: Literal["function", "tool"] = "tool",
    ) -> Callable[[F], F]:
        """Return a decorator that offers the function to the agent's model.

        name          None means the function's name
        description   what the function does, for the model
        api_style     "tool", or "function" for services that know only `functions`

        `name` and `description` stay with the function: a second decorator need not repeat them.
        The decorator raises `ValueError` without a description.
        """

        def register(func: F) -> F:
            own_name = _own_name(func, name)
            own_description = _remembered(func, _DESCRIPTION, description)
            if own_description is None:
                raise ValueError("Function description is required, none found.")
            schema = get_function_schema(func, name=own_name, description=own_description)
            if api_style == "tool":
                self.update_tool_signature(schema, is_remove=False)
            elif api_style == "function":
                self.update_function_signature(schema["function"], is_remove=False)
            else:
                raise ValueError(f"Unsupported API style: {api_style}")
            return func

        return register

    def register_for_execution(self, name: str | None = None) -> Callable[[F], F]:
        """Return a decorator that lets the agent execute the function.

        `name` None means the name of an earlier decorator, else the function's name. Arguments of
        pydantic classes are made from dicts. Text is returned as it is, other values as JSON.
        """

        def register(func: F) -> F:
            own_name = _own_name(func, name)
            self.register_function({own_name: self._wrap_function(func)})
            return func

        return register

    def _wrap_function(self, func: F) -> F:
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

    def update_function_signature(
        self, func_sig: str | dict[str, Any], is_remove: bool | None
    ) -> None:
        """Add `func_sig` to the model's `functions`, or remove it (a name is enough).

        Raise `AssertionError` if the agent has no model or, to remove, no functions.
        """
        self._update_signatures("function", func_sig, bool(is_remove))

    def update_tool_signature(self, tool_sig: str | dict[str, Any], is_remove: bool | None) -> None:
        """Add `tool_sig` to the model's `tools`, or remove it (a name is enough).

        Raise `AssertionError` if the agent has no model or, to remove, no tools.
        """
        self._update_signatures("tool", tool_sig, bool(is_remove))

    def _update_signatures(
        self, kind: _Kind, signature: str | dict[str, Any], is_remove: bool
    ) -> None:
        if not self.llm_config:
            raise AssertionError(f"To update a {kind} signature, agent must have an llm_config")
        key = f"{kind}s"
        known: list[dict[str, Any]] = self.llm_config.get(key) or []
        if is_remove and not known:
            raise AssertionError(f"The agent config doesn't have {kind} {signature}.")
        if not is_remove:
            _check_signature(kind, signature)
        name = signature if isinstance(signature, str) else _name_in(kind, signature)
        others = [each for each in known if _name_in(kind, each) != name]
        if not is_remove:
            if len(others) < len(known):
                _warn(f"Function '{name}' is being overridden.")
            others.append(cast(dict[str, Any], signature))
        self.llm_config[key] = others
        if not others:
            del self.llm_config[key]
        if self.client is not None:
            self.client = self.client.with_config(**self.llm_config)


def register_function(
    f: Callable[..., Any],
    *,
    caller: ToolRegistration,
    executor: ToolRegistration,
    name: str | None = None,
    description: str,
) -> None:
    """Offer the function `f` to the model of `caller`, and let `executor` execute it.

    name          None means the function's name
    description   what the function does, for the model
    """
    f = caller.register_for_llm(name=name, description=description)(f)
    executor.register_for_execution(name=name)(f)


def _callable(name: str, function: object) -> Callable[..., Any]:
    if not callable(function):
        raise TypeError(
            f"The function {name!r} is {function!r}, which cannot be called. Pass a function."
        )
    return function


def _own_name(func: Callable[..., Any], name: str | None) -> str:
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
    name = _name_in(kind, cast(dict[str, Any], signature))
    if not isinstance(name, str):
        where = "'name'" if kind == "function" else "'function' with a 'name'"
        raise ValueError(f"The {kind} signature {signature!r} has no {where}.")
    assert_valid_name(name)


def _name_in(kind: _Kind, signature: Mapping[str, Any]) -> Any:
    function = signature if kind == "function" else signature.get("function")
    return cast(Mapping[str, Any], function).get("name") if isinstance(function, Mapping) else None


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)
