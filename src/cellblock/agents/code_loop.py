"""One run of a `CodeExecutorAgent` whose model goes on until it answers without code."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..blocks import CodeBlock
from ..results import CodeResult
from .base import Response
from .code_turns import NO_TOOLS, Coder, CodeTurns
from .left_out_blocks import advise_left_out, advise_nothing_ran, is_meant_to_run, left_out_of
from .messages import AgentMessage
from .model_calls import without_thoughts
from .run_budget import RunBudget
from .runnable_blocks import calls_tools, runnable_blocks

_MAX_REPEATS = 3


class CodeLoop(CodeTurns):
    """Show the model what its code did, and ask again, until it answers without code.

    The run ends without that answer after `max_turns` answers, or if going on makes no sense: the
    model repeats code that fails or that prints nothing new, twice calls tools or writes only code
    that cannot run here, or answers with nothing or with half an answer. A `ThoughtEvent` and the
    metadata "stop_reason" of the answer say so.
    """

    def __init__(self, coder: Coder, budget: RunBudget, max_turns: int) -> None:
        super().__init__(coder, budget)
        self._max_turns = max_turns
        self._repeats = _Repeats()
        self._was_told = False  # that the languages of its code do not run

    async def run(self) -> AsyncGenerator[AgentMessage | Response, None]:
        """Yield what happens, and the `Response` last."""
        for turn in range(self._max_turns):
            self._next = "respond"
            async with aclosing(self._take_turn(turn)) as events:
                async for event in events:
                    yield event
            if self._next == "respond":
                break
            if self._budget.stop_reason is not None:
                return
        else:
            times = "once" if self._max_turns == 1 else f"{self._max_turns} times"
            yield self._stop(f"The model has answered {times} (max_turns) and is not done.")
        for item in self._respond():
            yield item

    async def _take_turn(self, turn: int) -> AsyncGenerator[AgentMessage, None]:
        """Let the model answer, and run its code. Choose the next step."""
        async with aclosing(self._ask()) as events:
            async for event in events:
                yield event
        text, languages = self._answer.text, self._coder.languages
        if self._answer.cut_off or not without_thoughts(text).strip():
            return
        blocks = runnable_blocks(text, languages, with_named_data=True)
        left_out, has_calls = left_out_of(text, languages), not blocks and calls_tools(text)
        if not (blocks or has_calls or is_meant_to_run(left_out)):
            return
        if not blocks and self._was_told:
            reason = "The model wrote only code that cannot run here."
            yield self._stop(NO_TOOLS if has_calls else reason)
            return
        self._next = "try again"
        yield self._generation(turn, blocks)
        self._was_told = self._was_told or not blocks
        if not blocks:
            yield await self._tell(advise_nothing_ran(text, languages))
        elif left_out:
            yield await self._tell(advise_left_out(left_out, languages, is_all=False))
        if blocks:
            async with aclosing(self._run_blocks(blocks, turn)) as events:
                async for event in events:
                    yield event
            if reason := self._repeats.add(blocks, self._code_result):
                self._next = "respond"
                yield self._stop(reason)


class _Repeats:
    """Counts code that comes again."""

    def __init__(self) -> None:
        self._failures = Counter[str]()  # also of code that nobody approves
        self._known = set[tuple[str, str]]()  # code and what it printed
        self._repeats = Counter[tuple[str, str]]()  # since the last that was new

    def add(self, blocks: Sequence[CodeBlock], result: CodeResult) -> str | None:
        """Return why the model has to stop after `blocks` with `result`, if it has to.

        Code may fail three times, and print the same three times with nothing new in between.
        """
        code = "\n".join(block.code for block in blocks)
        if result.exit_code:
            self._failures[code] += 1
            is_too_often = self._failures[code] == _MAX_REPEATS
            return "The model repeats code that fails." if is_too_often else None
        run = (code, result.output)
        if run not in self._known:
            self._known.add(run)
            self._repeats.clear()
        self._repeats[run] += 1
        is_too_often = self._repeats[run] == _MAX_REPEATS
        return "The model repeats code whose output stays the same." if is_too_often else None
