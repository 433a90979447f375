"""What pages show of the output of code: text, and HTML that is known to be inert."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, cast

from pydantic import BaseModel

from ...events import Display, Ended, Event, Output, OutputTruncated
from ...results import CodeResult, truncation_marker
from ...safe_output.bundle import clean_bundle
from ..doors.rest.live_run import Failure
from ..http.statuses import message_of

MAX_CHARACTERS = 200_000  # of the text of one run in a page
_MAX_DISPLAY = 8_000_000  # characters of one display
# Executors replace the escape character by U+FFFD. Pages show no colours of text.
_COLOUR = re.compile(r"\ufffd\[[0-9;]{0,30}m")
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_LEFT_OUT = "Part of this output is not shown: it may contain a script or load something."
_CHART = "This chart needs a script to be drawn. Show it as a picture, such as a PNG."
_TOO_LARGE = "This output is too large for the page. Save it as a file instead."

Kind = Literal["stdout", "stderr", "value", "note", "html"]


class ShownPart(BaseModel):
    """A part of the output. Only that of the kind "html" is markup; the others are text.

    replaced   the text that the code has written before instead, for clients without displays
    """

    kind: Kind
    text: str
    replaced: str = ""


def show_event(event: Event | Failure) -> Iterator[ShownPart]:
    """Yield what a page shows of an event."""
    match event:
        case Output(stream=stream, text=text):
            yield ShownPart(kind=stream, text=_plain(text))
        case OutputTruncated(stdout_bytes=out, stderr_bytes=err):
            yield ShownPart(kind="note", text=truncation_marker(out + err).strip())
        case Display(data=data, metadata=metadata):
            yield from _show_display(data, metadata)
        case Ended(message=message, notice=notice):
            for text in filter(None, (message.strip(), notice.strip())):
                yield ShownPart(kind="note", text=_plain(text))
        case Failure(error=error):
            yield ShownPart(kind="note", text=message_of(error))
        case _:
            pass


def show_events(events: Iterable[Event | Failure]) -> list[ShownPart]:
    """Return what a page shows of events. Of much text, only the end is shown."""
    merged = list[ShownPart]()
    for part in (part for event in events for part in show_event(event)):
        last = merged[-1] if merged else None
        if last is not None and last.kind == part.kind in ("stdout", "stderr"):
            last.text += part.text
            continue
        _insert(merged, part)
    for part in merged[:-1]:
        part.text = _without_line_end(part)
    return _bounded(merged)


def _insert(parts: list[ShownPart], part: ShownPart) -> None:
    """Insert a part where the text that it replaces stands, even if more text follows by now."""
    index = len(parts) - 1
    while index >= 0 and parts[index].kind == "stderr":
        index -= 1
    text = parts[index].text if index >= 0 and parts[index].kind == "stdout" else ""
    place = _find_replaced(text, part.replaced) if part.replaced else -1
    if place < 0:
        parts.append(part)
        return
    pieces = [text[:place], text[place + len(part.replaced) :]]
    before, after = ([ShownPart(kind="stdout", text=piece)] if piece else [] for piece in pieces)
    parts[index : index + 1] = [*before, part, *after]


def _find_replaced(text: str, replaced: str) -> int:
    if text.endswith(replaced):
        return len(text) - len(replaced)
    return f"\n{text}".find(f"\n{replaced}")


def _without_line_end(part: ShownPart) -> str:
    """Return the text without the end of its last line: the next part begins a line anyway."""
    has_line = part.kind in ("stdout", "stderr") and part.text[-2:-1] not in ("", "\n")
    return part.text.removesuffix("\n") if has_line else part.text


def show_result(result: CodeResult) -> list[ShownPart]:
    """Return what a page shows of a result: its text, then what only displays show."""
    displays = show_events(Display(0, data, {}) for data in result.displays)
    pictures = [part for part in displays if part.kind in ("html", "note")]
    return show_events([Output(0, "stdout", result.output)]) + pictures


def _bounded(parts: list[ShownPart]) -> list[ShownPart]:
    room, left_out, kept = MAX_CHARACTERS, 0, list[ShownPart]()
    for part in reversed(parts):
        text = part.text if part.kind == "html" else part.text[max(0, len(part.text) - room) :]
        if part.kind != "html":
            room -= len(text)
            left_out += len(part.text) - len(text)
        if text:
            kept.append(part.model_copy(update={"text": text}))
    if left_out:
        note = f"The first {left_out} characters are not shown here."
        kept.append(ShownPart(kind="note", text=note))
    return kept[::-1]


def _show_display(
    data: Mapping[str, object], metadata: Mapping[str, object]
) -> Iterator[ShownPart]:
    if sum(len(value) for value in data.values() if isinstance(value, str)) > _MAX_DISPLAY:
        yield ShownPart(kind="note", text=_TOO_LARGE)
        return
    bundle = clean_bundle(data, metadata)
    shown = _richest(bundle.data, bundle.metadata)
    if shown is not None:
        text = data.get("text/plain")
        if isinstance(text, str):
            shown.replaced = _plain(f"{text}\n")
        yield shown
    if bundle.has_chart and (shown is None or shown.kind == "value"):
        yield ShownPart(kind="note", text=_CHART)
    elif not bundle.is_complete:
        yield ShownPart(kind="note", text=_LEFT_OUT)


def _richest(data: Mapping[str, object], metadata: Mapping[str, object]) -> ShownPart | None:
    if "text/html" in data:
        return ShownPart(kind="html", text=str(data["text/html"]))
    for mime in _PICTURES:
        if mime in data:
            return ShownPart(kind="html", text=_picture(mime, data, metadata.get(mime)))
    for mime in ("text/latex", "text/plain"):
        if mime in data:
            return ShownPart(kind="value", text=_plain(f"{data[mime]}"))
    if "application/json" in data:
        text = json.dumps(data["application/json"], indent=2, ensure_ascii=False)
        return ShownPart(kind="value", text=_plain(text))
    return None


def _picture(mime: str, data: Mapping[str, object], size: object) -> str:
    """Return a picture, described by the text that code has given with it."""
    described = _plain(str(data.get("text/plain") or "A picture")).strip()
    sizes = cast("Mapping[str, object]", size if isinstance(size, Mapping) else {})
    attributes = "".join(
        f' {name}="{value:.0f}"'
        for name in ("width", "height")
        if isinstance(value := sizes.get(name), int | float) and 0 < value < 10_000
    )
    source = html.escape("".join(str(data[mime]).split()))
    alt = html.escape(described[:200])
    return f'<img src="data:{mime};base64,{source}" alt="{alt}"{attributes}>'


def _plain(text: str) -> str:
    return _COLOUR.sub("", text)
