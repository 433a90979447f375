"""What happened in a conversation, in order; and what the model is shown of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from ....agents.code_runs import describe_edited
from ....blocks import CodeBlock, file_name
from ....events import Outcome
from ....models.image import Image
from ....models.messages import AssistantMessage, LLMMessage, UserMessage
from ....observation import observe
from ....results import BlockResult, SessionCodeResult

USER = "user"  # the source of what the user wrote
RESULT = "code"  # the source of what the model is shown of its code
_NO_ANSWER = "(no answer)"
_NO_END = (
    "The code never ended: the program that ran it was killed. Its output and all variables are "
    "lost. Files that it wrote may be incomplete."
)


@dataclass(frozen=True)
class CodePicture:
    """A picture that code made. `path` is its file; `image` is None if only the path is known."""

    path: str
    image: Image | None = None


@dataclass(frozen=True)
class BlockRun:
    """A block of code, and what it did. `outcome` is None if the block did not run.

    files        the files that it created, relative to the work folder
    has_no_end   True if it has begun and not ended; also if the command was killed meanwhile
    """

    code: str
    language: str
    output: str = ""
    exit_code: int = 0
    outcome: Outcome | None = None
    limit: str | None = None
    notice: str = ""
    files: tuple[str, ...] = ()
    pictures: tuple[CodePicture, ...] = ()
    has_no_end: bool = False


@dataclass(frozen=True)
class UserEntry:
    """What the user said."""

    text: str


@dataclass(frozen=True)
class AnswerEntry:
    """What the model said. `is_complete` is False if the user interrupted it."""

    text: str
    is_complete: bool = True


@dataclass(frozen=True)
class RunEntry:
    """Blocks that ran. `is_edited` is True if the user changed the model's code before."""

    blocks: tuple[BlockRun, ...]
    is_edited: bool = False

    @property
    def has_no_end(self) -> bool:
        """Whether the command was killed while a block ran."""
        return any(block.has_no_end for block in self.blocks)


@dataclass(frozen=True)
class RefusalEntry:
    """The user did not let the code run. `reason` is "" if the user gave none."""

    reason: str


Entry = UserEntry | AnswerEntry | RunEntry | RefusalEntry


def block_run(block: CodeBlock, result: BlockResult, pictures: Sequence[CodePicture]) -> BlockRun:
    """Return `block` with what `result` says about it."""
    return BlockRun(
        block.code,
        block.language,
        output=result.output,
        exit_code=result.exit_code,
        outcome=result.outcome,
        limit=result.limit,
        notice=result.notice,
        files=tuple(result.files),
        pictures=tuple(pictures),
    )


def files_of_blocks(entries: Sequence[Entry]) -> list[str]:
    """Return the files that the blocks in `entries` have written, relative to the work folder."""
    blocks = [block for entry in entries if isinstance(entry, RunEntry) for block in entry.blocks]
    ran = [block for block in blocks if block.outcome is not None]
    own_names = (file_name(block.code) for block in ran)
    return [*chain.from_iterable(block.files for block in ran), *filter(None, own_names)]


def model_message(entry: Entry, *, has_vision: bool) -> LLMMessage:
    """Return what the model is shown of `entry`: of code that ran, what `observe` shows."""
    match entry:
        case UserEntry(text=text):
            return UserMessage(content=text, source=USER)
        case AnswerEntry(text=text):
            return AssistantMessage(content=text.strip() or _NO_ANSWER, source="assistant")
        case RefusalEntry(reason=reason):
            text = f"Code execution was not approved. Reason: {reason or 'the user gave none'}"
            return UserMessage(content=text, source=RESULT)
        case RunEntry(blocks=blocks):
            edited = [CodeBlock(block.code, block.language) for block in blocks]
            text = describe_edited(edited if entry.is_edited else []) + _observed(entry)
            pictures = chain.from_iterable(block.pictures for block in blocks)
            images = [picture.image for picture in pictures if picture.image is not None]
            content = [text, *images] if images and has_vision else text
            return UserMessage(content=content, source=RESULT)


def _observed(entry: RunEntry) -> str:
    """Return what the model is shown of the blocks that ran: the result of one call."""
    done = [block for block in entry.blocks if block.outcome is not None]
    if entry.has_no_end:
        return f"{_observed_blocks(done)}\n{_NO_END}" if done else _NO_END
    return _observed_blocks(done) if done else "The code did not run."


def _observed_blocks(done: Sequence[BlockRun]) -> str:
    last = done[-1]
    result = SessionCodeResult(
        exit_code=last.exit_code,
        output="".join(block.output for block in done),
        outcome=last.outcome or "ok",
        limit=last.limit,
        notice="\n".join(block.notice for block in done if block.notice),
        files=list(dict.fromkeys(chain.from_iterable(block.files for block in done))),
    )
    return observe(result).text
