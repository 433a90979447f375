"""ToolReplies: execute the functions that the other agent's model calls."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from ..agent import Agent, ChatMessage
from ..agent_state import Reply
from ..printing import print_notice
from ..steps import Step, Steps, run, run_async
from .async_tools import run_coroutine
from .function_signature import is_async_function
from .tool_registration import ToolRegistration

_Execution = tuple[bool, ChatMessage]


class ToolReplies(ToolRegistration):
    """The part of a `ConversableAgent` that executes functions."""

    def generate_function_call_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Return the result of the `function_call` in the last message, as a final reply.

        An async function is run to its end. The reply is not final if there is no call.
        """
        return run(self._function_call_steps(messages, sender))

    async def a_generate_function_call_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Return the result of the `function_call` in the last message, as a final reply."""
        return await run_async(self._function_call_steps(messages, sender))

    def generate_tool_calls_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Return the results of the `tool_calls` in the last message, as a final reply.

        The functions run one after the other. The reply is not final if there are no calls.
        """
        return run(self._tool_calls_steps(messages, sender))

    async def a_generate_tool_calls_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Return the results of the `tool_calls` in the last message, as a final reply.

        Async functions run at the same time.
        """
        return await run_async(self._tool_calls_steps(messages, sender))

    def execute_function(self, func_call: Mapping[str, Any], verbose: bool = False) -> _Execution:
        """Execute the call with `name` and `arguments` (JSON text), and return its result.

        Return True if the function was found, its arguments could be read and it raised nothing;
        and the message of the role `function`, whose content is the result or the error.

        verbose   print the arguments and the result
        """
        return run(self._execution_steps(func_call, "FUNCTION", verbose))

    async def a_execute_function(self, func_call: Mapping[str, Any]) -> _Execution:
        """Execute the call as `execute_function` does, and await an async function.

        A function that is not async runs in this thread, as in AutoGen.
        """
        return await run_async(self._execution_steps(func_call, "ASYNC FUNCTION", False))

    async def _a_execute_tool_call(self, tool_call: Mapping[str, Any]) -> ChatMessage:
        _, result = await self.a_execute_function(_function_of(tool_call))
        return _tool_response(tool_call, result)

    def _execute_tool_call(self, tool_call: Mapping[str, Any]) -> ChatMessage:
        _, result = run(self._call_steps(_function_of(tool_call)))
        return _tool_response(tool_call, result)

    def _str_for_tool_response(self, tool_response: Mapping[str, Any]) -> str:
        return str(tool_response.get("content", ""))

    def _function_call_steps(
        self, messages: list[ChatMessage] | None, sender: Agent | None
    ) -> Steps[Reply]:
        call = self._last_of(messages, sender).get("function_call")
        if not call:
            return False, None
        _, result = yield from self._call_steps(call)
        return True, result

    def _call_steps(self, call: Mapping[str, Any]) -> Steps[_Execution]:
        """Execute `call` with the method that its function needs. Subclasses override them."""
        if not is_async_function(self._function_map.get(call.get("name", ""))):
            return self.execute_function(call)
        result = yield from Step(
            lambda: run_coroutine(self.a_execute_function(call)),
            lambda: self.a_execute_function(call),
        )()
        return result

    def _tool_calls_steps(
        self, messages: list[ChatMessage] | None, sender: Agent | None
    ) -> Steps[Reply]:
        calls: list[Mapping[str, Any]] = self._last_of(messages, sender).get("tool_calls") or []
        if not calls:
            return False, None
        responses: list[ChatMessage] = yield from Step(
            lambda: [self._execute_tool_call(call) for call in calls],
            lambda: asyncio.gather(*map(self._a_execute_tool_call, calls)),
        )()
        content = "\n\n".join(map(self._str_for_tool_response, responses))
        return True, {"role": "tool", "tool_responses": responses, "content": content}

    def _last_of(self, messages: list[ChatMessage] | None, sender: Agent | None) -> ChatMessage:
        if messages is None:
            messages = self._oai_messages[cast(Agent, sender)]
        return messages[-1] if messages else {}

    def _execution_steps(
        self, func_call: Mapping[str, Any], kind: str, verbose: bool
    ) -> Steps[_Execution]:
        name, arguments, succeeded = func_call.get("name", ""), {}, False
        function = self._function_map.get(name)
        if function is None:
            return False, _function_response(name, f"Error: Function {name} not found.")
        try:
            arguments = _arguments(func_call.get("arguments"))
        except json.JSONDecodeError as error:
            text = f"Error: {error}\n The argument must be in JSON format."
            return False, _function_response(name, text)
        print_notice(f"\n>>>>>>>> EXECUTING {kind} {name}...", "magenta")
        try:
            content = yield from Step(_call, _call_async)(function, arguments)
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


def _function_of(tool_call: Mapping[str, Any]) -> Mapping[str, Any]:
    return tool_call.get("function") or {}


def _function_response(name: str, content: object) -> ChatMessage:
    return {"name": name, "role": "function", "content": str(content)}


def _tool_response(tool_call: Mapping[str, Any], result: ChatMessage) -> ChatMessage:
    identifier = tool_call.get("id")
    named = {} if identifier is None else {"tool_call_id": identifier}
    content = result.get("content", "")
    return {**named, "role": "tool", "content": "" if content is None else content}
