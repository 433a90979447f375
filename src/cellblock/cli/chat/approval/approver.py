"""Decide whether code may run: by the mode, and by a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ....agents.static_look import look_at
from ....blocks import CodeBlock
from ..settings import ApprovalMode

_ALLOWED_PATHS = ("/workspace", "/tmp")
_MAX_HINTS = 5


@dataclass(frozen=True)
class Approved:
    """`blocks` may run.

    is_edited   True if they are not the model's
    for_all     True if all further code in this conversation may run as well
    """

    blocks: Sequence[CodeBlock]
    is_edited: bool = False
    for_all: bool = False


@dataclass(frozen=True)
class Refused:
    """The code may not run. `reason` is "" if the person gave none."""

    reason: str


Answer = Approved | Refused


class AsksPerson(Protocol):
    """Asks a person about code that is on the screen."""

    async def __call__(self, blocks: Sequence[CodeBlock], hints: Sequence[str]) -> Answer:
        """Return the answer. `hints` say what a static look at the code found."""
        ...


class Approver:
    """Decide about code by `mode`. Without `ask`, code that needs a person is refused."""

    def __init__(self, mode: ApprovalMode, ask: AsksPerson | None) -> None:
        self._mode, self._ask = mode, ask

    @property
    def has_person(self) -> bool:
        """Whether there is a person to ask."""
        return self._ask is not None

    async def decide(self, blocks: Sequence[CodeBlock]) -> Answer:
        """Return whether `blocks` may run, or others instead of them.

        Raise `KeyboardInterrupt` and `EOFError` of the person.
        """
        hints = risks(blocks)
        if self._mode == "never" or (self._mode == "risky" and not hints):
            return Approved(blocks)
        if self._ask is None:
            return Refused(f"There is no terminal to ask about {'; '.join(hints) or 'it'}.")
        answer = await self._ask(blocks, hints)
        if isinstance(answer, Approved) and (answer.for_all or self._mode == "once"):
            self._mode = "never"
        return answer


def risks(blocks: Sequence[CodeBlock]) -> list[str]:
    """Return what a static look finds that deserves attention. It is a hint and no protection."""
    found = [
        f"{_where(number, len(blocks))}line {finding.line}: "
        f"{finding.activity.replace('_', ' ')} ({finding.what})"
        for number, block in enumerate(blocks, start=1)
        for finding in look_at(block, _ALLOWED_PATHS)
    ]
    if len(found) > _MAX_HINTS:
        found[_MAX_HINTS:] = [f"and {len(found) - _MAX_HINTS} more"]
    return found


def _where(number: int, count: int) -> str:
    return f"block {number}, " if count > 1 else ""
