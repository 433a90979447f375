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


def test_block_heading_has_number_and_file_name() -> None:
    assert render(Started(0, "sh")) == [StyledText("stderr", "--- block 1 of 2: sh\n", "bold")]
    assert text_on("stderr", render(Started(1, "python"))) == "--- block 2 of 2: python (plot.py)\n"


def test_output_keeps_stream_and_text() -> None:
    pieces = render(
        Output(0, "stdout", "a\r"), Output(0, "stderr", "b"), Output(0, "stdout", "c\n")
    )
    assert pieces == [
        StyledText("stdout", "a\r"),
        StyledText("stderr", "b"),
        StyledText("stdout", "c\n"),
    ]


def test_truncation_is_marked_in_the_truncated_streams() -> None:
    pieces = render(OutputTruncated(0, 12, 0))
    assert text_on("stdout", pieces) == "\n[... 12 bytes left out ...]\n"
    assert text_on("stderr", pieces).startswith("--- 12 bytes of output are left out")
    on_stderr = text_on("stderr", render(OutputTruncated(0, 0, 7)))
    assert on_stderr.startswith("\n[... 7 bytes left out ...]\n--- 7 bytes of output")


def test_note_starts_on_a_new_line() -> None:
    events = (Output(0, "stderr", "half"), Ended(0, 3, "error"))
    assert text_on("stderr", render(*events)) == "half\n--- exit code 3\n"


def test_unfinished_stdout_line_matters_only_if_both_streams_share_a_terminal() -> None:
    events = (Output(0, "stdout", "half"), Ended(0, 3, "error"))
    assert text_on("stderr", render(*events, same_destination=True)) == "\n--- exit code 3\n"
    assert text_on("stderr", render(*events, same_destination=False)) == "--- exit code 3\n"


def test_success_prints_no_summary() -> None:
    assert render(Ended(0, 0, "ok")) == []


@pytest.mark.parametrize(
    ("ended", "summary"),
    [
        (
            Ended(0, 124, "timeout", "wall_seconds", "\nTimeout"),
            "Timeout; limit wall_seconds; exit code 124",
        ),
        (Ended(0, 1, "error", None, "unknown language x"), "unknown language x; exit code 1"),
        (
            Ended(0, 137, "out_of_memory", "m", "\nOut: the limit of 5 (m)."),
            "Out: the limit of 5 (m); exit code 137",
        ),
        (Ended(0, 125, "cancelled", None, "\nCancelled: it was."), "Cancelled: it was"),
    ],
)
def test_failure_summary_has_the_reason(ended: Ended, summary: str) -> None:
    assert render(ended) == [StyledText("stderr", f"--- {summary}\n", "bold")]


def test_files_are_listed_with_their_sizes() -> None:
    pieces = render(FileCreated(0, "a/b.csv", 1536), Ended(0, 0, "ok"))
    assert text_on("stderr", pieces) == "--- created coding/a/b.csv (1.5 KiB)\n"


def test_long_file_list_is_shortened() -> None:
    pieces = render(*(FileCreated(0, f"{number}", 1) for number in range(1000)), Ended(0, 0, "ok"))
    assert len(pieces) == 21
    assert pieces[-1].text == "--- created 980 more files\n"


def test_startup_files_come_first_with_a_warning() -> None:
    paths = [*map(str, range(50)), "sub/.git/config"]
    pieces = render(*(FileCreated(0, path, 1) for path in paths), Ended(0, 0, "ok"))
    note = "--- created coding/sub/.git/config (1 byte); other programs may run it\n"
    assert pieces[0].text == note


def test_file_names_cannot_send_control_sequences() -> None:
    pieces = render(FileCreated(0, "\x1b[2J\n--- fake\x9b", 1), Ended(0, 0, "ok"))
    assert (
        text_on("stderr", pieces) == "--- created coding/\ufffd[2J\ufffd--- fake\ufffd (1 byte)\n"
    )


def test_display_without_text_or_file_is_noted_by_type() -> None:
    assert (
        text_on("stderr", render(Display(0, {"application/json": {}, "x/y": ""})))
        == "--- displayed: application/json, x/y\n"
    )
    assert (
        render(
            Display(0, {"text/plain": "1"}), Display(0, {"image/png": ""}, files=("coding/a.png",))
        )
        == []
    )


def test_session_notice_is_in_the_summary() -> None:
    assert (
        text_on("stderr", render(Ended(0, 139, "error", notice="It was restored.")))
        == "--- exit code 139 (SIGSEGV: Segmentation fault); It was restored\n"
    )


# sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512 << 20),
        ("2g", 2 << 30),
        ("1.5 GiB", 3 << 29),
        ("64kb", 64 << 10),
        ("1048576", 1 << 20),
        ("7B", 7),
    ],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "M", "0", "0.1", "-1M", "5X", "1 2", "1e3", "nan", "1..5", "٣M", "9" * 400]
)
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as 512M"):
        parse_size(text)


def test_sizes_are_formatted() -> None:
    assert [format_size(size) for size in (0, 1, 1023, 1024, 3 << 19, 5 << 30)] == [
        *("0 bytes", "1 byte", "1023 bytes"),
        *("1.0 KiB", "1.5 MiB", "5.0 GiB"),
    ]


# selection of blocks


def test_every_suffix_is_a_tag() -> None:
    assert [
        language.suffix for language in LANGUAGES if find_language(language.suffix) is None
    ] == []


@pytest.mark.parametrize("suffix", ["", ".md", ".markdown", ".txt", ".MD"])
def test_message_is_split_into_blocks(suffix: str) -> None:
    assert parse_blocks("say\n```sh\ntrue\n```\n", suffix, None) == [CodeBlock("true", "sh")]


def test_program_is_one_block() -> None:
    assert parse_blocks("```\n", ".py", None) == [CodeBlock("```\n", "py")]
    assert parse_blocks("```\n", ".md", "sh") == [CodeBlock("```\n", "sh")]


def test_unknown_suffix_is_refused() -> None:
    with pytest.raises(InputError, match=r"\.rb is not the suffix of a known language"):
        parse_blocks("puts 1", ".rb", None)


def test_skipped_blocks_are_counted() -> None:
    good = [CodeBlock("1", "python"), CodeBlock("?", "klingon")]
    others = [CodeBlock("a", "text"), CodeBlock("b", ""), CodeBlock("c", "text")]
    assert select_runnable([*good, *others]) == (good, "not run: 2 x text, 1 x no language")
    assert select_runnable(good) == (good, "")


def test_block_with_a_file_name_is_selected_for_saving() -> None:
    blocks = [CodeBlock("# filename: a.yaml\na: 1", "yaml"), CodeBlock("a: 1", "yaml")]
    assert select_runnable(blocks) == (blocks[:1], "not run: 1 x yaml")


def test_input_without_runnable_blocks_is_refused() -> None:
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


def test_rows_are_aligned_and_include_advice() -> None:
    assert plain(list(table_rows(FOUND, None))) == [
        "files           enforced           namespaces",
        "kernel surface  not possible here  no filter. Use another kernel.",
    ]


def test_rows_are_wrapped_inside_their_column() -> None:
    narrow = plain(list(table_rows((Guarantee("files", "partly", "a " * 40, "Do it."),), 60)))
    assert len(narrow) > 1
    assert all(len(line) <= 60 for line in narrow)
    assert all(line.startswith(" " * 26) for line in narrow[1:])
