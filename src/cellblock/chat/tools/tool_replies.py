"""ToolReplies: execute the functions that the other agent's model calls."""

# Private methods of agents have AutoGen's names, and users override them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...tools.call_spans import record_result, trace_call
from ..agent import ChatMessage, Reply
from ..names import assert_valid_name
from ..printing import print_notice
from ..steps import Step, Steps, run
from .async_tools import run_coroutine
from .function_signature import is_async_function
from .tool_registration import warn_of_function

Execution = tuple[bool, ChatMessage]
"""True if the function was found and raised nothing, and the message with its result."""


class ExecutesFunctions(Protocol):
    """An agent that executes functions."""

    def execute_function(
        self, func_call: Mapping[str, Any], verbose: bool = False
    ) -> Execution: ...
    async def a_execute_function(self, func_call: Mapping[str, Any]) -> Execution: ...
    async def _a_execute_tool_call(self, tool_call: Mapping[str, Any]) -> ChatMessage: ...
    def _str_for_tool_response(self, tool_response: Mapping[str, Any]) -> str: ...


class ToolReplies:
    """Keeps the functions that an agent executes, by name, and executes them.

    `offered` are the functions that the agent's model can call.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any] | None] | None) -> None:
        self.offered: dict[str, Callable[..., Any]] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        for name, function in (functions or {}).items():
            assert_valid_name(name)
            if function is not None:
                self.functions[name] = _callable(name, function)

    def register(self, functions: Mapping[str, Callable[..., Any] | None]) -> None:
        """Add `functions`. None removes the function of that name."""
        for name, function in functions.items():
            assert_valid_name(name)
            if function is None and self.functions.pop(name, None) is None:
                warn_of_function(f"The function {name} to remove doesn't exist")
            if function is None:
                continue
            if name in self.functions:
                warn_of_function(f"Function '{name}' is being overridden.")
            self.functions[name] = _callable(name, function)

    def function_call_steps(
        self, agent: ExecutesFunctions, messages: list[ChatMessage]
    ) -> Steps[Reply]:
        """Let `agent` execute the `function_call` of the last of `messages`."""
        call = _last(messages).get("function_call")
        if not call:
            return False, None
        _, result = yield from self._call_steps(agent, call)
        return True, result

    def tool_calls_steps(
        self, agent: ExecutesFunctions, messages: list[ChatMessage]
    ) -> Steps[Reply]:
        """Let `agent` execute the `tool_calls` of the last of `messages`."""
        calls: list[Mapping[str, Any]] = _last(messages).get("tool_calls") or []
        if not calls:
            return False, None
        responses: list[ChatMessage] = yield from Step(
            lambda: [self._tool_response(agent, call) for call in calls],
            lambda: asyncio.gather(*map(agent._a_execute_tool_call, calls)),
        )()
        content = "\n\n".join(map(agent._str_for_tool_response, responses))
        return True, {"role": "tool", "tool_responses": responses, "content": content}

    def _tool_response(self, agent: ExecutesFunctions, call: Mapping[str, Any]) -> ChatMessage:
        _, result = run(self._call_steps(agent, function_of(call)))
        return tool_response(call, result)

    def _call_steps(self, agent: ExecutesFunctions, call: Mapping[str, Any]) -> Steps[Execution]:
        """Execute `call` with the method that its function needs. Subclasses override them."""
        if not is_async_function(self.functions.get(call.get("name", ""))):
            return agent.execute_function(call)
        result = yield from Step(
            lambda: run_coroutine(agent.a_execute_function(call)),
            lambda: agent.a_execute_function(call),
        )()
        return result

    def execution_steps(
        self, func_call: Mapping[str, Any], kind: str, verbose: bool
    ) -> Steps[Execution]:
        """Execute `func_call`; see `execute_function`."""
        name, arguments, succeeded = func_call.get("name", ""), {}, False
        function = self.functions.get(name)
        if function is None:
            return False, _function_response(name, f"Error: Function {name} not found.")
        try:
            arguments = _arguments(func_call.get("arguments"))
        except json.JSONDecodeError as error:
            text = f"Error: {error}\n The argument must be in JSON format."
            return False, _function_response(name, text)
        print_notice(f"\n>>>>>>>> EXECUTING {kind} {name}...", "magenta")
        try:
            with trace_call(name, None, arguments, None) as call:
                content = yield from Step(_call, _call_async)(function, arguments)
                record_result(call, str(content) if call.records_content else "", False)
            succeeded = True
        except Exception as error:  # the model reads it and can try again
            content = f"Error: {error}"
        if verbose:
            print_notice(f"\nInput arguments: {arguments}\nOutput:\n{content}", "magenta")
        return succeeded, _function_response(name, content)


def _arguments(arguments: Any) -> Any:
    """Return the arguments in JSON text, which may contain line breaks within strings."""
    values = json.loads(arguments, strict=False) if isinstance(arguments, str) else arguments
    return {} if values is None else values


def _call(function: Callable[..., Any], arguments: Any) -> Any:
    result = function(**arguments)
    return run_coroutine(_awaited(result)) if inspect.isawaitable(result) else result


async def _call_async(function: Callable[..., Any], arguments: Any) -> Any:
    result = function(**arguments)
    return await result if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def _last(messages: list[ChatMessage]) -> ChatMessage:
    return messages[-1] if messages else {}


def _callable(name: str, function: object) -> Callable[..., Any]:
    if not callable(function):
        raise TypeError(
            f"The function {name!r} is {function!r}, which cannot be called. Pass a function."
        )
    return function


def function_of(tool_call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the call of a function that `tool_call` contains."""
    return tool_call.get("function") or {}


def _function_response(name: str, content: object) -> ChatMessage:
    return {"name": name, "role": "function", "content": str(content)}


def tool_response(tool_call: Mapping[str, Any], result: ChatMessage) -> ChatMessage:
    """Return the result of a function as the response to `tool_call`."""
    identifier = tool_call.get("id")
    named = {} if identifier is None else {"tool_call_id": identifier}
    content = result.get("content", "")
    return {**named, "role": "tool", "content": "" if content is None else content}
