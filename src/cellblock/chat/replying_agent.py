"""ReplyingAgent: how a ConversableAgent finds its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..agents.user_proxy_agent import call_input_func
from ..tracing import genai_span
from .agent import Agent, ChatMessage, Reply
from .agent_state import AgentState
from .code.executor_calls import call_in_thread
from .message_text import chat_json
from .models.model_replies import answer_steps
from .models.model_wrapper import OpenAIWrapper
from .replies.reply_functions import ReplyFunction
from .steps import Step, Steps, asynchronous, is_overridden, run, run_async, synchronous
from .tools.tool_replies import Execution, function_of, tool_response

if TYPE_CHECKING:
    from .models.cache import AbstractCache

Messages = list[ChatMessage] | None


class ReplyingAgent(AgentState):
    """Replies by a person, code, functions or a model: each is a part, and a reply function.

    Parts call back through the methods of the agent, which subclasses override.
    """

    def _register_own_replies(self) -> None:
        """Register the reply functions; the one to try last comes first."""
        functions: list[Callable[..., Any]] = [
            ReplyingAgent.generate_oai_reply,
            ReplyingAgent.a_generate_oai_reply,
        ]
        if self._code_execution_config is not False:
            functions.append(ReplyingAgent.generate_code_execution_reply)
        functions += [
            ReplyingAgent.generate_tool_calls_reply,
            ReplyingAgent.a_generate_tool_calls_reply,
            ReplyingAgent.generate_function_call_reply,
            ReplyingAgent.a_generate_function_call_reply,
            ReplyingAgent.check_termination_and_human_reply,
            ReplyingAgent.a_check_termination_and_human_reply,
        ]
        for function in functions:
            self.register_reply([Agent, None], function, ignore_async_in_sync_chat=True)

    # find a reply

    @synchronous
    def generate_reply(
        self, messages: Messages = None, sender: Agent | None = None, **kwargs: Any
    ) -> Steps[str | ChatMessage | None]:
        """Return the reply to `messages`, by default to those of `sender`; None for no reply.

        It is the reply of the first function that says that its reply is final, else
        `default_auto_reply`. Functions in the list `exclude` are skipped. In a synchronous chat
        asynchronous functions are skipped; in an asynchronous one a built-in function is not
        called in addition to its asynchronous version. Raise `AssertionError` if neither
        `messages` nor `sender` is passed.
        """
        if messages is None:
            assert sender is not None, "Either messages=None or sender=None must be provided."
            messages = self._oai_messages[sender]
        with genai_span("invoke_agent", self.name, {"gen_ai.agent.name": self.name}) as span:
            if span.records_content:
                span.set("gen_ai.input.messages", chat_json("user", messages[-1:]))
            hooked = yield from Step(self._apply_hooks, self._a_apply_hooks)(messages)
            exclude: list[ReplyFunction] = kwargs.get("exclude") or []
            reply = yield from self._parts.replies.reply_steps(self, hooked, sender, exclude)
            if span.records_content:
                span.set("gen_ai.output.messages", chat_json("assistant", [reply]))
        return reply

    a_generate_reply = asynchronous(generate_reply)

    def _apply_hooks(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        self.update_agent_state_before_reply(messages)
        messages = self.process_last_received_message(messages)
        return self.process_all_messages_before_reply(messages)

    async def _a_apply_hooks(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        self.update_agent_state_before_reply(messages)
        messages = await self.a_process_all_messages_before_reply(messages)
        return await self.a_process_last_received_message(messages)

    def update_agent_state_before_reply(self, messages: list[ChatMessage]) -> None:
        """Run the hooks `update_agent_state`: functions (agent, messages)."""
        for hook in self.hook_lists["update_agent_state"]:
            hook(self, messages)

    @synchronous
    def process_last_received_message(
        self, messages: list[ChatMessage]
    ) -> Steps[list[ChatMessage]]:
        """Return `messages` with the content of the last one as the hooks change it.

        The stored message changes as well. A function call, a message with a `context` and the
        text `exit` are left as they are.
        """
        return self._parts.hooks.last_message_steps(messages)

    a_process_last_received_message = asynchronous(process_last_received_message)

    @synchronous
    def process_all_messages_before_reply(
        self, messages: list[ChatMessage]
    ) -> Steps[list[ChatMessage]]:
        """Return `messages` as the hooks change them, for one reply. Stored messages stay."""
        return self._parts.hooks.all_messages_steps(messages)

    a_process_all_messages_before_reply = asynchronous(process_all_messages_before_reply)

    # a person

    def get_human_input(self, prompt: str) -> str:
        """Show `prompt` and return the line that a person types. Override it to ask elsewhere.

        Raise `EOFError` at the end of the input.
        """
        return self._parts.people.read_line(self, prompt)

    async def a_get_human_input(self, prompt: str) -> str:
        """Return what `get_human_input` returns, without blocking the event loop."""
        return await call_input_func(self.get_human_input, prompt, None)

    @synchronous
    def check_termination_and_human_reply(
        self, messages: Messages = None, sender: Agent | None = None, config: Any = None
    ) -> Steps[Reply]:
        """Return `(True, reply)` for the reply of a person, and `(True, None)` for the end.

        Return `(False, None)` if the agent replies automatically.
        """
        messages = self._parts.messages.given_or_stored(messages, sender)
        return self._parts.people.reply_steps(self, messages, sender)

    a_check_termination_and_human_reply = asynchronous(check_termination_and_human_reply)

    # a model

    @synchronous
    def generate_oai_reply(
        self,
        messages: Messages = None,
        sender: Agent | None = None,
        config: OpenAIWrapper | None = None,
    ) -> Steps[Reply]:
        """Return True and the model's answer to `messages`; False and None without a model.

        `messages` are by default those by `sender`. `config` is another client to ask. If a
        subclass overrides `generate_oai_reply`, `a_generate_oai_reply` calls it, in a thread.
        """
        client = self.client if config is None else config
        if client is None:
            if not self._default_auto_reply:
                self._parts.models.log_lack(self.name)
            return False, None
        messages = self._parts.messages.given_or_stored(messages, sender)
        ask = Step(self._generate_oai_reply_from_client, self._a_generate_oai_reply_from_client)
        cache = self.client_cache
        return (yield from self._parts.models.reply_steps(client, messages, cache, ask))

    a_generate_oai_reply = asynchronous(generate_oai_reply, if_overridden=asyncio.to_thread)

    @synchronous
    def _generate_oai_reply_from_client(
        self, llm_client: OpenAIWrapper, messages: list[ChatMessage], cache: AbstractCache | None
    ) -> Steps[str | ChatMessage | None]:
        return answer_steps(self, llm_client, messages, cache)

    _a_generate_oai_reply_from_client = asynchronous(
        _generate_oai_reply_from_client, if_overridden=asyncio.to_thread
    )

    # code

    @synchronous
    def generate_code_execution_reply(
        self, messages: Messages = None, sender: Agent | None = None, config: Any = None
    ) -> Steps[Reply]:
        """Run the blocks of the newest message with code, and reply with their output.

        `last_n_messages` of the config says how many of the last messages are looked at; "auto"
        are those since the last message that is not the user's. Return `(False, None)` if there
        is no code, or `code_execution_config` is False.
        """
        messages = self._parts.messages.given_or_stored(messages, sender)
        execute = Step(self.execute_code_blocks, self._a_execute_code_blocks)
        return self._parts.code.reply_steps(messages, config, execute)

    a_generate_code_execution_reply = asynchronous(generate_code_execution_reply)

    @synchronous
    def execute_code_blocks(self, code_blocks: list[tuple[str, str]]) -> Steps[tuple[int, str]]:
        """Run pairs of language and code, up to the first that fails.

        Return the exit code of the last one, and the output of all, each after a line end.
        Raise `ValueError` if there is no block.
        """
        run_code = Step(self.run_code, self._a_run_code)
        return self._parts.code.execute_steps(code_blocks, run_code)

    _a_execute_code_blocks = asynchronous(execute_code_blocks, if_overridden=call_in_thread)

    @synchronous
    def run_code(self, code: str, **kwargs: Any) -> Steps[tuple[int, str, str | None]]:
        """Run code and return its exit code, its output and None.

        `kwargs` are `lang`, `filename` and the entries of `code_execution_config`. See
        `code_utils.execute_code`. Later code finds the files and packages of earlier code.
        Override it to run code elsewhere. An image instead of None is where later code runs.
        """
        return self._parts.code.run_steps(code, **kwargs)

    _a_run_code = asynchronous(run_code, if_overridden=call_in_thread)

    def _runs_code_itself(self) -> bool:
        return is_overridden(self.run_code, ReplyingAgent.run_code) or is_overridden(
            self.execute_code_blocks, ReplyingAgent.execute_code_blocks
        )

    # functions and tools

    @synchronous
    def generate_function_call_reply(
        self, messages: Messages = None, sender: Agent | None = None, config: Any = None
    ) -> Steps[Reply]:
        """Return the result of the `function_call` in the last message, as a final reply.

        An async function is run to its end. The reply is not final if there is no call.
        """
        messages = self._parts.messages.given_or_stored(messages, sender)
        return self._parts.tools.function_call_steps(self, messages)

    a_generate_function_call_reply = asynchronous(generate_function_call_reply)

    @synchronous
    def generate_tool_calls_reply(
        self, messages: Messages = None, sender: Agent | None = None, config: Any = None
    ) -> Steps[Reply]:
        """Return the results of the `tool_calls` in the last message, as a final reply.

        In a synchronous chat the functions run one after the other, in an asynchronous one async
        functions run at the same time. The reply is not final if there are no calls.
        """
        messages = self._parts.messages.given_or_stored(messages, sender)
        return self._parts.tools.tool_calls_steps(self, messages)

    a_generate_tool_calls_reply = asynchronous(generate_tool_calls_reply)

    def execute_function(self, func_call: Mapping[str, Any], verbose: bool = False) -> Execution:
        """Execute the call with `name` and `arguments` (JSON text), and return its result.

        Return True if the function was found, its arguments could be read and it raised nothing;
        and the message of the role `function`, whose content is the result or the error.

        verbose   print the arguments and the result
        """
        return run(self._parts.tools.execution_steps(func_call, "FUNCTION", verbose))

    async def a_execute_function(self, func_call: Mapping[str, Any]) -> Execution:
        """Execute the call as `execute_function` does, and await an async function.

        A function that is not async runs in this thread, as in AutoGen.
        """
        steps = self._parts.tools.execution_steps(func_call, "ASYNC FUNCTION", False)
        return await run_async(steps)

    async def _a_execute_tool_call(self, tool_call: Mapping[str, Any]) -> ChatMessage:
        _, result = await self.a_execute_function(function_of(tool_call))
        return tool_response(tool_call, result)
