"""CellOutput: turn the events of one cell into the messages that a Jupyter client shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..events import Display, Ended, Event, Output, OutputTruncated
from ..results import truncation_marker
from ..safe_output.bundle import CleanBundle, clean_bundle, drop_widgets
from .endings import as_notebook_text
from .reports import ReportReader, SessionReport, as_mapping

Message = tuple[str, dict[str, Any]]  # its type and its content
# Executors replace the escape character by U+FFFD. What follows it can only change the colours.
_COLOUR = re.compile(r"\ufffd(\[[0-9;]{0,30}m)")
_REMOVED_NOTE = (
    "Part of the output was left out. It may contain a script, load something or change the page "
    "in your browser, outside the sandbox. If you trust the code, install the kernel with "
    "--allow-scripts.\n"
)
_WIDGET_NOTE = "Widgets do not work in this kernel: their text is shown.\n"
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
        self._allows_scripts, self._notes = allows_scripts, _Notes()
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
        content = dict(report.content)
        if report.kind == "execute_result":
            content["execution_count"] = self._count
        else:
            content["transient"] = _display_id(content["transient"])
        clean = drop_widgets if self._allows_scripts else clean_bundle
        bundle = clean(as_mapping(content["data"]), as_mapping(content["metadata"]))
        self._notes.add(bundle)
        if bundle.data or report.kind != "display_data" or content["transient"]:
            yield report.kind, {**content, "data": bundle.data, "metadata": bundle.metadata}

    def _end(self, ended: Ended) -> Iterator[Message]:
        for note in self._notes.lines():
            yield _stream("stderr", note)
        if ended.exit_code == 0:
            # Code can show a traceback and continue. `sys.exit()` must stop the cells after it.
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


class _Notes:
    """What a cell says once about its displays, when it ends."""

    def __init__(self) -> None:
        self._has_removed = self._has_removed_all = self._has_chart = self._has_widget = False

    def add(self, bundle: CleanBundle) -> None:
        """Look at a display."""
        if not bundle.is_complete:
            self._has_removed = self._has_removed or bool(bundle.data)
            self._has_removed_all = self._has_removed_all or not bundle.data
        self._has_chart = self._has_chart or bundle.has_chart
        self._has_widget = self._has_widget or bundle.has_widget

    def lines(self) -> Iterator[str]:
        """Yield the notes."""
        # Next to a chart that is drawn from data, a lone script only loads a library for it.
        if self._has_removed or (self._has_removed_all and not self._has_chart):
            yield _REMOVED_NOTE
        if self._has_widget:
            yield _WIDGET_NOTE


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


def _display_id(transient: dict[str, Any]) -> dict[str, Any]:
    """Return the name by which a cell changes a display later; clients know no other entry."""
    name = transient.get("display_id")
    return {"display_id": name} if isinstance(name, str) else {}


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
    name, text = type(error).__name__, as_notebook_text(str(error))
    return {"ename": name, "evalue": text, "traceback": [f"{name}: {text}"]}


def _join(*parts: str) -> str:
    return " ".join(part.strip() for part in parts if part.strip())


def _stream(name: str, text: str) -> Message:
    return "stream", {"name": name, "text": text}
