"""Events are folded into one result."""

import html
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import (
    CodeResult,
    CommandLineCodeResult,
    Display,
    Ended,
    Event,
    ExecutionCancelled,
    ExecutionError,
    ExecutionFailed,
    ExecutionTimeout,
    FileCreated,
    JupyterCodeResult,
    Output,
    OutputTruncated,
    SessionCodeResult,
    Started,
    Usage,
    fold,
)
from cellblock.events import Outcome, Stream
from cellblock.observation import observe

STREAMS: st.SearchStrategy[Stream] = st.sampled_from(["stdout", "stderr"])


@given(st.lists(st.lists(st.builds(Output, st.just(0), STREAMS, st.text()))))
def test_output_has_all_text_in_order_and_each_stream_separately(
    blocks: list[list[Output]],
) -> None:
    events: list[Event] = []
    for outputs in blocks:
        events += [Started(0, "sh"), *outputs, Ended(0, 0, "ok")]
    result = fold(events)
    written = [output for outputs in blocks for output in outputs]
    assert result.output == "".join(output.text for output in written)
    assert result.stdout == "".join(output.text for output in written if output.stream == "stdout")
    assert result.stderr == "".join(output.text for output in written if output.stream == "stderr")
    assert len(result.blocks) == len(blocks)


def test_result_has_outcome_of_last_block_and_file_of_first_block() -> None:
    events = [
        Started(0, "python", "a.py"),
        FileCreated(0, "x.csv", 1),
        Display(0, {"text/plain": "1"}),
        Ended(0, 0, "ok", usage=Usage(1, 2, 30, 4)),
        Started(1, "sh", "b.sh"),
        Output(1, "stdout", "partial"),
        FileCreated(1, "x.csv", 2),
        FileCreated(1, "y.csv", 2),
        Ended(1, 124, "timeout", "wall_seconds", "\nTimeout", Usage(1, 2, 3, 4)),
    ]
    result = fold(events)
    assert (result.exit_code, result.outcome, result.limit) == (124, "timeout", "wall_seconds")
    assert (result.output, result.stdout) == ("partial\nTimeout", "partial")
    assert (result.code_file, result.files) == ("a.py", ["x.csv", "y.csv"])
    assert (result.usage, result.displays) == (Usage(2, 4, 30, 8), [{"text/plain": "1"}])
    assert [(block.code_file, block.exit_code, block.files) for block in result.blocks] == [
        ("a.py", 0, ["x.csv"]),
        ("b.sh", 124, ["x.csv", "y.csv"]),
    ]


def test_every_result_has_the_notices_of_its_blocks() -> None:
    events: list[Event] = []
    for number, notice in enumerate(("first", "", "third")):
        events += [Started(number, "sh"), Ended(number, 0, "ok", notice=notice)]
    result = fold(events)
    assert result.notice == "first\nthird"
    assert [block.notice for block in result.blocks] == ["first", "", "third"]
    assert CodeResult(0, "").notice == CommandLineCodeResult(0, "").notice == ""
    assert observe(result).text.endswith("first\nthird")


def test_every_result_says_what_its_session_has_lost() -> None:
    ended = Ended(0, 0, "ok", session_restored=True, lost_blocks=2)
    for kind in (CodeResult, CommandLineCodeResult, SessionCodeResult, JupyterCodeResult):
        assert (kind(0, "").session_restored, kind(0, "").lost_blocks) == (False, 0)
    result = fold([Started(0, "python"), ended, Started(1, "python"), ended])
    assert (result.session_restored, result.lost_blocks) == (True, 4)


def test_truncated_output_is_marked_with_the_bytes_of_each_stream() -> None:
    before = [Output(0, "stdout", "a"), Output(0, "stderr", "b")]
    outputs = [*before, OutputTruncated(0, 3, 0), Output(0, "stdout", "c")]
    result = fold([Started(0, "sh"), *outputs, Ended(0, 0, "ok")])
    marker = "\n[... 3 bytes left out ...]\n"
    assert (result.output, result.stdout, result.stderr) == (f"ab{marker}c", f"a{marker}c", "b")
    assert str(fold([])) == "exit_code=0 output='' code_file=None"


