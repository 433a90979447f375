"""One conversation: shows and saves what the agent does until it answers without code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing

from ...agents.base import AgentMessage, Response, trace_answer
from ...agents.code_executor_agent import CodeExecutorAgent
from ...agents.left_out_blocks import (
    advise_left_out,
    advise_nothing_ran,
    describe_left_out,
    left_out_of,
)
from ...agents.messages import (
    BaseChatMessage,
    CodeApprovalEvent,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
)
from ...agents.model_calls import has_cut_off_text, without_thoughts
from ...agents.runnable_blocks import calls_tools, tagged_blocks
from ...cancellation import CancellationToken
from .approval.approver import Approver, TurnRefused
from .code_turn import CodeTurn
from .languages import LANGUAGES, blocks_of
from .model.chat_model import ChatModel, MessageTooLong
from .output import ChatOutput
from .transcripts.entries import AnswerEntry, RefusalEntry, UserEntry
from .transcripts.transcript import Transcript, TranscriptContext

# Opens while the model or code runs; its token is cancelled by Ctrl-C.
Interruptible = Callable[[], AbstractContextManager[CancellationToken]]
_EMPTY = "the model's answer is empty"
_CUT_OFF = "the code did not run: its end may be missing"
_REFUSED = "the code did not run"
_INTERRUPTED = "stopped"
_NO_TOOLS = "nothing was run: the model called a tool, and is told to write blocks of code instead"


class Conversation:
    """Lets an agent of `model`, `code` and `approver` answer, and keeps what it does.

    max_turns       how often the model may answer one message
    interruptible   returns a context whose token Ctrl-C cancels
    """

    def __init__(
        self,
        model: ChatModel,
        code: CodeTurn,
        approver: Approver,
        transcript: Transcript,
        output: ChatOutput,
        *,
        max_turns: int,
        interruptible: Interruptible,
    ) -> None:
        self.model, self.approver, self.interruptible = model, approver, interruptible
        self._code, self._transcript, self._output = code, transcript, output
        self._agent = CodeExecutorAgent(
            "assistant",
            code,
            model_client=model,
            model_context=TranscriptContext(transcript, model),
            model_client_stream=True,
            system_message=model.system_message.content,
            supported_languages=LANGUAGES,
            approval_func=approver,
            max_turns=max_turns,
        )
        self._pieces = ""  # of the answer that is not complete
        self._generation = CodeGenerationEvent(
            content="", code_blocks=[], retry_attempt=0, source=""
        )

    async def answer(self, text: str) -> str | None:
        """Let the model answer the user's `text`. See `go_on`."""
        self._transcript.add(UserEntry(text))
        return await self.go_on()

    async def go_on(self) -> str | None:
        """Let the model continue. Return why it has not answered; None if it has.

        Raise the errors of the model and of the executor.
        """
        with self.interruptible() as token:
            try:
                return await self._follow(token)
            except TurnRefused:
                self._transcript.add(RefusalEntry(""))
                return _REFUSED
            except asyncio.CancelledError:
                if not token.is_cancelled():
                    raise
                return _INTERRUPTED
            except MessageTooLong:
                self._transcript.replace_all(self._transcript.entries[:-1])
                raise
            finally:
                if self._pieces:
                    # Interrupted, or the connection broke: what the user has seen is kept.
                    text = without_thoughts(self._pieces)
                    self._pieces = ""
                    self._transcript.add(AnswerEntry(text, is_complete=False))

    async def _follow(self, token: CancellationToken) -> str | None:
        answer = trace_answer(self._agent, [], self._agent.on_messages_stream([], token))
        async with aclosing(answer) as events:
            async for event in events:
                if isinstance(event, Response):
                    return self._end(event.chat_message)
                await self._show(event)
        raise AssertionError("the stream of an agent ends with a Response")

    async def _show(self, event: AgentMessage) -> None:
        """Print and save what the agent did. `CodeTurn` does so for running code."""
        match event:
            case ModelClientStreamingChunkEvent(content=piece):
                self._pieces += piece
                await self._output.write_answer(piece)
            case CodeGenerationEvent():
                await self._add_generation(event)
            case CodeApprovalEvent(approved=True, edited_blocks=edited):
                self._code.is_edited = bool(edited)
            case CodeApprovalEvent(reason=reason):
                self._transcript.add(RefusalEntry(reason))
                if not self.approver.has_person:
                    self._output.note(f"not run: {reason}")
            case CodeExecutionEvent():
                if left_out := left_out_of(self._generation.content, LANGUAGES):
                    told = advise_left_out(left_out, LANGUAGES, is_all=False)
                    self._transcript.add_notice(told)
            case _:
                pass

    async def _add_generation(self, event: CodeGenerationEvent) -> None:
        """Add an answer with code or tool calls. Show the code of tool calls as blocks."""
        self._generation, text = event, event.content
        await self._output.end_answer()
        if event.code_blocks == tagged_blocks(text, LANGUAGES):
            await self._output.show_code(event.code_blocks)
        self._add_answer(text)
        if not event.code_blocks:
            if calls_tools(text):
                self._output.note(_NO_TOOLS)
            self._transcript.add(RefusalEntry(advise_nothing_ran(text, LANGUAGES)))

    def _add_answer(self, text: str) -> None:
        """Add an answer. Print the languages of its blocks that do not run."""
        self._pieces = ""
        self._transcript.add(AnswerEntry(text))
        if left_out := left_out_of(text, LANGUAGES):
            self._output.note(_as_note(describe_left_out(left_out, LANGUAGES)))

    def _end(self, message: BaseChatMessage) -> str | None:
        """Add the answer `message`, unless it was added before its code ran."""
        text = message.to_text()
        if message.id != self._generation.id:
            self._add_answer(text)
        if not without_thoughts(text).strip():
            return _EMPTY
        if has_cut_off_text(message):
            if not blocks_of(text):
                return None
            self._transcript.add(RefusalEntry("The answer was cut off before its end."))
            return _CUT_OFF
        reason = message.metadata.get("stop_reason")
        return None if reason is None else _as_note(reason).replace("max_turns", "--max-turns")


def _as_note(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:].removesuffix(".")
