"""Frames of a cell server, as events: text out of bytes, and the ending in the contract's words."""

from __future__ import annotations

import codecs
import os
import signal
from collections.abc import Iterator
from typing import Any, cast

from ..events import Display, Ended, Event, Outcome, Output, OutputTruncated, Stream, Usage
from ..limits import Limits
from ..runtime import protocol

EXIT_TIMEOUT, EXIT_CANCELLED, EXIT_KILLED = 124, 125, 137
TIMEOUT_TEXT = "\nTimeout"
CANCELLED_TEXT = "\nCancelled: Code execution was cancelled."
_Utf8 = cast("type[codecs.BufferedIncrementalDecoder]", codecs.getincrementaldecoder("utf-8"))
_UNSAFE = {0: "\ufffd", 0x1B: "\ufffd"}  # NUL, and what begins the control sequences of terminals


class Frames:
    """Make the events of one block out of its frames. Pure."""

    def __init__(self, block: int, limits: Limits) -> None:
        self._block, self._limits = block, limits
        self._decoders = dict[Stream, codecs.BufferedIncrementalDecoder]()
        self.since: int | None = (
            None  # at the end: when the block's file was written, if the server did that
        )

    def events(self, frame: protocol.Frame) -> Iterator[Event]:
        """Give the events that `frame` stands for; `Ended` is the last one."""
        match frame.kind:
            case protocol.STDOUT:
                yield from self._text("stdout", frame.payload)
            case protocol.STDERR:
                yield from self._text("stderr", frame.payload)
            case protocol.DISPLAY:
                yield from self._flush()
                if (shown := _shown(frame)) is not None:
                    yield Display(self._block, shown["data"], shown["metadata"])
            case protocol.CUT:
                yield from self._flush()
                lost = frame.json()
                yield OutputTruncated(self._block, int(lost["stdout"]), int(lost["stderr"]))
            case protocol.ENDED:
                yield from self._flush()
                yield self._ended(frame.json())
            case _:
                pass  # the start was told of when the file was written

    def _text(self, stream: Stream, data: bytes, *, final: bool = False) -> Iterator[Output]:
        decoder = self._decoders.get(stream)
        if data.isascii() and (
            decoder is None or not decoder.buffer
        ):  # nearly always, and sooner done
            if data:
                yield Output(self._block, stream, data.decode("ascii").translate(_UNSAFE))
            return
        if decoder is None:
            decoder = self._decoders[stream] = _Utf8(errors="replace")
        text = decoder.decode(data, final).translate(_UNSAFE)
        if text:
            yield Output(self._block, stream, text)

    def _flush(self) -> Iterator[Output]:
        for stream in sorted(self._decoders, reverse=True):  # stdout first
            if self._decoders[
                stream
            ].buffer:  # the beginning of a character that did not come whole
                yield from self._text(stream, b"", final=True)

    def _ended(self, ending: dict[str, Any]) -> Ended:
        self.since = ending.get("since")
        usage = Usage(
            float(ending["wall"]),
            float(ending["cpu"]),
            int(ending["peak"]),
            float(ending["queued"]),
        )
        exit_code, outcome, limit, message = _verdict(
            ending.get("why"), ending.get("status"), self._limits
        )
        if error := ending.get("error"):  # of the session's shell itself
            message = f"{message}\n{error}"
        restored, notice = (False, "") if ending.get("session", "kept") == "kept" else _fate(ending)
        return Ended(self._block, exit_code, outcome, limit, message, usage, restored, notice)


def _shown(frame: protocol.Frame) -> dict[str, Any] | None:
    """Give what a session shows; None for what no display of IPython's sends, but code that has the session's stream."""
    try:
        shown = frame.json()
    except protocol.WireError:
        return None
    return (
        shown if all(isinstance(shown.get(part), dict) for part in ("data", "metadata")) else None
    )


def _fate(ending: dict[str, Any]) -> tuple[bool, str]:
    """Tell whether a live session has the variables of before the block again, and what is to say of it."""
    lost = int(ending.get("lost", 0))
    what = ", ".join(str(item) for item in ending.get("obstacles", ()))
    why = f" No later copy of it could be made because of {what}." if what else ""
    match ending.get("session"):
        case "restored" if lost == 0:
            return (
                True,
                "The session was restored: its variables are as they were before this block.",
            )
        case "restored":
            return (
                False,
                f"The session was restored to what it was before the last {lost} blocks as well.{why}",
            )
        case "new":
            return False, f"The session was started afresh: its variables are gone.{why}"
        case _:
            return False, ""


def _verdict(
    why: str | None, status: int | None, limits: Limits
) -> tuple[int, Outcome, str | None, str]:
    """Give exit code, outcome, limit and last words for what the server says of an end."""
    match why:
        case "wall_seconds":
            return EXIT_TIMEOUT, "timeout", why, TIMEOUT_TEXT
        case "cpu_seconds":
            return (
                EXIT_TIMEOUT,
                "timeout",
                why,
                f"{TIMEOUT_TEXT}: the limit of {limits.cpu_seconds} CPU seconds.",
            )
        case "cancelled":
            return EXIT_CANCELLED, "cancelled", None, CANCELLED_TEXT
        case "memory_bytes":
            text = f"\nOut of memory: the limit of {limits.memory_bytes} bytes (memory_bytes)."
            return EXIT_KILLED, "out_of_memory", why, text
        case "written_bytes":
            text = f"\nKilled: more was written than the limit of {limits.written_bytes} bytes (written_bytes)."
            return EXIT_KILLED, "killed", why, text
        case _:
            return _own_end(status, limits)


def _own_end(status: int | None, limits: Limits) -> tuple[int, Outcome, str | None, str]:
    if status is None:
        return EXIT_KILLED, "killed", None, "\nKilled: the block's first process was killed."
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code >= 0:
        return exit_code, "error" if exit_code else "ok", None, ""
    if -exit_code == signal.SIGXFSZ and limits.file_bytes is not None:
        text = f"\nKilled: a file grew over the limit of {limits.file_bytes} bytes (file_bytes)."
        return 128 - exit_code, "killed", "file_bytes", text
    return 128 - exit_code, "error", None, ""
