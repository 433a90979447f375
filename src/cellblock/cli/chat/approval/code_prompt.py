"""Ask the user at the terminal whether code may run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from rich.cells import cell_len

from ....agents.approval import ApprovalResponse, EditedApprovalResponse
from ....blocks import CodeBlock
from ....visible_text import visible
from ...terminal.editor import EditorError
from ...terminal.interrupts import ReplInterrupts
from ..output import ChatOutput
from ..terminal import ChatTerminal
from .editor import edit

_KEYS = "[y]es  [n]o  [e]dit  [a]lways"


class CodePrompt:
    """Ask for one key: y, n and a reason, e for the editor, a for all further code.

    Long code is folded, and an answer can hide code. So y and a approve only code that was shown
    whole. Otherwise they show it, and the question comes again.
    """

    def __init__(
        self, terminal: ChatTerminal, output: ChatOutput, interrupts: ReplInterrupts
    ) -> None:
        self._terminal, self._output, self._interrupts = terminal, output, interrupts

    async def __call__(
        self, blocks: Sequence[CodeBlock], hints: Sequence[str]
    ) -> tuple[ApprovalResponse, bool]:
        """See `AsksPerson`. Raise `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D."""
        for hint in hints:
            self._output.note(f"look at {hint}")
        while True:
            what = "this" if len(blocks) == 1 else f"these {len(blocks)} blocks"
            must_show = not self._output.has_shown(blocks)
            show = "  [s]how all" if must_show else ""
            question = f"Run {what} ({self._length(blocks)})?  {_KEYS}{show}  "
            match await self._terminal.read_key(question, "yneas" if must_show else "ynea"):
                case "s" | "y" | "a" if must_show:
                    await self._output.show_code(blocks)
                case "y":
                    return _approved(blocks), False
                case "a":
                    self._output.note("further code runs without a question; :approve asks again")
                    return _approved(blocks), True
                case "n":
                    prompt = "Why not? (Enter: your turn) "
                    reason = (await self._terminal.read_answer(prompt)).strip()
                    return ApprovalResponse(approved=False, reason=reason), False
                case _:
                    blocks = await self._edit(blocks)

    def _length(self, blocks: Sequence[CodeBlock]) -> str:
        """Return how long `blocks` are: nobody scrolls up to what they do not expect."""
        columns, rows = shutil.get_terminal_size()
        lines = [line for block in blocks for line in block.code.rstrip("\n").split("\n")]
        screen_rows = sum(max(1, -(-cell_len(visible(line)) // columns)) for line in lines)
        pages = -(-screen_rows // max(1, rows - 1))
        text = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
        return text if pages == 1 else f"{text}, {pages} pages"

    async def _edit(self, blocks: Sequence[CodeBlock]) -> Sequence[CodeBlock]:
        """Return the blocks that the user edited, or `blocks` if that fails."""
        try:
            with self._interrupts.ignored():
                edited = await edit(blocks, os.environ)
        except EditorError as error:
            self._output.note(str(error))
            return blocks
        await self._output.show_code(edited)
        return edited


def _approved(blocks: Sequence[CodeBlock]) -> ApprovalResponse:
    return EditedApprovalResponse(reason="", code_blocks=list(blocks))
