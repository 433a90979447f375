"""The pure functions of the command: events as text, sizes, block selection, the doctor's table."""

from __future__ import annotations

import pytest

from cellblock.blocks import CodeBlock
from cellblock.cli.doctor import table_rows
from cellblock.cli.input_file import InputError, parse_blocks, select_runnable
from cellblock.cli.sizes import format_size, parse_size
from cellblock.cli.terminal.render import Renderer, StyledText
from cellblock.events import Display, Ended, Event, FileCreated, Output, OutputTruncated, Started
from cellblock.languages import LANGUAGES, find_language
from cellblock.sandbox.guarantees import Guarantee

BLOCKS = [CodeBlock("echo", "sh"), CodeBlock("# filename: plot.py\n", "python")]


def render(*events: Event, same_destination: bool = False) -> list[StyledText]:
    renderer = Renderer(BLOCKS, folder="coding", same_destination=same_destination)
    return [piece for event in events for piece in renderer.render(event)]


def text_on(stream: str, pieces: list[StyledText]) -> str:
    return "".join(piece.text for piece in pieces if piece.stream == stream)


# events


def test_headings_and_output_keep_their_stream_and_text() -> None:
    assert render(Started(0, "sh")) == [StyledText("stderr", "--- block 1 of 2: sh\n", "bold")]
    assert text_on("stderr", render(Started(1, "python"))) == "--- block 2 of 2: python (plot.py)\n"
    pieces = render(
        Output(0, "stdout", "a\r"), Output(0, "stderr", "b"), Output(0, "stdout", "c\n")
    )
    shown = [("stdout", "a\r"), ("stderr", "b"), ("stdout", "c\n")]
    assert [(piece.stream, piece.text) for piece in pieces] == shown


def test_truncation_is_marked_in_the_truncated_streams() -> None:
    pieces = render(OutputTruncated(0, 12, 0))
    assert text_on("stdout", pieces) == "\n[... 12 bytes left out ...]\n"
    assert text_on("stderr", pieces).startswith("--- 12 bytes of output are left out")
    on_stderr = text_on("stderr", render(OutputTruncated(0, 0, 7)))
    assert on_stderr.startswith("\n[... 7 bytes left out ...]\n--- 7 bytes of output")


def test_note_starts_on_a_new_line_of_its_terminal() -> None:
    ended = Ended(0, 3, "error")
    on_stderr, on_stdout = Output(0, "stderr", "half"), Output(0, "stdout", "half")
    assert text_on("stderr", render(on_stderr, ended)) == "half\n--- exit code 3\n"
    assert text_on("stderr", render(on_stdout, ended)) == "--- exit code 3\n"
    shared = render(on_stdout, ended, same_destination=True)
    assert text_on("stderr", shared) == "\n--- exit code 3\n"
    assert render(Ended(0, 0, "ok")) == []


def test_failure_summary_has_the_reason() -> None:
    timeout = Ended(0, 124, "timeout", "wall_seconds", "\nTimeout")
    memory = Ended(0, 137, "out_of_memory", "m", "\nOut: the limit of 5 (m).")
    cancelled = Ended(0, 125, "cancelled", None, "\nCancelled: it was.")
    unknown = Ended(0, 1, "error", None, "unknown language x")
    segfault = "exit code 139 (SIGSEGV: Segmentation fault); It was restored"
    summaries = {
        timeout: "Timeout; limit wall_seconds; exit code 124",
        unknown: "unknown language x; exit code 1",
        memory: "Out: the limit of 5 (m); exit code 137",
        cancelled: "Cancelled: it was",
        Ended(0, 139, "error", notice="It was restored."): segfault,
    }
    for ended, summary in summaries.items():
        assert render(ended) == [StyledText("stderr", f"--- {summary}\n", "bold")]


def test_files_are_listed_with_sizes_and_startup_files_first_with_a_warning() -> None:
    def listed(*paths: str, size: int = 1) -> list[str]:
        created = [FileCreated(0, path, size) for path in paths]
        return [piece.text for piece in render(*created, Ended(0, 0, "ok"))]

    assert listed("a/b.csv", size=1536) == ["--- created coding/a/b.csv (1.5 KiB)\n"]
    lines = listed(*map(str, range(1000)))
    assert (len(lines), lines[-1]) == (21, "--- created 980 more files\n")
    first = listed(*map(str, range(50)), "sub/.git/config")[0]
    assert first == "--- created coding/sub/.git/config (1 byte); other programs may run it\n"
    # Names cannot send control sequences.
    shown = "--- created coding/\ufffd[2J\ufffd--- fake\ufffd (1 byte)\n"
    assert listed("\x1b[2J\n--- fake\x9b") == [shown]


