"""Decide whether code may run: by the mode, and by a person."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ....agents.approval import ApprovalRequest, ApprovalResponse
from ....agents.static_look import Finding, look_at
from ....blocks import CodeBlock
from ...own_files import OwnFiles
from ..languages import is_run
from ..settings import ApprovalMode

_MAX_HINTS = 5


class TurnRefused(Exception):
    """The person neither let the code run nor gave a reason for the model to go on."""


class AsksPerson(Protocol):
    """Asks a person about code that is on the screen."""

    async def __call__(
        self, blocks: Sequence[CodeBlock], hints: Sequence[str]
    ) -> tuple[ApprovalResponse, bool]:
        """Return the answer, and whether all further code may run as well.

        `hints` say what a static look at the code found.
        """
        ...


class Approver:
    """Decide about an agent's code by `mode`. Without `ask`, code that needs a person is refused.

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

    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        """Return whether blocks may run, or others instead of them. Raise `TurnRefused`."""
        blocks = request.code_blocks
        is_unasked = self.is_all_approved or self._mode == "never"
        hints = [] if is_unasked else await asyncio.to_thread(risks, blocks, self._own_files)
        if is_unasked or (self._mode == "risky" and not hints):
            return ApprovalResponse(approved=True, reason="")
        if self._ask is None:
            reason = f"There is no terminal to ask about {'; '.join(hints) or 'it'}."
            return ApprovalResponse(approved=False, reason=reason)
        try:
            answer, is_for_all = await self._ask(blocks, hints)
        except (KeyboardInterrupt, EOFError):
            raise TurnRefused from None
        if not (answer.approved or answer.reason):
            raise TurnRefused
        self.is_all_approved = answer.approved and (is_for_all or self._mode == "once")
        return answer


def risks(blocks: Sequence[CodeBlock], own_files: OwnFiles | None = None) -> list[str]:
    """Return what a static look finds that deserves attention. It is a hint and no protection.

    The loss of `own_files` comes first.
    """
    losses: list[str] = []
    if own_files is not None:
        losses += [
            f"{_where(number + 1, len(blocks))}line 1: {own_files.replacement_note(path)}"
            for number, path in own_files.replaced_by(blocks).items()
        ]
    others: list[str] = []
    for number, block in enumerate(blocks, start=1):
        for finding in look_at(block) if is_run(block) else ():
            text = f"{_where(number, len(blocks))}{finding}"
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
