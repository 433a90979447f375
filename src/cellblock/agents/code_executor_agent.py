"""CodeExecutorAgent: runs the code of other agents, or writes and runs its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import warnings
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from ..blocks import CodeBlock
from ..cancellation import CancellationToken
from ..components import Component, ComponentT, SavedComponent
from ..errors import ComponentError
from ..executors.base import CodeExecutor
from ..executors.command_line.docker import DockerCommandLineCodeExecutor
from ..executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from ..executors.jupyter.docker import DockerJupyterCodeExecutor
from ..executors.session.docker import DockerSessionCodeExecutor
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from ..models.client import ChatCompletionClient
from ..models.contexts import ChatCompletionContext
from ..models.messages import SystemMessage
from ..observation import MAX_CHARACTERS
from ..overrides import is_overridden, refuse_uncalled_overrides
from ..results import CodeResult
from .approval import ApprovalFuncType, ApprovalRules, check_approval
from .base import BaseChatAgent, Response, is_transient
from .code_loop import CodeLoop
from .code_runs import CodeRun, CodeRunner, RunsCodeBlocks, check_executor
from .code_task import CodeTask
from .code_turns import Coder
from .context import add_to_context, context_or_default, saved_context
from .left_out_blocks import describe_left_out, left_out_languages
from .messages import (
    AgentMessage,
    BaseChatMessage,
    CodeExecutionEvent,
    TextMessage,
    ThoughtEvent,
)
from .model_calls import check_model_client, check_system_message, has_cut_off_text
from .run_budget import RunBudget
from .runnable_blocks import runnable_blocks

_SYSTEM_MESSAGE = (
    "You write code, and it is run for you, to do what the user asks. Write correct and efficient "
    "code that handles edge cases and fails rarely. Put Python code in ```python blocks and shell "
    "scripts in ```sh blocks: only such blocks are run."
)
# AutoGen's text.
_NO_APPROVAL = (
    "No approval function set for CodeExecutorAgent. This means code will be executed "
    "automatically without human oversight. For security, consider setting an approval_func to "
    "review and approve code before execution. See the CodeExecutorAgent documentation for "
    "examples of approval functions."
)
_AUTOGEN_STATE = {"type": "BaseState", "version": "1.0.0"}
# Their subclasses isolate code as well.
_ISOLATED = (
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    DockerCommandLineCodeExecutor,
    DockerSessionCodeExecutor,
    DockerJupyterCodeExecutor,
)


class CodeExecutorAgent(BaseChatAgent):
    """Run code: that of the messages, or with `model_client` code that the model writes.

    Without a model, the blocks of all incoming text messages run, and their output is the answer.
    It also names blocks in other languages, unless they are data such as JSON.
    Code that a model's answer cuts off is not run, and the answer says so.

    With a model, the agent asks it for an answer. If the answer has code blocks, the agent runs
    them, shows the model the result, and asks for the final answer. After an error the model may
    correct itself, `max_retries_on_error` times.

    The agent neither starts nor stops the executor, which starts itself when it is first used. Stop
    it, or use it in `async with`, when you are done.

    model_context           keeps the conversation with the model; by default all of it
    model_client_stream     stream the model's answers in pieces
    max_turns               with a number, the model goes on after each run, until it answers
                            without code, but answers at most so often. Blocks of data that name a
                            file are saved then.
    description             what the agent can do, for other agents
    system_message          instructions for the model; None for none
    sources                 without a model: the agents whose code runs; None means all
    supported_languages     the languages that run, under any of their names; sh and bash are one
    approval_func           decides before code runs: a function, or `ApprovalRules`. Without it all
                            code runs, with a warning unless the executor is a sandbox or container.
    max_seconds             the time that one run may take; None means any
    max_tokens              after a request that reaches so many tokens in one run, the model is not
                            asked again; None means any
    max_output_characters   how much output of a run is shown; see `observe`

    A run that ends early says why in a `ThoughtEvent`, and in the metadata "stop_reason" of the
    answer.

    Raise `ValueError` for a name that is no identifier, if `max_retries_on_error` or `max_turns` is
    given without a model, and if both are given.
    """

    DEFAULT_TERMINAL_DESCRIPTION = (
        "A computer terminal that performs no other action than running Python scripts (provided "
        "to it quoted in ```python code blocks), or sh shell scripts (provided to it quoted in "
        "```sh code blocks)."
    )
    DEFAULT_AGENT_DESCRIPTION = (
        "An agent that writes Python and shell scripts on instruction, runs them, and reports the "
        "result. Its code is correct and efficient, handles edge cases and fails rarely."
    )
    DEFAULT_SYSTEM_MESSAGE = _SYSTEM_MESSAGE
    NO_CODE_BLOCKS_FOUND_MESSAGE = (
        "No code blocks found in the thread. Please provide at least one markdown-encoded code "
        "block to execute (i.e., quoting code in ```python or ```sh code blocks)."
    )
    CUT_OFF_MESSAGE = (
        "The message with the code was cut off before its end, so no code was run. Please provide "
        "all of the code in a shorter message."
    )
    DEFAULT_SUPPORTED_LANGUAGES: ClassVar[list[str]] = ["python", "sh"]

    _uncalled_overrides: ClassVar[Mapping[str, str]] = {
        "_extract_markdown_code_blocks": (
            "Override extract_code_blocks_from_messages, or execute_code_block for the code of a "
            "model, instead."
        ),
        "_call_llm": "Pass a model_client of yours instead.",
        "_reflect_on_code_block_results_flow": "Override on_messages_stream instead.",
        "_add_messages_to_context": "Pass a model_context of yours instead.",
        "_get_compatible_context": "Pass a model_context of yours instead.",
    }

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_uncalled_overrides(cls)

    def __init__(
        self,
        name: str,
        code_executor: RunsCodeBlocks,
        *,
        model_client: ChatCompletionClient | None = None,
        model_context: ChatCompletionContext | None = None,
        model_client_stream: bool = False,
        max_retries_on_error: int = 0,
        max_turns: int | None = None,
        description: str | None = None,
        system_message: str | None = _SYSTEM_MESSAGE,
        sources: Sequence[str] | None = None,
        supported_languages: Sequence[str] | None = None,
        approval_func: ApprovalFuncType | ApprovalRules | None = None,
        max_seconds: float | None = None,
        max_tokens: int | None = None,
        max_output_characters: int | None = MAX_CHARACTERS,
    ) -> None:
        if description is None:
            has_model = model_client is not None
            description = (
                self.DEFAULT_AGENT_DESCRIPTION if has_model else self.DEFAULT_TERMINAL_DESCRIPTION
            )
        super().__init__(name, description)
        check_executor(code_executor)
        check_approval("approval_func", approval_func)
        check_system_message(system_message)
        if model_client is not None:
            check_model_client(model_client)
        if isinstance(sources, str) or isinstance(supported_languages, str):
            raise ValueError("sources and supported_languages must be lists of names, not a text.")
        _check_retries(max_retries_on_error, model_client)
        _check_turns(max_turns, max_retries_on_error, model_client)
        _check_above_0("max_seconds", max_seconds)
        _check_above_0("max_tokens", max_tokens)
        _check_above_0("max_output_characters", max_output_characters)
        if approval_func is None and not isinstance(code_executor, _ISOLATED):
            warnings.warn(_NO_APPROVAL, UserWarning, stacklevel=2)
        self._executor = code_executor
        self._client = model_client
        self._context = context_or_default(model_context)
        self._system_message = system_message
        self._stream = model_client_stream
        self._max_retries = max_retries_on_error
        self._max_turns = max_turns
        self._sources = None if sources is None else list(sources)
        is_default = supported_languages is None
        self._languages = list(
            self.DEFAULT_SUPPORTED_LANGUAGES if is_default else supported_languages
        )
        self._approval = approval_func
        self._max_seconds = max_seconds
        self._max_tokens = max_tokens
        self._max_characters = max_output_characters
        self._direct = CodeRunner(name, code_executor, approval_func, max_output_characters)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """Always `TextMessage`."""
        return (TextMessage,)

    @property
    def _runner(self) -> CodeRunner:
        """What runs code: this class, or the `execute_code_block` of a subclass."""
        if is_overridden(self, "execute_code_block"):
            return dataclasses.replace(self._direct, override=self.execute_code_block)
        return self._direct

    @property
    def model_context(self) -> ChatCompletionContext:
        """The conversation with the model."""
        return self._context

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        """Return the answer to `messages`. See `on_messages_stream`."""
        stream = self.on_messages_stream(messages, cancellation_token)
        async with contextlib.aclosing(stream):
            async for item in stream:
                if isinstance(item, Response):
                    return item
        raise AssertionError("on_messages_stream ends with a Response")

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Yield what happens, and the `Response` last. Its inner messages are the events.

        Raise the errors of the executor, the model client and the approval function, `AgentError`
        if the agent's model is in use, and `CancelledError` if the token is cancelled.
        What the context has until then stays there.
        """
        _check_messages(messages)
        inner: list[AgentMessage] = []
        with RunBudget(
            cancellation_token, max_seconds=self._max_seconds, max_tokens=self._max_tokens
        ) as budget:
            with _until_time_is_over(budget):
                async with contextlib.aclosing(self._answer(messages, budget)) as items:
                    async for item in items:
                        if isinstance(item, Response):
                            item.inner_messages = inner
                            yield item
                            return
                        if not is_transient(item):
                            inner.append(item)
                        yield item
            assert budget.stop_reason is not None
            for item in self._end_early(budget.stop_reason, inner):
                yield item

    async def extract_code_blocks_from_messages(
        self, messages: Sequence[BaseChatMessage]
    ) -> list[CodeBlock]:
        """Return the blocks that run without a model: those of text messages of `sources`."""
        texts = self._texts(messages)
        return [block for text in texts for block in runnable_blocks(text, self._languages)]

    async def execute_code_block(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run `code_blocks` if they are approved. The output of the result is for the model."""
        context = await self._context.get_messages()
        run = self._direct.run(code_blocks, context=context, token=cancellation_token)
        async with contextlib.aclosing(run):
            async for item in run:
                if isinstance(item, CodeRun):
                    return item.result
        raise AssertionError("a run ends with a CodeRun")

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the conversation with the model. The executor does not change."""
        await self._context.clear()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation with the model as JSON values."""
        return {
            "type": "CodeExecutorAgentState",
            "version": "1.0.0",
            "llm_context": await self._context.save_state(),
        }

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state` returned. AutoGen's state of this agent is empty.

        Raise `ValueError` if it is something else.
        """
        if state != _AUTOGEN_STATE:
            await self._context.load_state(saved_context(state, self.name))

    def _texts(self, messages: Sequence[BaseChatMessage]) -> list[str]:
        return [
            message.content
            for message in messages
            if isinstance(message, TextMessage)
            and (self._sources is None or message.source in self._sources)
        ]

    def _describe_left_out(self, messages: Sequence[BaseChatMessage]) -> str:
        """Return a line end and which blocks of `messages` do not run; "" if all do."""
        left_out = [
            tag
            for text in self._texts(messages)
            for tag in left_out_languages(text, self._languages)
        ]
        return f"\n{describe_left_out(left_out, self._languages)}" if left_out else ""

    def _answer(
        self, messages: Sequence[BaseChatMessage], budget: RunBudget
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        if self._client is None:
            return self._run_messages(messages, budget)
        return self._ask_model(self._client, messages, budget)

    async def _run_messages(
        self, messages: Sequence[BaseChatMessage], budget: RunBudget
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Run the blocks of `messages`."""
        budget.raise_if_cancelled()
        blocks = await self.extract_code_blocks_from_messages(messages)
        left_out = self._describe_left_out(messages)
        if not blocks:
            yield self._response(f"{self.NO_CODE_BLOCKS_FOUND_MESSAGE}{left_out}")
            return
        cut_off = [message for message in messages if has_cut_off_text(message)]
        if await self.extract_code_blocks_from_messages(cut_off):
            yield self._response(self.CUT_OFF_MESSAGE)
            return
        context = await self._context.get_messages()
        run = self._runner.run(blocks, context=context, token=budget.token)
        async with contextlib.aclosing(run):
            async for item in run:
                if not isinstance(item, CodeRun):
                    yield item
                elif budget.token.is_cancelled():
                    # There will be no answer that has the output.
                    yield CodeExecutionEvent(retry_attempt=0, result=item.result, source=self.name)
                    budget.raise_if_cancelled()
                else:
                    yield self._response(f"{item.result.output}{left_out}")

    async def _ask_model(
        self,
        client: ChatCompletionClient,
        messages: Sequence[BaseChatMessage],
        budget: RunBudget,
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Let the model write code and answer."""
        budget.raise_if_cancelled()
        with self._one_run.running():
            await add_to_context(self._context, messages)
            async with contextlib.aclosing(self._code_task(client, budget)) as items:
                async for item in items:
                    yield item

    def _code_task(
        self, client: ChatCompletionClient, budget: RunBudget
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        system_message = self._system_message
        coder = Coder(
            name=self.name,
            client=client,
            context=self._context,
            system_messages=[]
            if system_message is None
            else [SystemMessage(content=system_message)],
            runner=self._runner,
            languages=self._languages,
            stream=self._stream,
            max_retries=self._max_retries,
        )
        if self._max_turns is not None:
            return CodeLoop(coder, budget, self._max_turns).run()
        return CodeTask(coder, budget).run()

    def _end_early(
        self, reason: str, inner: list[AgentMessage]
    ) -> Iterator[AgentMessage | Response]:
        """Answer without the model: with the last output, or else the reason."""
        results = [item.result for item in inner if isinstance(item, CodeExecutionEvent)]
        thought = ThoughtEvent(content=reason, source=self.name)
        inner.append(thought)
        yield thought
        response = self._response(results[-1].output if results else reason)
        response.chat_message.metadata["stop_reason"] = reason
        response.inner_messages = inner
        yield response

    def _response(self, text: str) -> Response:
        return Response(chat_message=TextMessage(content=text, source=self.name))

    def _to_config(self) -> dict[str, object]:
        if self._approval is not None and not isinstance(self._approval, ApprovalRules):
            raise ValueError(
                "Cannot serialize CodeExecutorAgent with approval_func set. "
                "The approval function is not serializable."
            )
        if not isinstance(self._executor, CodeExecutor):
            raise ComponentError(
                f"The executor {type(self._executor).__name__} cannot be saved. "
                "Use an executor of Cellblock."
            )
        return {
            "name": self.name,
            "code_executor": _dump(self._executor),
            "model_client": _dump(self._client),
            "description": self.description,
            "sources": self._sources,
            "system_message": self._system_message,
            "model_client_stream": self._stream,
            "model_context": _dump(self._context),
            "supported_languages": self._languages,
            "max_retries_on_error": self._max_retries,
            "max_turns": self._max_turns,
            "approval_rules": _dump(self._approval),
            "max_seconds": self._max_seconds,
            "max_tokens": self._max_tokens,
            "max_output_characters": self._max_characters,
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        values = cast(dict[str, Any], dict(config))
        return cls(
            values.pop("name"),
            CodeExecutor.load_component(values.pop("code_executor")),
            model_client=_load(ChatCompletionClient, values.pop("model_client", None)),
            model_context=_load(ChatCompletionContext, values.pop("model_context", None)),
            approval_func=_load(ApprovalRules, values.pop("approval_rules", None)),
            **values,
        )


def _dump(component: Component | None) -> dict[str, Any] | None:
    return None if component is None else component.dump_component().to_dict()


def _load(kind: type[ComponentT], saved: SavedComponent | None) -> ComponentT | None:
    return None if saved is None else kind.load_component(saved)


def _check_retries(count: int, client: ChatCompletionClient | None) -> None:
    if count < 0:
        raise ValueError(f"max_retries_on_error must be 0 or more, not {count!r}.")
    if count > 0 and client is None:  # AutoGen's text
        raise ValueError("model_client.model_info must be provided when max_retries_on_error > 0")


def _check_turns(turns: int | None, retries: int, client: ChatCompletionClient | None) -> None:
    if turns is None:
        return
    if turns < 1:
        raise ValueError(f"max_turns must be 1 or more, or None, not {turns!r}.")
    if client is None or retries:
        raise ValueError("max_turns needs a model_client, and no max_retries_on_error.")


def _check_above_0(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ValueError(f"{name} must be above 0 or None, not {value!r}.")


def _check_messages(messages: Sequence[BaseChatMessage]) -> None:
    for message in messages:
        if not isinstance(message, BaseChatMessage):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(
                f"A {type(message).__name__} is not a message. "
                "Pass messages such as TextMessage(content=..., source='user')."
            )


@contextlib.contextmanager
def _until_time_is_over(budget: RunBudget) -> Generator[None]:
    """Swallow the `CancelledError` that `budget` raised because the time is over."""
    try:
        yield
    except asyncio.CancelledError:
        if not budget.is_time_over():
            raise
