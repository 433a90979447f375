"""One conversation: the model answers, its code runs, until it answers without code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from ...agents.runnable_blocks import runnable_blocks
from ...cancellation import CancellationToken
from .approval.approver import Approver, Refused
from .code_turn import CodeTurn
from .languages import LANGUAGES
from .model.turn import ModelTurn
from .output import ChatOutput
from .transcripts.entries import RefusalEntry, UserEntry
from .transcripts.transcript import Transcript

TurnEnd = Literal["answered", "interrupted", "refused", "cut off", "too many turns"]
# Opens while the model or code is at work; its token is cancelled by Ctrl-C.
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
        """Let the model answer the user's `text`. Return why it is the user's turn again.

        Raise the errors of the model and of the executor.
        """
        self.transcript.add(UserEntry(text))
        for _ in range(self.max_turns):
            with self.interruptible() as token:
                answer = await self.model.ask(token)
            if not answer.is_complete:
                return "interrupted"
            blocks = runnable_blocks(answer.text, LANGUAGES)
            if not blocks:
                return "answered"
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
                if not decision.reason:
                    return "refused"
                continue
            with self.interruptible() as token:
                run = await self.code.run(decision.blocks, token, is_edited=decision.is_edited)
            if any(block.outcome == "cancelled" for block in run.blocks):
                return "interrupted"
        return "too many turns"
