"""What the service reports about a run, as the events of a block. Pure: no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from ...events import Display, Outcome, Output, OutputTruncated, Stream
from ...results import truncation_marker
from ..displays import display_event, display_text, strip_terminal_codes
from ..frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED, EXIT_KILLED, EXIT_TIMEOUT, TIMEOUT_TEXT
from .dialects import Execution

_IMAGE_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "gif": "image/gif"}
# The end of the traceback of sys.exit(3) in a Jupyter kernel.
_SYSTEM_EXIT = re.compile(r"^SystemExit: (?P<code>-?\d{1,9}|None)?\s*\Z", re.MULTILINE)
# The last lines by which `cellblock serve` says how a run ended: the protocol has no place for it.
_CLOSING_LINE = re.compile(
    r"\n(?:"
    r"(?P<timeout>Timeout: the time limit ended the run\.)"
    r"|(?P<cancelled>Cancelled: the run was cancelled\.)"
    r"|(?P<memory>Out of memory: the run reached the memory limit\.)"
    r"|Killed: the run reached the limit (?P<limit>\w+)\."
    r"|The program ended with exit code (?P<code>\d{1,9})\."
    r")\n(?P<notice>[^\n]+\n)?\Z"
)
_LEFT_OUT = re.compile(re.escape(truncation_marker(1)).replace("1", r"(?P<bytes>\d{1,18})", 1))


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: the fields of `Ended`, and its standard error without what said so."""

    exit_code: int
    outcome: Outcome
    stderr: str
    limit: str | None = None
    message: str = ""
    notice: str = ""


def run_end(execution: Execution, wall_seconds: float, seconds: float | None) -> RunEnd:
    """Return how a run ended that the service has reported.

    seconds   the time limit. A run that failed after it has reached the limit: Azure has no status
              of its own for that.
    """
    stderr = strip_terminal_codes(execution.stderr)
    if (code := execution.exit_code) is not None:
        return RunEnd(code, "error" if code else "ok", stderr)
    if execution.status == "succeeded":
        return RunEnd(0, "ok", stderr)
    if (line := _CLOSING_LINE.search(stderr)) is not None:
        return _end_for_line(line)
    if seconds is not None and wall_seconds >= seconds:
        return RunEnd(EXIT_TIMEOUT, "timeout", stderr, "wall_seconds", TIMEOUT_TEXT)
    if execution.status == "canceled":
        return RunEnd(EXIT_CANCELLED, "cancelled", stderr, message=CANCELLED_TEXT)
    code = _exit_code(stderr)
    return RunEnd(code, "error" if code else "ok", stderr)


def as_shell_run(execution: Execution) -> Execution:
    """Return the run of `code_to_run_shell` with the exit code that is its last value."""
    if execution.status != "succeeded" or not isinstance(execution.result, int):
        return execution
    return replace(execution, exit_code=execution.result, result=None)


def _end_for_line(line: re.Match[str]) -> RunEnd:
    """Return the end that a closing line states."""
    stderr, notice = line.string[: line.start()], (line["notice"] or "").strip()
    if line["timeout"]:
        return RunEnd(EXIT_TIMEOUT, "timeout", stderr, "wall_seconds", TIMEOUT_TEXT, notice)
    if line["cancelled"]:
        return RunEnd(EXIT_CANCELLED, "cancelled", stderr, None, CANCELLED_TEXT, notice)
    if line["code"]:
        code = int(line["code"]) & 0xFF
        return RunEnd(code, "error" if code else "ok", stderr, notice=notice)
    limit = "memory_bytes" if line["memory"] else line["limit"]
    outcome: Outcome = "out_of_memory" if line["memory"] else "killed"
    return RunEnd(EXIT_KILLED, outcome, stderr, limit, f"\n{line[0].strip()}", notice)


def output_events(
    block: int, execution: Execution, end: RunEnd, *, with_result: bool
) -> Iterator[Output | OutputTruncated | Display]:
    """Yield what a run wrote, then what it displayed as its last value.

    The service reports stdout and stderr apart, so the order between them is lost.
    """
    yield from _text_events(block, "stdout", strip_terminal_codes(execution.stdout))
    yield from _text_events(block, "stderr", end.stderr)
    if not with_result or execution.status != "succeeded":
        return
    if data := result_bundle(execution.result):
        yield Output(block, "stdout", display_text(data))
        yield display_event(block, data, {})


def _text_events(block: int, stream: Stream, text: str) -> Iterator[Output | OutputTruncated]:
    """Yield `text`. Where `cellblock serve` has left out a part, say how much."""
    position = 0
    for marker in _LEFT_OUT.finditer(text):
        if part := text[position : marker.start()]:
            yield Output(block, stream, part)
        size, position = int(marker["bytes"]), marker.end()
        yield OutputTruncated(block, *((size, 0) if stream == "stdout" else (0, size)))
    if part := text[position:]:
        yield Output(block, stream, part)


def result_bundle(result: object) -> dict[str, object]:
    """Return the MIME bundle of a last value; an empty one for None."""
    if result is None or result == "":
        return {}
    if isinstance(result, str):
        return {"text/plain": result}
    if isinstance(result, dict):
        image = cast("dict[str, object]", result)
        mime = _IMAGE_TYPES.get(str(image.get("format", "")).lower())
        if image.get("type") == "image" and mime and isinstance(image.get("base64_data"), str):
            return {mime: image["base64_data"]}
    is_scalar = isinstance(result, bool | int | float)
    return {"text/plain": str(result) if is_scalar else json.dumps(result, ensure_ascii=False)}


def _exit_code(stderr: str) -> int:
    """Return the exit code of a run that failed: that of `sys.exit`, or else 1."""
    found = _SYSTEM_EXIT.search(stderr)
    if found is None:
        return 1
    return int(found["code"]) & 0xFF if found["code"] not in (None, "None") else 0
