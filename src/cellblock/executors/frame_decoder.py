"""FrameDecoder: turn the frames of the runtime server into events."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from typing import cast

from ..events import Display, Ended, Event, Outcome, Output, OutputTruncated, Stream, Usage
from ..limits import Limits
from ..runtime import protocol
from ..runtime.messages import Ending, OutputLost
from ..runtime.packets import decode_fields
from .displays import display_event

EXIT_TIMEOUT, EXIT_CANCELLED, EXIT_KILLED = 124, 125, 137
TIMEOUT_TEXT = "\nTimeout"
CANCELLED_TEXT = "\nCancelled: Code execution was cancelled."
_SIGXFSZ = 25  # of Linux, where blocks run
_Utf8 = cast("type[codecs.BufferedIncrementalDecoder]", codecs.getincrementaldecoder("utf-8"))
# NUL, and what starts terminal codes: ESC and the controls of 8 bits.
_REPLACED_CHARACTERS = dict.fromkeys((0, 0x1B, *range(0x80, 0xA0)), "\ufffd")


def as_output(text: str) -> str:
    """Return `text` as a result shows it if a program has printed it."""
    data = text.encode(errors="replace")
    return data.decode(errors="replace").translate(_REPLACED_CHARACTERS)


class FrameDecoder:
    """Decode the frames of one block into events. Does no I/O.

    The frames come from a `Connection`, which has checked their fields.
    """

    def __init__(self, block: int, limits: Limits) -> None:
        self._block, self._limits = block, limits
        self._decoders = dict[Stream, codecs.BufferedIncrementalDecoder]()
        self._has_reported_display = False
        # When the server wrote the block's file, in nanoseconds. Set by the last frame.
        self.written_at: int | None = None

    def decode(self, frame: protocol.Frame) -> Iterator[Event]:
        """Yield the events that `frame` stands for. `Ended` is the last event of a block."""
        match frame.kind:
            case protocol.STDOUT:
                yield from self._text("stdout", frame.payload)
            case protocol.STDERR:
                yield from self._text("stderr", frame.payload)
            case protocol.DISPLAY:
                yield from self._flush()
                yield from self._display(frame)
            case protocol.TRUNCATED:
                yield from self._flush()
                lost = decode_fields(frame, OutputLost)
                yield OutputTruncated(self._block, lost.stdout, lost.stderr)
            case protocol.ENDED:
                yield from self._flush()
                yield self._ended(decode_fields(frame, Ending))
            case _:
                pass  # the executor yields `Started` itself

    def _text(self, stream: Stream, data: bytes, *, final: bool = False) -> Iterator[Output]:
        decoder = self._decoders.get(stream)
        if data.isascii() and (decoder is None or not decoder.buffer):  # the common, fast case
            if data:
                yield Output(
                    self._block, stream, data.decode("ascii").translate(_REPLACED_CHARACTERS)
                )
            return
        if decoder is None:
            decoder = self._decoders[stream] = _Utf8(errors="replace")
        text = decoder.decode(data, final).translate(_REPLACED_CHARACTERS)
        if text:
            yield Output(self._block, stream, text)

    def _flush(self) -> Iterator[Output]:
        for stream in sorted(self._decoders, reverse=True):  # stdout first
            if self._decoders[stream].buffer:  # the first bytes of an incomplete character
                yield from self._text(stream, b"", final=True)

    def _display(self, frame: protocol.Frame) -> Iterator[Display | Output]:
        """Yield the display in `frame`, which user code can forge."""
        try:
            display = frame.json()
        except protocol.ProtocolError:
            display = dict[str, object]()
        event = display_event(self._block, display.get("data"), display.get("metadata"))
        # Once for each block: a forged frame can be far smaller than the message.
        if isinstance(event, Display) or not self._has_reported_display:
            self._has_reported_display |= isinstance(event, Output)
            yield event

    def _ended(self, ending: Ending) -> Ended:
        self.written_at = ending.code_ctime_ns
        usage = Usage(float(ending.wall), float(ending.cpu), ending.peak, float(ending.queued))
        exit_code, outcome, limit, message = _describe_end(ending.why, ending.status, self._limits)
        if error := ending.error:  # an error of the session itself, not of the block
            message = f"{message}\n{error}"
        restored, notice = _describe_restore(ending)
        lost = 0 if ending.session in (None, "kept") else ending.lost or 0
        return Ended(self._block, exit_code, outcome, limit, message, usage, restored, notice, lost)


def _describe_restore(ending: Ending) -> tuple[bool, str]:
    """Return whether the session has its state from before the block, and a notice about it."""
    lost = ending.lost or 0
    what = ", ".join(ending.obstacles or ())
    why = f" No later checkpoint could be made because of {what}." if what else ""
    if failure := ending.failure:
        why = f" No later checkpoint could be made. {failure}"
    variables = ", ".join(ending.lost_variables or ())
    match ending.session:
        case "restored" if variables:
            others = (
                f"from {lost} block{'s' if lost > 1 else ''} before this one"
                if lost
                else "as they were before this block"
            )
            return False, (
                f"The session was restored without what could not be saved: {variables}. "
                f"The other variables are {others}."
            )
        case "restored" if lost == 0:
            return (
                True,
                "The session was restored: its variables are as they were before this block.",
            )
        case "restored":
            return (
                False,
                "Variables are lost: the session went back to its state of "
                f"{lost} block{'s' if lost > 1 else ''} before this one.{why}",
            )
        case "new":
            return False, f"The session was restarted: its variables are gone.{why}"
        case _ if threads := ending.by_value:
            return False, (
                "From now on only the values of variables can be restored, because "
                f"{', '.join(threads)} cannot be copied. What cannot be pickled, such as a "
                "connection or a generator, would be lost."
            )
        case _ if unsaved := ending.unsaved:
            return False, (
                f"{unsaved} Until it can be, a block that ends its process also undoes those "
                "before it."
            )
        case _:
            return False, ""


def _describe_end(
    why: str | None, status: int | None, limits: Limits
) -> tuple[int, Outcome, str | None, str]:
    """Return exit code, outcome, exceeded limit and message for the end that the server reports."""
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
            text = (
                f"\nKilled: the block wrote more than the limit of {limits.written_bytes} bytes "
                "(written_bytes)."
            )
            return EXIT_KILLED, "killed", why, text
        case "output_bytes":
            text = "\nKilled: the program printed without end (output_bytes)."
            return EXIT_KILLED, "killed", why, text
        case "files":
            text = f"\nKilled: the block made more than the limit of {limits.files} files (files)."
            return EXIT_KILLED, "killed", why, text
        case _:
            return _describe_exit(status, limits)


def _describe_exit(status: int | None, limits: Limits) -> tuple[int, Outcome, str | None, str]:
    if status is None:
        return EXIT_KILLED, "killed", None, "\nKilled: the first process of the block was killed."
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code >= 0:
        return exit_code, "error" if exit_code else "ok", None, ""
    if -exit_code == _SIGXFSZ and limits.file_bytes is not None:
        text = f"\nKilled: a file grew over the limit of {limits.file_bytes} bytes (file_bytes)."
        return 128 - exit_code, "killed", "file_bytes", text
    return 128 - exit_code, "error", None, ""
