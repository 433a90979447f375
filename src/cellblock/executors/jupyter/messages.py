"""MessageDecoder: turn the Jupyter messages of one request into events. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ...events import Ended, Event, Outcome, Output
from ..displays import display_event, display_text, strip_terminal_codes

_DISPLAY_KINDS = ("display_data", "update_display_data", "execute_result")
NO_INPUT_MESSAGE = "The code asked for input, but blocks have no standard input.\n"


class MessageDecoder:
    """Turn a kernel's messages during the request `request` into the events of a block.

    Invalid messages are ignored. With a `session`, late output of earlier requests of that session,
    such as from their threads, is also output of this block.
    """

    def __init__(self, block: int, request: str, session: str = "") -> None:
        self._block, self.request, self._session = block, request, session
        self._idle = self._failed = self._errors_suppressed = False
        self._exit_code = 0
        self.replied = False
        self.ended = False
        self.wants_input = False

    def decode(self, message: object) -> Iterable[Event]:
        """Return the events of `message`.

        `Ended` is the last one, once both the reply and the idle status have been received.
        """
        if self.ended:
            return ()
        parts = _mapping(message)
        kind, content = _kind(parts), _mapping(parts.get("content"))
        parent = _mapping(parts.get("parent_header"))
        if parent.get("msg_id") == self.request:
            return [*self._decode_own(kind, content)]
        if self._session and parent.get("session") == self._session:
            return [*self._decode_output(kind, content)]
        return ()

    def suppress_errors(self) -> None:
        """Do not output errors any more, because they come from our interrupt."""
        self._errors_suppressed = True

    def finish(
        self,
        exit_code: int,
        outcome: Outcome,
        limit: str | None = None,
        message: str = "",
        notice: str = "",
    ) -> Ended:
        """Return `Ended` for a reason that is not in a message."""
        self.ended = True
        return Ended(self._block, exit_code, outcome, limit, message, notice=notice)

    def finish_as_replied(self) -> Ended:
        """Return `Ended` with the outcome that the messages so far show."""
        return self.finish(self._exit_code, "error" if self._exit_code else "ok")

    def _decode_own(self, kind: str, content: Mapping[str, Any]) -> Iterator[Event]:
        match kind:
            case "error":
                yield from self._decode_error(content)
            case "execute_reply":
                yield from self._decode_reply(content)
            case "status":
                self._idle = self._idle or content.get("execution_state") == "idle"
            case "input_request":
                if not self.wants_input:
                    yield Output(self._block, "stderr", NO_INPUT_MESSAGE)
                self.wants_input = True
            case _:
                yield from self._decode_output(kind, content)
        if self._idle and self.replied:
            yield self.finish_as_replied()

    def _decode_output(self, kind: str, content: Mapping[str, Any]) -> Iterator[Event]:
        if kind == "stream":
            stream = "stderr" if content.get("name") == "stderr" else "stdout"
            if text := strip_terminal_codes(_text(content.get("text"))):
                yield Output(self._block, stream, text)
        elif kind in _DISPLAY_KINDS:
            data = _mapping(content.get("data"))
            if text := display_text(data):
                yield Output(self._block, "stdout", text)
            if data:
                yield display_event(self._block, data, _mapping(content.get("metadata")))

    def _decode_reply(self, content: Mapping[str, Any]) -> Iterator[Event]:
        self.replied = True
        if content.get("status") != "ok":
            yield from self._decode_error(content)
        payload = content.get("payload")
        for item in cast("list[object]", payload) if isinstance(payload, list) else ():
            page = _mapping(item)
            if page.get("source") == "page" and (text := display_text(_mapping(page.get("data")))):
                yield Output(self._block, "stdout", text)

    def _decode_error(self, content: Mapping[str, Any]) -> Iterator[Output]:
        """Decode an error. Most kernels send it twice, in an error message and in the reply."""
        if self._failed:
            return
        self._failed = True
        name, value = _text(content.get("ename")), _text(content.get("evalue"))
        lines = content.get("traceback")
        text = (
            "\n".join(_text(line) for line in cast("list[object]", lines))
            if isinstance(lines, list)
            else ""
        )
        text = text or f"{name}: {value}".strip(": ")
        self._exit_code = 1
        if name in ("SystemExit", "") and (code := _exit_code_in(value)) is not None:
            # sys.exit(3) in Python. Shell kernels report a command's exit code without a name.
            self._exit_code, text = code if name else code or 1, ""
        elif name == "SystemExit":
            text = value
        if text and not self._errors_suppressed:
            yield Output(self._block, "stderr", strip_terminal_codes(text.rstrip("\n")) + "\n")


def reports_kernel_death(message: object) -> bool:
    """Return True if `message` is a server's report that the kernel died or was restarted."""
    parts = _mapping(message)
    state = _mapping(parts.get("content")).get("execution_state")
    return _kind(parts) == "status" and state in ("restarting", "autorestarting", "dead")


def _kind(message: Mapping[str, Any]) -> str:
    return _text(message.get("msg_type")) or _text(_mapping(message.get("header")).get("msg_type"))


def _exit_code_in(value: str) -> int | None:
    """Return the exit code for a SystemExit with `value`; None if the value is text."""
    if value in ("", "None"):
        return 0
    if len(value) > 20 or not value.isascii() or not value.removeprefix("-").isdigit():
        return None
    return int(value) & 0xFF


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
