"""Tab completion at the prompt: commands, and what the session offers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..terminal.render import printable_line
from .session import ReplSession


class ReplCompleter(Completer):
    """Ask `session`, which is None until it has started."""

    def __init__(self) -> None:
        self.session: ReplSession | None = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield nothing: the prompt uses the asynchronous method."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the completions at the cursor."""
        if self.session is None:
            return
        cursor = document.cursor_position
        start, matches = await self.session.complete(document.text, cursor)
        for text in matches:
            yield Completion(printable_line(text), start - cursor)
