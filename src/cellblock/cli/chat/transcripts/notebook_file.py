"""A transcript as a notebook (nbformat 4.5), which JupyterLab opens.

Code that ran is in code cells with its output; everything else is in Markdown cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from .answer_parts import split_answer
from .entries import AnswerEntry, BlockRun, Entry, RefusalEntry, RunEntry, UserEntry
from .saved_block import SavedBlock
from .saved_options import SavedOptions

TITLES = {"user": "### You", "answer": "### Assistant", "refusal": "**Not run**"}
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_OURS = {"version": 1}


def to_notebook(entries: Sequence[Entry], options: SavedOptions | None = None) -> str:
    """Return the text of the file with `entries`, and with the options with which they ran."""
    cells = [
        {"id": f"cell-{number}", **cell} for number, cell in enumerate(_all_cells(entries), start=1)
    ]
    saved = {} if options is None else options.model_dump(mode="json", exclude_defaults=True)
    metadata = {**_METADATA, "cellblock": {**_OURS, **({"options": saved} if saved else {})}}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _all_cells(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    runs = 0
    for number, entry in enumerate(entries):
        following = entries[number + 1] if number + 1 < len(entries) else None
        match entry:
            case UserEntry(text=text):
                yield _text_cell("user", number, text, {})
            case RefusalEntry(reason=reason):
                yield _text_cell("refusal", number, reason, {})
            case AnswerEntry():
                for cell in _answer_cells(number, entry, following):
                    runs += cell["cell_type"] == "code"
                    yield _numbered(cell, runs)
            case RunEntry():
                previous = entries[number - 1] if number else None
                if not (isinstance(previous, AnswerEntry) and split_answer(previous.text, entry)):
                    for index, block in enumerate(entry.blocks):
                        runs += 1
                        yield _numbered(_code_cell(number, index, block, entry), runs)


def _answer_cells(
    number: int, entry: AnswerEntry, following: Entry | None
) -> Iterator[dict[str, Any]]:
    """Yield the cells of an answer, with the code that `following` ran in their midst."""
    attributes = {} if entry.is_complete else {"interrupted": True}
    run = following if isinstance(following, RunEntry) else None
    parts = split_answer(entry.text, run) if run is not None else None
    if run is None or parts is None:
        yield _text_cell("answer", number, entry.text, attributes)
        return
    is_first = True
    for part in parts:
        if isinstance(part, int):
            cell = _code_cell(number + 1, part, run.blocks[part], run)
            cell["metadata"]["cellblock"]["answer"] = number
            yield cell
        elif is_first or part.strip():
            yield _text_cell("answer", number, part.strip("\n"), attributes, has_title=is_first)
        is_first = False


def _text_cell(
    role: str, number: int, text: str, attributes: dict[str, Any], *, has_title: bool = True
) -> dict[str, Any]:
    source = f"{TITLES[role]}\n\n{text}" if has_title else text
    metadata = {"cellblock": {"role": role, "entry": number, **attributes}}
    return {"cell_type": "markdown", "metadata": metadata, "source": _lines(source)}


def _code_cell(number: int, index: int, block: BlockRun, entry: RunEntry) -> dict[str, Any]:
    saved = SavedBlock.of(block, index, is_edited=entry.is_edited).attributes()
    magic = "" if block.language.startswith("py") else f"%%{block.language}\n"
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"cellblock": {"role": "run", "entry": number, **saved}},
        "outputs": list(_outputs(block)),
        "source": _lines(f"{magic}{block.code.rstrip()}"),
    }


def _numbered(cell: dict[str, Any], count: int) -> dict[str, Any]:
    is_run = cell["cell_type"] == "code" and "outcome" in cell["metadata"]["cellblock"]
    return {**cell, "execution_count": count} if is_run else cell


def _outputs(block: BlockRun) -> Iterator[dict[str, Any]]:
    if block.output:
        name = "stdout" if block.exit_code == 0 else "stderr"
        yield {"output_type": "stream", "name": name, "text": _lines(block.output)}
    for picture in block.pictures:
        if picture.image is not None:
            data = {
                picture.image.mime_type: picture.image.to_base64(),
                "text/plain": picture.path or "picture",
            }
            yield {"output_type": "display_data", "data": data, "metadata": {}}


def _lines(text: str) -> list[str]:
    """Return the lines of `text` as notebooks keep them: with their line ends."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return [line for line in lines if line]
