"""The `result` of a run as the service shows it: a JSON scalar, a text, or an image."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....results import CodeResult

_IMAGE_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif"}
_REPLACED_CHARACTERS = {0: "\ufffd", 0x1B: "\ufffd"}  # as in the output of executors
_MAX_LITERAL = 1 << 20  # characters; longer texts are not parsed


@dataclass(frozen=True)
class Answer:
    """What a run printed, and the value that it ended with. `value` is "" if there is none."""

    stdout: str
    stderr: str
    value: Any = ""


def answer_of(result: CodeResult, *, is_shell: bool = False) -> Answer:
    """Return the answer for a result. The texts of shown values are taken out of stdout.

    If nothing else says how the run ended, stderr does, except for the exit code of a shell
    command.
    """
    if is_shell and result.outcome in ("ok", "error"):
        return Answer(result.stdout, result.stderr)
    stdout, stderr = result.stdout, result.stderr + end_text(result)
    if result.outcome != "ok" or not result.displays:
        return Answer(stdout, stderr)
    last = result.displays[-1]
    for bundle in result.displays:
        if image_of(bundle) is not None:
            stdout = _without_text(stdout, bundle)
    if (image := image_of(last)) is not None:
        return Answer(stdout, stderr, image)
    text = last.get("text/plain")
    if not isinstance(text, str):
        return Answer(stdout, stderr)
    return Answer(_without_last_text(stdout, text), stderr, scalar_of(text))


def end_text(result: CodeResult) -> str:
    """Return the line that says how a run ended, if its output does not."""
    lines = [_ENDS.get(result.outcome, "")]
    if result.outcome == "killed" and result.limit:
        lines = [f"Killed: the run reached the limit {result.limit}."]
    if result.outcome == "error" and not result.stderr.strip():
        lines = [f"The program ended with exit code {result.exit_code}."]
    text = "\n".join(line for line in (*lines, result.notice) if line)
    return f"\n{text}\n" if text else ""


_ENDS = {
    "timeout": "Timeout: the time limit ended the run.",
    "cancelled": "Cancelled: the run was cancelled.",
    "out_of_memory": "Out of memory: the run reached the memory limit.",
    "killed": "Killed: the run was ended from outside.",
}


def image_of(bundle: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the image of a MIME bundle in the form of the service, or None."""
    for mime_type, image_format in _IMAGE_FORMATS.items():
        data = bundle.get(mime_type)
        if isinstance(data, str) and data:
            content = _encodable("".join(data.split()))
            return {"type": "image", "format": image_format, "base64_data": content}
    return None


def scalar_of(text: str) -> Any:
    """Return the value whose `repr` is `text`: a number, bool, string or None; else the text.

    NaN and infinity become None, which JSON has instead.
    """
    text = _encodable(text)
    if text in ("nan", "inf", "-inf"):
        return None
    if len(text) > _MAX_LITERAL:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if isinstance(value, float) and not math.isfinite(value):
        return text
    is_scalar = isinstance(value, bool | int | float | str)
    if not is_scalar or repr(value) != text or value != _encodable(value):
        return text
    return value


def _without_text(stdout: str, bundle: Mapping[str, Any]) -> str:
    text = bundle.get("text/plain")
    return stdout.replace(f"{text}\n", "", 1) if isinstance(text, str) else stdout


def _without_last_text(stdout: str, text: str) -> str:
    return stdout.removesuffix(text.translate(_REPLACED_CHARACTERS) + "\n")


def _encodable(value: Any) -> Any:
    """Return a text without lone surrogates, which JSON in UTF-8 cannot hold, or another value."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
