"""Read the transcript in a notebook, also after JupyterLab has changed its cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from ....blocks import CodeBlock
from ....fences import fenced
from ....models.image import Image
from .entries import (
    AnswerEntry,
    BlockRun,
    CodePicture,
    Entry,
    RefusalEntry,
    RunEntry,
    UserEntry,
)
from .notebook_file import TITLES
from .saved_block import SavedBlock

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_Text = str | list[str]


class _Attributes(SavedBlock):
    """Our metadata of a cell. `answer` is the entry whose text has the code of the cell."""

    role: Literal["user", "answer", "refusal", "run"]
    entry: int
    interrupted: bool = False
    answer: int | None = None


class _Metadata(BaseModel):
    cellblock: _Attributes | None = None


class _Output(BaseModel):
    text: _Text = ""
    data: dict[str, Any] = Field(default_factory=dict[str, Any])
    traceback: list[str] = Field(default_factory=list[str])


class _Cell(BaseModel):
    metadata: _Metadata
    source: _Text
    outputs: list[_Output] = Field(default_factory=list[_Output])


class _Notebook(BaseModel):
    cells: list[_Cell]


def from_notebook(text: str) -> list[Entry]:
    """Return the entries in the text of a notebook. Cells that are not ours are ignored.

    Raise `ValueError` if it is damaged, or has no cells of Cellblock's.
    """
    try:
        notebook = _Notebook.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"it is not a notebook: {error.errors()[0]['msg']}") from error
    groups: dict[int, list[tuple[_Attributes, _Cell]]] = {}
    for cell in notebook.cells:
        attributes = cell.metadata.cellblock
        if attributes is None:
            continue
        groups.setdefault(attributes.entry, []).append((attributes, cell))
        if attributes.answer is not None:
            groups.setdefault(attributes.answer, []).append((attributes, cell))
    if not groups:
        raise ValueError("it is not a transcript of cellblock chat")
    return [_entry(number, groups[number]) for number in sorted(groups)]


def _entry(number: int, cells: Sequence[tuple[_Attributes, _Cell]]) -> Entry:
    # An answer whose first cell was deleted may begin with code.
    answers = [attributes for attributes, _ in cells if attributes.answer == number]
    first = cells[0][0]
    role = "answer" if answers else first.role
    texts = [_cell_text(attributes, cell) for attributes, cell in cells]
    whole = "\n\n".join(text for text in texts if text)
    match role:
        case "user":
            return UserEntry(whole)
        case "answer":
            return AnswerEntry(whole, is_complete=not first.interrupted)
        case "refusal":
            return RefusalEntry(whole)
        case "run":
            blocks = [_block_run(attributes, cell) for attributes, cell in cells]
            return RunEntry(tuple(blocks), first.edited)


def _cell_text(attributes: _Attributes, cell: _Cell) -> str:
    if attributes.role == "run":
        block = _code(attributes, cell)
        return fenced(block.code, block.language)
    return _join(cell.source).removeprefix(TITLES[attributes.role]).strip("\n")


def _code(attributes: _Attributes, cell: _Cell) -> CodeBlock:
    source = _join(cell.source)
    if source.startswith("%%"):
        source = source.partition("\n")[2]
    return CodeBlock(f"{source}\n", attributes.language)


def _block_run(attributes: _Attributes, cell: _Cell) -> BlockRun:
    paths = [*attributes.pictures]
    images = [image for output in cell.outputs if (image := _image(output)) is not None]
    pictures = [
        CodePicture(paths[number] if number < len(paths) else "", image)
        for number, image in enumerate(images)
    ]
    pictures += [CodePicture(path) for path in paths[len(images) :]]
    output = "".join(_output_text(output) for output in cell.outputs)
    return attributes.block_run(_code(attributes, cell), output, pictures)


def _output_text(output: _Output) -> str:
    if output.traceback:
        return "\n".join(output.traceback) + "\n"
    if output.data and _image(output) is None:
        return f"{output.data.get('text/plain', '')}\n"
    return _join(output.text)


def _image(output: _Output) -> Image | None:
    for mime_type in _PICTURES:
        content = output.data.get(mime_type)
        if isinstance(content, str):
            try:
                return Image.from_base64(content)
            except ValueError:
                return None
    return None


def _join(text: _Text) -> str:
    return text if isinstance(text, str) else "".join(text)
