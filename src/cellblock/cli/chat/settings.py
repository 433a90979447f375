"""The options of `cellblock chat`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..options.settings import Settings

LATEST = ""  # for `resume`: the latest conversation of the current folder
ApprovalMode = Literal["always", "once", "never", "risky"]


@dataclass(frozen=True, kw_only=True)
class ChatSettings(Settings):
    """The options of `cellblock chat`. See the help of the command."""

    task: str | None
    model: str | None
    base_url: str | None
    context_window: int | None
    price: tuple[float, float] | None
    approve: ApprovalMode
    max_turns: int
    save: str | None
    no_save: bool
    resume: str | None
    demo: bool
    image_folder: str

    @property
    def limits_output(self) -> bool:
        """See `Settings`. The model and the file of the transcript need bounded output."""
        return True
