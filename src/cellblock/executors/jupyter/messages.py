"""Jupyter messages, as events: what one request to a kernel brings about. Pure: no I/O, no clock, any transport."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ...events import Display, Ended, Event, Outcome, Output
from ..displays import plain, text_of

_DISPLAYS = ("display_data", "update_display_data", "execute_result")
NO_INPUT = "The code asked for input, and there is nobody to give it.\n"


class Execution:
    """Make the events of one block out of the messages that a kernel sends while it runs the request `request`.

    A message may be anything: what is not as Jupyter's protocol has it is passed over. With a `session`, what earlier
    requests of that session still print, from their threads say, is this block's output too.
    """

    def __init__(self, block: int, request: str, session: str = "") -> None:
        self._block, self.request, self._session = block, request, session
        self._idle = self._failed = self._quiet = False
        self._exit_code = 0
        self.replied = False
        self.ended = False
        self.wants_input = False

    def feed(self, message: object) -> Iterable[Event]:
        """Give the events that `message` stands for; `Ended` is the last one, once the reply and the idle state are in."""
        if self.ended:
            return ()
        parts = _mapping(message)
        kind, content = _kind(parts), _mapping(parts.get("content"))
        parent = _mapping(parts.get("parent_header"))
        if parent.get("msg_id") == self.request:
            return [*self._own(kind, content)]
        if self._session and parent.get("session") == self._session:
            return [*self._shown(kind, content)]
        return ()

    def quieten(self) -> None:
        """Say nothing more of errors: the interrupt that they speak of was ours."""
        self._quiet = True

    def end(
        self,
        exit_code: int,
        outcome: Outcome,
        limit: str | None = None,
        message: str = "",
        notice: str = "",
    ) -> Ended:
        """End it here, for a reason that no message tells."""
        self.ended = True
        return Ended(self._block, exit_code, outcome, limit, message, notice=notice)

    def end_as_replied(self) -> Ended:
        """End it with what is known of its success."""
        return self.end(self._exit_code, "error" if self._exit_code else "ok")

    def _own(self, kind: str, content: Mapping[str, Any]) -> Iterator[Event]:
        match kind:
            case "error":
                yield from self._fail(content)
            case "execute_reply":
                yield from self._reply(content)
            case "status":
                self._idle = self._idle or content.get("execution_state") == "idle"
            case "input_request":
                if not self.wants_input:
                    yield Output(self._block, "stderr", NO_INPUT)
                self.wants_input = True
            case _:
                yield from self._shown(kind, content)
        if self._idle and self.replied:
            yield self.end_as_replied()

    def _shown(self, kind: str, content: Mapping[str, Any]) -> Iterator[Event]:
        if kind == "stream":
            stream = "stderr" if content.get("name") == "stderr" else "stdout"
            if text := plain(_text(content.get("text"))):
                yield Output(self._block, stream, text)
        elif kind in _DISPLAYS:
            data = _mapping(content.get("data"))
            if text := text_of(data):
                yield Output(self._block, "stdout", text)
            if data:
                yield Display(self._block, data, _mapping(content.get("metadata")))

    def _reply(self, content: Mapping[str, Any]) -> Iterator[Event]:
        self.replied = True
        if content.get("status") != "ok":
            yield from self._fail(content)
        payload = content.get("payload")
        for item in cast("list[object]", payload) if isinstance(payload, list) else ():
            page = _mapping(item)
            if page.get("source") == "page" and (text := text_of(_mapping(page.get("data")))):
                yield Output(self._block, "stdout", text)

    def _fail(self, content: Mapping[str, Any]) -> Iterator[Output]:
        """Take in an error; it comes twice, as a message of its own and in the reply, and not from every kernel."""
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
        if name in ("SystemExit", "") and (code := _number(value)) is not None:
            # sys.exit(3) in Python; kernels of shells tell of a command's exit code without a name.
            self._exit_code, text = code if name else code or 1, ""
        elif name == "SystemExit":
            text = value
        if text and not self._quiet:
            yield Output(self._block, "stderr", plain(text.rstrip("\n")) + "\n")


def tells_of_death(message: object) -> bool:
    """Tell whether a server says by `message` that the kernel it watches is gone, or another one in its place already."""
    parts = _mapping(message)
    state = _mapping(parts.get("content")).get("execution_state")
    return _kind(parts) == "status" and state in ("restarting", "autorestarting", "dead")


def _kind(message: Mapping[str, Any]) -> str:
    return _text(message.get("msg_type")) or _text(_mapping(message.get("header")).get("msg_type"))


def _number(value: str) -> int | None:
    """Give the exit code that `value` says, as a process would have it; None when it is a text."""
    if value in ("", "None"):
        return 0
    if len(value) > 20 or not value.isascii() or not value.removeprefix("-").isdigit():
        return None
    return int(value) & 0xFF


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
