"""Decide whether code may run: by the mode, and by a person."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ....agents.static_look import Finding, look_at
from ....blocks import CodeBlock
from ...own_files import OwnFiles, replacement_note
from ..languages import is_run
from ..settings import ApprovalMode

_ALLOWED_PATHS = ("/workspace", "/tmp")
_MAX_HINTS = 5


@dataclass(frozen=True)
class Approved:
    """`blocks` may run.

    is_edited   True if they are not the model's
    for_all     True if all further code may run as well, until `ask_again`
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
    """Decide about code by `mode`. Without `ask`, code that needs a person is refused.

    `own_files` are those whose loss deserves attention.
    """

    def __init__(
        self, mode: ApprovalMode, ask: AsksPerson | None, own_files: OwnFiles | None = None
    ) -> None:
        self._mode: ApprovalMode = mode
        self._ask, self._own_files = ask, own_files
        self.is_all_approved = False  # by the person

    @property
    def mode(self) -> ApprovalMode:
        """When the person is asked."""
        return self._mode

    def ask_again(self, mode: ApprovalMode | None = None) -> None:
        """Ask as `mode` says from now on, also if the person approved all further code."""
        self._mode, self.is_all_approved = mode or self._mode, False

    @property
    def has_person(self) -> bool:
        """Whether there is a person to ask."""
        return self._ask is not None

    async def decide(self, blocks: Sequence[CodeBlock]) -> Answer:
        """Return whether `blocks` may run, or others instead of them.

        Raise `KeyboardInterrupt` and `EOFError` of the person.
        """
        is_unasked = self.is_all_approved or self._mode == "never"
        hints = [] if is_unasked else await asyncio.to_thread(risks, blocks, self._own_files)
        if is_unasked or (self._mode == "risky" and not hints):
            return Approved(blocks)
        if self._ask is None:
            return Refused(f"There is no terminal to ask about {'; '.join(hints) or 'it'}.")
        answer = await self._ask(blocks, hints)
        if isinstance(answer, Approved) and (answer.for_all or self._mode == "once"):
            self.is_all_approved = True
        return answer


def risks(blocks: Sequence[CodeBlock], own_files: OwnFiles | None = None) -> list[str]:
    """Return what a static look finds that deserves attention. It is a hint and no protection.

    The loss of `own_files` comes first.
    """
    replaced = {} if own_files is None else own_files.replaced_by(blocks)
    losses = [
        f"{_where(number + 1, len(blocks))}line 1: {replacement_note(path)}"
        for number, path in replaced.items()
    ]
    others: list[str] = []
    for number, block in enumerate(blocks, start=1):
        for finding in look_at(block, _ALLOWED_PATHS) if is_run(block) else ():
            text = (
                f"{_where(number, len(blocks))}line {finding.line}: "
                f"{finding.activity.replace('_', ' ')} ({finding.what})"
            )
            if finding.activity not in ("delete", "overwrite"):
                others.append(text)
            elif own_files is not None and _loses(own_files, finding):
                losses.append(text)
    found = list(dict.fromkeys([*losses, *others]))
    if len(found) > _MAX_HINTS:
        found[_MAX_HINTS:] = [f"and {len(found) - _MAX_HINTS} more"]
    return found


def _loses(own_files: OwnFiles, finding: Finding) -> bool:
    """Return True if one of `own_files` may be lost."""
    return own_files.has(finding.path) if finding.path else own_files.has_any()


def _where(number: int, count: int) -> str:
    return f"block {number}, " if count > 1 else ""
