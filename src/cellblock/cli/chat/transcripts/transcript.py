"""The transcript of a conversation, saved after each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ....models.client import ChatCompletionClient
from ....models.contexts import ChatCompletionContext
from ....models.messages import LLMMessage
from .entries import Entry, RunEntry, model_message
from .file import write_transcript
from .saved_options import SavedOptions


class Transcript:
    """Keep `entries`, and save them in the file `path` whenever one is added; None: nowhere.

    `options` are those with which the conversation runs.
    """

    def __init__(
        self,
        path: Path | None,
        entries: Sequence[Entry] = (),
        options: SavedOptions | None = None,
    ) -> None:
        self.path, self.options = path, options
        self.entries = list(entries)

    def add(self, entry: Entry) -> None:
        """Add `entry`. Raise `WorkspaceError` if it cannot be saved; it is kept all the same."""
        self.replace_all([*self.entries, entry])

    def replace_last(self, entry: Entry) -> None:
        """Replace the last entry by `entry`, which says more. Raises as `add` does."""
        self.entries.pop()
        self.add(entry)

    def add_notice(self, text: str) -> None:
        """Add `text` to what the model is told of the last block that ran. Raises as `add` does."""
        run = self.entries[-1]
        if not isinstance(run, RunEntry):
            return
        blocks = list(run.blocks)
        number = max(n for n, block in enumerate(blocks) if block.outcome is not None)
        notice = "\n".join(filter(None, (blocks[number].notice, text)))
        blocks[number] = replace(blocks[number], notice=notice)
        self.replace_last(replace(run, blocks=tuple(blocks)))

    def replace_all(self, entries: Sequence[Entry]) -> None:
        """Replace what happened by `entries`. Raises as `add` does."""
        self.entries = list(entries)
        if self.path is not None:
            write_transcript(self.path, self.entries, self.options)


class TranscriptContext(ChatCompletionContext):
    """Show the model of `client` the entries of `transcript`, which are added by its owner."""

    def __init__(self, transcript: Transcript, client: ChatCompletionClient) -> None:
        super().__init__()
        self._transcript, self._client = transcript, client

    async def add_message(self, message: LLMMessage) -> None:
        """Do nothing: the entry with `message` is in the transcript, or will be."""

    async def get_messages(self) -> list[LLMMessage]:
        """Return what the model is shown of the entries."""
        has_vision = self._client.model_info["vision"]
        return [model_message(entry, has_vision=has_vision) for entry in self._transcript.entries]
