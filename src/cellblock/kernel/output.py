"""CellOutput: turn the events of one cell into the messages that a Jupyter client shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..events import Display, Ended, Event, Output, OutputTruncated
from ..results import truncation_marker
from .reports import ReportReader, SessionReport, as_mapping
from .safe_content import clean_bundle

Message = tuple[str, dict[str, Any]]  # its type and its content
# Executors replace the escape character by U+FFFD. What follows it can only change the colours.
_COLOUR = re.compile(r"\ufffd(\[[0-9;]{0,30}m)")
_SCRIPT_NOTE = (
    "A script, or content that may contain one, was left out: it would run in your browser, "
    "outside the sandbox. If you trust the code, install the kernel with --allow-scripts.\n"
)
_ERROR_NAMES = {
    "timeout": "Timeout",
    "cancelled": "KeyboardInterrupt",
    "out_of_memory": "OutOfMemory",
    "killed": "Killed",
    "error": "ProcessEnded",
}


class CellOutput:
    """Turn events into messages, and keep what the reply to the request needs. Does no I/O.

    count           the number of the cell
    allows_scripts  False to take active content out of displays
    error         the content of the last error; None if there was none
    payload       what the cell asks the client to do
    reply         what the session replied to a question
    ended         the last event; None until the cell has ended
    """

    def __init__(self, count: int = 0, *, allows_scripts: bool = False) -> None:
        self._count, self._reports = count, ReportReader()
        self._allows_scripts, self._has_noted_scripts = allows_scripts, False
        self.error: dict[str, Any] | None = None
        self.payload: list[dict[str, Any]] = []
        self.reply: dict[str, Any] = {}
        self.ended: Ended | None = None

    def read(self, event: Event) -> Iterator[Message]:
        """Yield the messages for `event`."""
        match event:
            case Output(stream=stream, text=text):
                yield _stream(stream, _COLOUR.sub("\x1b\\1", text))
            case OutputTruncated(stdout_bytes=out, stderr_bytes=err):
                yield _stream("stderr", truncation_marker(out + err))
            case Display():
                yield from self._display(event)
            case Ended():
                self.ended = event
                yield from self._end(event)
            case _:
                pass

    def _display(self, display: Display) -> Iterator[Message]:
        report = self._reports.read(display)
        if report is None:
            return
        match report.kind:
            case "payload":
                self.payload = [*_allowed_payload(report.content["payload"])]
            case "reply":
                self.reply = report.content["data"]
            case "failure":
                self.error = report.content
            case "error":
                self.error = report.content
                yield report.kind, report.content
            case "clear_output":
                yield report.kind, report.content
            case _:
                yield from self._bundle(report)

    def _bundle(self, report: SessionReport) -> Iterator[Message]:
        content: dict[str, Any] = report.content
        if report.kind == "execute_result":
            content = {**content, "execution_count": self._count}
        if self._allows_scripts:
            yield report.kind, content
            return
        data, has_scripts = clean_bundle(as_mapping(content["data"]))
        yield report.kind, {**content, "data": data}
        if has_scripts and not self._has_noted_scripts:
            self._has_noted_scripts = True
            yield _stream("stderr", _SCRIPT_NOTE)

    def _end(self, ended: Ended) -> Iterator[Message]:
        if ended.exit_code == 0:
            # Code can show a traceback and go on. `sys.exit()` must stop the cells after it.
            if self.error is not None and self.error["ename"] != "SystemExit":
                self.error = None
        elif self.error is None:
            self.error = _describe_error(ended)
            yield "error", self.error
            return
        # The traceback has shown an interrupt already.
        message = "" if ended.outcome == "cancelled" else ended.message
        if text := _join(message, ended.notice):
            yield _stream("stderr", f"{text}\n")


def _allowed_payload(payload: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what a cell may ask of any client: show text in the pager, and fill the next input."""
    for item in payload:
        match item:
            case {"source": "page", "data": {"text/plain": str(text)}}:
                yield {"source": "page", "data": {"text/plain": text}, "start": 0}
            case {"source": "set_next_input", "text": str(text)}:
                replace = item.get("replace") is True
                yield {"source": "set_next_input", "text": text, "replace": replace}
            case _:
                pass


def _describe_error(ended: Ended) -> dict[str, Any]:
    """Return the error of a cell that ended without a traceback."""
    name = _ERROR_NAMES.get(ended.outcome, "ProcessEnded")
    how = ended.message
    if ended.outcome == "cancelled":
        how = "The cell was interrupted."
    elif not how.strip():
        how = f"The session's process ended with exit code {ended.exit_code}."
    value = _join(how, ended.notice)
    return {"ename": name, "evalue": value, "traceback": [f"{name}: {value}"]}


def describe_failure(error: Exception) -> dict[str, Any]:
    """Return the error of a cell that could not be run."""
    name = type(error).__name__
    return {"ename": name, "evalue": str(error), "traceback": [f"{name}: {error}"]}


def _join(*parts: str) -> str:
    return " ".join(part.strip() for part in parts if part.strip())


def _stream(name: str, text: str) -> Message:
    return "stream", {"name": name, "text": text}