def test_display_without_text_or_file_is_noted_by_type() -> None:
    pieces = render(Display(0, {"application/json": {}, "x/y": ""}))
    assert text_on("stderr", pieces) == "--- displayed: application/json, x/y\n"
    assert render(Display(0, {"text/plain": "1"})) == []
    assert render(Display(0, {"image/png": ""}, files=("coding/a.png",))) == []


# sizes


def test_sizes_are_parsed_and_formatted() -> None:
    sizes = {"512M": 512 << 20, "2g": 2 << 30, "1.5 GiB": 3 << 29, "64kb": 64 << 10}
    sizes |= {"1048576": 1 << 20, "7B": 7}
    assert {text: parse_size(text) for text in sizes} == sizes
    invalid = ["", "M", "0", "0.1", "-1M", "5X", "1 2", "1e3", "nan", "1..5", "٣M", "9" * 400]
    for text in invalid:
        with pytest.raises(ValueError, match="is not a size such as 512M"):
            parse_size(text)
    formatted = {0: "0 bytes", 1: "1 byte", 1023: "1023 bytes"}
    formatted |= {1024: "1.0 KiB", 3 << 19: "1.5 MiB", 5 << 30: "5.0 GiB"}
    assert {size: format_size(size) for size in formatted} == formatted


# selection of blocks


def test_a_message_is_split_into_blocks_and_a_program_is_one() -> None:
    for suffix in ("", ".md", ".markdown", ".txt", ".MD"):
        blocks = parse_blocks("say\n```sh\ntrue\n```\n", suffix, None)
        assert blocks == [CodeBlock("true", "sh")], suffix
    assert parse_blocks("```\n", ".py", None) == [CodeBlock("```\n", "py")]
    assert parse_blocks("```\n", ".md", "sh") == [CodeBlock("```\n", "sh")]
    with pytest.raises(InputError, match=r"\.rb is not the suffix of a known language"):
        parse_blocks("puts 1", ".rb", None)
    suffixes = [language.suffix for language in LANGUAGES]
    assert [suffix for suffix in suffixes if find_language(suffix) is None] == []


def test_blocks_that_can_run_or_name_a_file_are_selected_and_the_others_counted() -> None:
    good = [CodeBlock("1", "python"), CodeBlock("?", "klingon")]
    others = [CodeBlock("a", "text"), CodeBlock("b", ""), CodeBlock("c", "text")]
    assert select_runnable([*good, *others]) == (good, "not run: 2 x text, 1 x no language")
    assert select_runnable(good) == (good, "")
    blocks = [CodeBlock("# filename: a.yaml\na: 1", "yaml"), CodeBlock("a: 1", "yaml")]
    assert select_runnable(blocks) == (blocks[:1], "not run: 1 x yaml")
    with pytest.raises(InputError, match=r"nothing to run \(no code blocks\)"):
        select_runnable([])
    with pytest.raises(InputError, match=r"nothing to run \(not run: 1 x text\)"):
        select_runnable([CodeBlock("a", "text")])


# the doctor's table

FOUND = (
    Guarantee("files", "enforced", "namespaces", "not needed"),
    Guarantee("kernel surface", "not possible here", "no filter", "Use another kernel."),
)


def plain(lines: list[str]) -> list[str]:
    import click

    return [click.unstyle(line) for line in lines]


def test_rows_are_aligned_and_wrapped_and_include_advice() -> None:
    assert plain(list(table_rows(FOUND, None))) == [
        "files           enforced           namespaces",
        "kernel surface  not possible here  no filter. Use another kernel.",
    ]
    narrow = plain(list(table_rows((Guarantee("files", "partly", "a " * 40, "Do it."),), 60)))
    assert len(narrow) > 1
    assert all(len(line) <= 60 for line in narrow)
    assert all(line.startswith(" " * 26) for line in narrow[1:])
