"""Rich values of a live session are displayed and saved as files."""

from __future__ import annotations

import base64
import contextlib
import resource
from collections.abc import Generator

import pytest

from tests.executors.session.live_session import (
    LiveSession,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJ"
    "RU5ErkJggg=="
)


MIME = {
    "text/html": ("_repr_html_", "'<b>bold</b>'", "<b>bold</b>"),
    "image/svg+xml": ("_repr_svg_", "'<svg></svg>'", "<svg></svg>"),
    "text/latex": ("_repr_latex_", "'$x^2$'", "$x^2$"),
    "text/markdown": ("_repr_markdown_", "'# title'", "# title"),
    "application/json": ("_repr_json_", "{'a': [1, None]}", {"a": [1, None]}),
    "image/png": ("_repr_png_", repr(PNG), base64.b64encode(PNG).decode()),
    "image/jpeg": ("_repr_jpeg_", repr(PNG), base64.b64encode(PNG).decode()),
    "application/vnd.plotly.v1+json": (
        "_repr_mimebundle_",
        "{'application/vnd.plotly.v1+json': {'data': [{'y': [1, 2]}]}, 'text/plain': 'a plot'}",
        {"data": [{"y": [1, 2]}]},
    ),
}


def rich_value_code(mime: str, way: str) -> str:
    method, value, _ = MIME[mime]
    arguments = "self, include=None, exclude=None" if "bundle" in method else "self"
    return f"class Rich:\n    def {method}({arguments}): return {value}\n{way}"


def test_a_rich_value_is_displayed(live: LiveSession) -> None:
    for mime in MIME:
        for way in ("Rich()", "display(Rich())"):
            result = live.run(rich_value_code(mime, way))
            assert (result.exit_code, len(result.displays)) == (0, 1), (mime, way, result)
            shown = result.displays[0][mime]
            stripped = shown.strip() if isinstance(shown, str) else shown
            assert stripped == MIME[mime][2], (mime, way)
            assert "text/plain" in result.displays[0], (mime, way)


def test_images_and_pages_are_saved(live: LiveSession) -> None:
    for mime, suffix in (("text/html", "html"), ("image/svg+xml", "svg"), ("image/png", "png")):
        [file] = live.run(rich_value_code(mime, "Rich()")).output_files
        assert (file.parent, file.suffix) == (live.folder, f".{suffix}")
        wanted = MIME[mime][2]
        assert file.read_bytes() == PNG if suffix == "png" else file.read_text() == wanted


def test_displays_come_in_order_with_the_text_between(live: LiveSession) -> None:
    result = live.run("print('one')\ndisplay('two')\nprint('three')\n'four'")
    assert result.output == "one\n'two'\nthree\n'four'\n"
    assert [display["text/plain"] for display in result.displays] == ["'two'", "'four'"]


@contextlib.contextmanager
def no_file_can_grow() -> Generator[None]:
    """Let this process, but none that runs already, write no more than one byte to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_display_that_cannot_be_saved_takes_no_output_away(live: LiveSession) -> None:
    live.run_ok("kept = 1")
    code = f"print('one')\ndisplay({{'image/png': {PNG!r}}}, raw=True)\nprint('two')"
    with no_file_can_grow():
        result = live.run(code)
    assert (result.exit_code, result.stdout.replace("[image/png]\n", "")) == (0, "one\ntwo\n")
    assert "image/png" in result.displays[0]
    assert result.output_files == []
    assert "cannot be saved" in result.stderr
    assert live.run_ok("kept") == "1"


def test_a_figure_is_collected_inline(live: LiveSession) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    result = live.run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
    assert (result.exit_code, len(result.output_files)) == (0, 1), result
    assert result.output_files[0].read_bytes().startswith(b"\x89PNG")
    second = live.run("plt.plot([3, 1]);")
    assert len(second.output_files) == 1, second
    assert len([display for display in second.displays if "image/png" in display]) == 1
    assert live.run("print('no figure')").output_files == []
    for backend in ("notebook", "widget", "qt"):  # what has windows or widgets
        assert "shown inline" in live.run_ok(f"%matplotlib {backend}")
        assert len(live.run("plt.plot([3, 1]);").output_files) == 1, backend


BAD_DISPLAYS = {
    "a repr that fails": "class Bad:\n    def __repr__(self): raise RuntimeError('no repr')\nBad()",
    "html that fails": "class Bad:\n    def _repr_html_(self): 1 / 0\nBad()",
    "a bundle that is no JSON": "display({'application/json': {1, 2}}, raw=True)",
    "a picture that is no base64": "display({'image/png': '???'}, raw=True)",
    "a value that is its own element": (
        "x = []; x.append(x); display({'application/json': x}, raw=True)"
    ),
    "a bundle with odd keys": "display({3: 'x', 'text/plain': 'y'}, raw=True)",
    "lone surrogates": "display({'text/plain': '\\ud800'}, raw=True)",
    "numbers beyond JSON": "display({'application/json': float('nan')}, raw=True)",
}


def test_an_invalid_display_does_not_end_the_session(live: LiveSession) -> None:
    live.run_ok("kept = 1")
    for name, code in BAD_DISPLAYS.items():
        result = live.run(code)
        assert not result.session_restored, (name, result)
        assert (live.run_ok("kept"), live.run("kept").notice) == ("1", ""), name
