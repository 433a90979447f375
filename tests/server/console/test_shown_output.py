"""What pages show of events: text as text, displays cleaned, little of what is long."""

from __future__ import annotations

from cellblock.errors import BackendError
from cellblock.events import Display, Output, OutputTruncated
from cellblock.server.console.shown_output import MAX_CHARACTERS, ShownPart, show_events
from cellblock.server.doors.rest.live_run import Failure

_PIXEL = "iVBORw0KGgo="


def _show(*events: Output | Display | OutputTruncated | Failure) -> list[ShownPart]:
    return show_events(events)


def _display(**data: object) -> Display:
    return Display(0, {name.replace("_", "/"): value for name, value in data.items()}, {})


def test_text_of_one_stream_is_one_part() -> None:
    parts = _show(Output(0, "stdout", "a"), Output(0, "stdout", "b"), Output(0, "stderr", "c"))
    assert [(part.kind, part.text) for part in parts] == [("stdout", "ab"), ("stderr", "c")]


def test_a_display_replaces_the_text_that_was_written_for_it() -> None:
    shown = _display(text_plain="<Figure>", image_png=_PIXEL)
    first, second = _show(Output(0, "stdout", "before\n<Figure>\n"), shown)
    assert first.text == "before"
    assert second.kind == "html"
    assert second.text == f'<img src="data:image/png;base64,{_PIXEL}" alt="&lt;Figure&gt;">'
    assert [part.kind for part in _show(Output(0, "stdout", "4\n"), _display(text_plain="4"))] == [
        "value"
    ]


def test_a_display_is_shown_where_its_text_was_written() -> None:
    early = [Output(0, "stdout", "15\n5\n6\nlater\n"), Output(0, "stderr", "e\n")]
    shown = show_events([*early, _display(text_plain="5"), _display(text_plain="6")])
    assert [part.text for part in shown] == ["15", "5", "6", "later", "e\n"]
    (part,) = _show(_display(text_plain="5"))
    assert part.text == "5"


def test_text_before_a_value_ends_without_an_empty_line() -> None:
    for text, shown in {"p\n": "p", "p": "p", "p\n\n": "p\n\n", "\n": "\n"}.items():
        first, _ = _show(Output(0, "stdout", f"{text}4\n"), _display(text_plain="4"))
        assert first.text == shown
    assert _show(Output(0, "stdout", "p\n"))[0].text == "p\n"


def test_the_description_of_a_picture_cannot_leave_its_attribute() -> None:
    (part,) = _show(_display(text_plain='"><script>alert(1)</script>', image_png=_PIXEL))
    assert '"><script' not in part.text


def test_pictures_that_are_not_base64_are_left_out() -> None:
    (part,) = _show(_display(image_png='x" onerror="alert(1)'))
    assert part.kind == "note"


def test_scripts_and_charts_are_named_instead_of_shown() -> None:
    (script,) = _show(_display(**{"application_javascript": "alert(1)"}))
    assert "not shown" in script.text
    chart: dict[str, object] = {"data": [{"y": [1]}], "layout": {}}
    mime = "application/vnd.plotly.v1+json"
    (part,) = show_events([Display(0, {mime: chart}, {})])
    assert part.kind == "note"
    assert "Show it as a picture" in part.text


def test_of_long_text_the_end_is_shown() -> None:
    parts = _show(Output(0, "stdout", "a" * MAX_CHARACTERS), Output(0, "stderr", "b" * 10))
    assert [part.kind for part in parts] == ["note", "stdout", "stderr"]
    assert parts[0].text.startswith("The first 10 characters")
    assert len(parts[1].text) == MAX_CHARACTERS - 10


def test_colours_are_left_out() -> None:
    (part,) = _show(Output(0, "stdout", "\ufffd[31mred\ufffd[0m"))
    assert part.text == "red"


def test_internal_errors_stay_in_the_log() -> None:
    (part,) = _show(Failure(BackendError("/secret/path")))
    assert "/secret/path" not in part.text
