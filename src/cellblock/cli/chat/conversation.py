"""One conversation: the model answers, its code runs, until it answers without code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

from ...agents.left_out_blocks import describe_left_out
from ...blocks import CodeBlock
from ...cancellation import CancellationToken
from .approval.approver import Approver, Refused
from .code_turn import CodeTurn
from .languages import LANGUAGES, are_no_answer, blocks_of, describe, left_out_of
from .model.turn import ModelTurn, visible_answer
from .output import ChatOutput
from .repeats import Repeats
from .transcripts.entries import AnswerEntry, RefusalEntry, RunEntry, UserEntry
from .transcripts.transcript import Transcript

TurnEnd = Literal[
    "answered",
    "no answer",
    "interrupted",
    "refused",
    "not run",
    "cut off",
    "repeated",
    "nothing new",
    "too many turns",
]
_USE_OTHERS = "If they were to run, write them in one of these. If not, answer without them."
# Opens while the model or code runs; its token is cancelled by Ctrl-C.
Interruptible = Callable[[], AbstractContextManager[CancellationToken]]


@dataclass(frozen=True)
class Conversation:
    """The parts of a conversation.

    max_turns       how often the model may answer one message
    interruptible   returns a context whose token Ctrl-C cancels
    """

    model: ModelTurn
    code: CodeTurn
    approver: Approver
    transcript: Transcript
    output: ChatOutput
    max_turns: int
    interruptible: Interruptible

    async def answer(self, text: str) -> TurnEnd:
        """Let the model answer the user's `text`. See `go_on`."""
        self.transcript.add(UserEntry(text))
        return await self.go_on()

    async def go_on(self) -> TurnEnd:
        """Let the model continue from the last entry. Return why it is the user's turn again.

        Raise the errors of the model and of the executor.
        """
        repeats = Repeats()
        was_told = False  # that its code was in languages that do not run
        for _ in range(self.max_turns):
            with self.interruptible() as token:
                answer = await self.model.ask(token)
            if not answer.is_complete:
                return "interrupted"
            if not visible_answer(answer.text).strip():
                return "no answer"
            left_out = self._note_left_out(answer)
            if blocks := blocks_of(answer.text):
                end = await self._run(blocks, answer, left_out)
                if end in (None, "failed"):
                    result = self.transcript.entries[-1]
                    end = repeats.add(blocks, result, has_failed=end == "failed")
                if end is not None:
                    return end
            elif not are_no_answer(left_out):
                return "answered"
            elif was_told:
                return "not run"
            else:
                self.transcript.add(RefusalEntry(f"{describe(left_out)} {_USE_OTHERS}"))
                was_told = True
        return "too many turns"

    async def _run(
        self, blocks: Sequence[CodeBlock], answer: AnswerEntry, left_out: Sequence[str]
    ) -> TurnEnd | Literal["failed"] | None:
        """Run `blocks` of `answer`. Return why it is the user's turn.

        It is the model's turn after None, and after "failed": the code did, or nobody approved it.
        """
        if answer.is_cut_off:
            self.transcript.add(RefusalEntry("The answer was cut off before its end."))
            return "cut off"
        try:
            decision = await self.approver.decide(blocks)
        except (KeyboardInterrupt, EOFError):
            decision = Refused("")
        if isinstance(decision, Refused):
            self.transcript.add(RefusalEntry(decision.reason))
            if not self.approver.has_person:
                self.output.note(f"not run: {decision.reason}")
                return "failed"
            return None if decision.reason else "refused"
        with self.interruptible() as token:
            run = await self.code.run(decision.blocks, token, is_edited=decision.is_edited)
        if left_out:
            self._tell_left_out(run, describe(left_out))
        if any(block.outcome == "cancelled" for block in run.blocks):
            return "interrupted"
        return "failed" if any(block.exit_code for block in run.blocks) else None

    def _note_left_out(self, answer: AnswerEntry) -> list[str]:
        """Print and return the languages of the blocks of `answer` that do not run."""
        if left_out := left_out_of(answer.text):
            text = describe_left_out(left_out, LANGUAGES)
            self.output.note(text[0].lower() + text[1:].removesuffix("."))
        return left_out

    def _tell_left_out(self, run: RunEntry, left_out: str) -> None:
        """Tell the model, with the output of `run`, which blocks did not run."""
        blocks = list(run.blocks)
        number = max(n for n, block in enumerate(blocks) if block.outcome is not None)
        notice = "\n".join(filter(None, (blocks[number].notice, left_out)))
        blocks[number] = replace(blocks[number], notice=notice)
        self.transcript.replace_last(replace(run, blocks=tuple(blocks)))