def test_check_raises_the_matching_error_with_the_result() -> None:
    errors: dict[Outcome, type[ExecutionError]] = {
        "timeout": ExecutionTimeout,
        "cancelled": ExecutionCancelled,
        "error": ExecutionFailed,
        "killed": ExecutionFailed,
        "out_of_memory": ExecutionFailed,
    }
    for outcome, error in errors.items():
        result = fold([Started(0, "sh"), Output(0, "stderr", "why"), Ended(0, 3, outcome)])
        with pytest.raises(error, match="why") as caught:
            result.check()
        assert type(caught.value) is error
        assert caught.value.result is result
    assert issubclass(ExecutionTimeout, TimeoutError)
    result = fold([Started(0, "sh"), Ended(0, 0, "ok")])
    assert result.check() is result


def test_results_are_equal_by_exit_code_output_and_files() -> None:
    def result(code_file: str, text: str, wall: float, *files: str) -> CommandLineCodeResult:
        created = [FileCreated(0, path, 1) for path in files]
        ended = Ended(0, 0, "ok", usage=Usage(wall_seconds=wall))
        return fold([Started(0, "sh", code_file), Output(0, "stdout", text), *created, ended])

    first = result("/w/a.sh", "hi\n", 1, "x.csv")
    assert first == result("/w/b.sh", "hi\n", 2, "x.csv")
    assert first.blocks == result("/w/b.sh", "hi\n", 2, "x.csv").blocks
    assert first != result("/w/a.sh", "ho\n", 1, "x.csv")
    assert first != result("/w/a.sh", "hi\n", 1, "y.csv")
    assert result("/w/a.sh", "hi\n", 1) == CommandLineCodeResult(0, "hi\n")
    assert CommandLineCodeResult(0, "") != CommandLineCodeResult(1, "")
    shown = [SessionCodeResult(0, "", output_files=[Path(name)]) for name in ("/a.png", "/b.png")]
    assert shown[0] != shown[1]


def test_repr_of_a_result_is_one_short_line() -> None:
    result = fold([Started(0, "sh"), Output(0, "stdout", "line\n" * 500), Ended(0, 3, "error")])
    assert len(repr(result).splitlines()) == 1
    assert len(repr(result)) < 200
    assert repr(result).startswith(
        "CommandLineCodeResult(outcome='error', exit_code=3, output='line\\n"
    )
    assert repr(result.blocks[0]).startswith("BlockResult(outcome='error', exit_code=3, ")


def test_notebook_shows_output_and_displays_without_their_scripts() -> None:
    script = "<script>alert(1)</script>"
    result = fold(
        [
            Started(0, "python"),
            Output(0, "stdout", f"1 < 2 {script}"),
            Display(0, {"image/png": "aGk=\n", "text/plain": "<Figure>"}),
            Display(0, {"image/svg+xml": f"<svg>{script}</svg>"}),
            Display(0, {"text/html": ["<b>bold</b>", script]}),
            Ended(0, 0, "ok"),
        ]
    )
    bundle = result._repr_mimebundle_()
    assert bundle["text/plain"] == result.output
    shown = bundle["text/html"]
    assert shown == result._repr_html_()
    assert "<pre>1 &lt; 2 " in shown
    assert '<img src="data:image/png;base64,aGk=">' in shown
    assert '<img src="data:image/svg+xml;base64,' in shown
    assert "&lt;b&gt;bold" in shown.partition("<iframe sandbox srcdoc=")[2]
    assert "<script" not in shown


def test_a_page_in_a_notebook_opens_no_connection_and_that_of_plotly_is_left_out() -> None:
    def shown(bundle: dict[str, Any]) -> str:
        events = [Started(0, "python"), Display(0, bundle), Ended(0, 0, "ok")]
        return fold(events)._repr_html_()

    plotly: dict[str, Any] = {
        "application/vnd.plotly.v1+json": {"data": []},
        "text/html": "<script>1</script>",
    }
    assert shown(plotly) == "<p>A figure of plotly: its page is one of output_files.</p>"
    page = "<!doctype html><LINK rel=preconnect href='https://example.org'><img src=x>"
    frame = html.unescape(shown({"text/html": page}).partition('srcdoc="')[2])
    assert frame.startswith('<meta http-equiv="Content-Security-Policy" content="default-src')
    assert "<link" not in frame.lower()
