"""A transcript as Markdown: for people, and to continue from later.

Each entry begins with a comment such as `<!-- cellblock:user {} -->`, which Markdown hides.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from ....blocks import CodeBlock
from ....fences import Fence, commonmark_fences, fenced
from ..languages import blocks_of
from .entries import AnswerEntry, BlockRun, CodePicture, Entry, RefusalEntry, RunEntry, UserEntry
from .saved_block import SavedBlock

_MARKER = re.compile(r"^<!-- cellblock:(\w+) (\{.*\}) -->$", re.MULTILINE)
_START, _ESCAPED = "<!-- cellblock:", "<!-- cellblock\\:"
_TITLES = {
    "user": "## You",
    "answer": "## Assistant",
    "refusal": "**Not run**",
    "run": "**Output**",
}
_ATTRIBUTES = TypeAdapter(dict[str, Any])


def to_markdown(entries: Sequence[Entry], folder: str) -> str:
    """Return the text of a file in `folder` with `entries`."""
    return "\n".join(_section(*part) for part in _parts(entries, folder)) + "\n"


def _parts(entries: Iterable[Entry], folder: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield the kind, the attributes and the text of each section."""
    for entry in entries:
        match entry:
            case UserEntry(text=text):
                yield "user", {}, _escape(text)
            case AnswerEntry(text=text, is_complete=is_complete):
                yield "answer", {} if is_complete else {"interrupted": True}, _escape(text)
            case RefusalEntry(reason=reason):
                yield "refusal", {}, _escape(reason)
            case RunEntry():
                yield from _run_parts(entry, folder)


def _run_parts(entry: RunEntry, folder: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    for number, block in enumerate(entry.blocks):
        saved = SavedBlock.of(block, number, is_edited=entry.is_edited)
        pictures = [os.path.relpath(path, folder) for path in saved.pictures]
        attributes = saved.model_copy(update={"pictures": pictures}).attributes()
        parts = [fenced(_escape(block.code), block.language)] if entry.is_edited else []
        if block.outcome is not None:
            parts.append(fenced(_escape(block.output), "text"))
        parts += [f"![{os.path.basename(path)}](<{quote(path)}>)" for path in pictures]
        yield "run", attributes, "\n\n".join(parts)


def _section(kind: str, attributes: Mapping[str, Any], text: str) -> str:
    # No ">": a name of a file must not end the comment.
    values = json.dumps(attributes, ensure_ascii=False).replace(">", "\\u003e")
    return f"{_START}{kind} {values} -->\n{_TITLES[kind]}\n\n{text.rstrip()}\n"


def _escape(text: str) -> str:
    return text.replace(_START, _ESCAPED)


def _unescape(text: str) -> str:
    return text.replace(_ESCAPED, _START)


def from_markdown(text: str, folder: str) -> list[Entry]:
    """Return the entries in the text of a file in `folder`. Raise `ValueError` if it has none."""
    _, *parts = _MARKER.split(text.replace("\r\n", "\n"))
    if not parts and text.strip():
        raise ValueError("it is not a transcript of cellblock chat")
    entries: list[Entry] = []
    for kind, attributes, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if kind not in _TITLES:
            raise ValueError(f"it has an entry of the unknown kind {kind!r}")
        body = body.strip("\n").removeprefix(_TITLES[kind]).strip("\n")
        try:
            _add(entries, kind, _ATTRIBUTES.validate_json(attributes), body, folder)
        except ValidationError as error:
            raise ValueError(f"the comment of an entry is damaged: {attributes:.80}") from error
    return entries


def _add(
    entries: list[Entry], kind: str, attributes: dict[str, Any], body: str, folder: str
) -> None:
    match kind:
        case "user":
            entries.append(UserEntry(_unescape(body)))
        case "answer":
            entries.append(AnswerEntry(_unescape(body), not attributes.get("interrupted", False)))
        case "refusal":
            entries.append(RefusalEntry(_unescape(body)))
        case _:
            saved = SavedBlock.model_validate(attributes)
            block = _read_block(entries, saved, body, folder)
            if saved.number and entries and isinstance(entries[-1], RunEntry):
                run = entries.pop()
                entries.append(RunEntry((*cast(RunEntry, run).blocks, block), saved.edited))
            else:
                entries.append(RunEntry((block,), saved.edited))


def _read_block(entries: Sequence[Entry], saved: SavedBlock, body: str, folder: str) -> BlockRun:
    fences = commonmark_fences(body)
    if saved.edited:
        first, fences = (fences[0] if fences else Fence("", "")), fences[1:]
        code = CodeBlock(_unescape(f"{first.code}\n"), first.info.strip())
    else:
        code = _proposed(entries, saved.number)
    output = _unescape(f"{fences[0].code}\n") if fences and fences[0].code else ""
    pictures = [
        CodePicture(os.path.normpath(os.path.join(folder, path))) for path in saved.pictures
    ]
    return saved.block_run(code, output, pictures)


def _proposed(entries: Sequence[Entry], number: int) -> CodeBlock:
    """Return block `number` of the last answer; an empty one if the file was changed."""
    for entry in reversed(entries):
        if isinstance(entry, AnswerEntry):
            blocks = blocks_of(entry.text)
            if number < len(blocks):
                return blocks[number]
            break
    return CodeBlock("", "python")
