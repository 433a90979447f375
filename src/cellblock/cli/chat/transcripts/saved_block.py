"""What the files of transcripts say about a block that ran, besides its code and its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, Field

from ....blocks import CodeBlock
from ....events import Outcome
from .entries import BlockRun, CodePicture


class SavedBlock(BaseModel):
    """The attributes of a block.

    number     its number in the run, from 0
    pictures   paths of pictures
    edited     True if the user changed the code of the run
    no_end     True while it runs: a file with it is that of a command that was killed
    """

    number: int = 0
    language: str = "python"
    exit_code: int = 0
    outcome: Outcome | None = None
    limit: str | None = None
    notice: str = ""
    files: list[str] = Field(default_factory=list[str])
    pictures: list[str] = Field(default_factory=list[str])
    edited: bool = False
    no_end: bool = False

    @classmethod
    def of(cls, block: BlockRun, number: int, *, is_edited: bool) -> Self:
        """Return the attributes of `block`."""
        return cls(
            number=number,
            language=block.language,
            exit_code=block.exit_code,
            outcome=block.outcome,
            limit=block.limit,
            notice=block.notice,
            files=list(block.files),
            pictures=[picture.path for picture in block.pictures if picture.path],
            edited=is_edited,
            no_end=block.has_no_end,
        )

    def attributes(self) -> dict[str, Any]:
        """Return the attributes that differ from the default, as JSON values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def block_run(self, code: CodeBlock, output: str, pictures: Sequence[CodePicture]) -> BlockRun:
        """Return the block with its code, its output and its pictures."""
        return BlockRun(
            code.code,
            code.language or self.language,
            output=output,
            exit_code=self.exit_code,
            outcome=self.outcome,
            limit=self.limit,
            notice=self.notice,
            files=tuple(self.files),
            pictures=tuple(pictures),
            has_no_end=self.no_end,
        )
