"""The pure parts of the command: events as text, sizes, which blocks are run, the doctor's rows."""

from __future__ import annotations

import pytest

from cellblock.blocks import CodeBlock
from cellblock.cli.doctor import rows
from cellblock.cli.input_file import NoSource, blocks_of, runnable
from cellblock.cli.render import Piece, Renderer
from cellblock.cli.sizes import format_size, parse_size
from cellblock.events import Display, Ended, Event, FileCreated, Output, OutputTruncated, Started
from cellblock.languages import LANGUAGES, find_language
from cellblock.sandbox.guarantees import Guarantee

BLOCKS = [CodeBlock("echo", "sh"), CodeBlock("# filename: plot.py\n", "python")]


def rendered(*events: Event, one_place: bool = False) -> list[Piece]:
    renderer = Renderer(BLOCKS, folder="coding", one_place=one_place)
    return [piece for event in events for piece in renderer.pieces(event)]


def on(stream: str, pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if piece.stream == stream)


# events


def test_a_block_is_announced_with_its_number_and_name() -> None:
    assert rendered(Started(0, "sh")) == [Piece("stderr", "--- block 1 of 2: sh\n", "bold")]
    assert on("stderr", rendered(Started(1, "python"))) == "--- block 2 of 2: python (plot.py)\n"


def test_output_keeps_its_stream_and_its_text() -> None:
    pieces = rendered(
        Output(0, "stdout", "a\r"), Output(0, "stderr", "b"), Output(0, "stdout", "c\n")
    )
    assert pieces == [Piece("stdout", "a\r"), Piece("stderr", "b"), Piece("stdout", "c\n")]


def test_a_cut_is_marked_in_the_streams_that_it_is_in() -> None:
    pieces = rendered(OutputTruncated(0, 12, 0))
    assert (on("stdout", pieces), on("stderr", pieces)) == ("\n[... 12 bytes left out ...]\n", "")
    assert on("stderr", rendered(OutputTruncated(0, 0, 7))) == "\n[... 7 bytes left out ...]\n"


def test_a_note_begins_on_a_fresh_line() -> None:
    events = (Output(0, "stderr", "half"), Ended(0, 3, "error"))
    assert on("stderr", rendered(*events)) == "half\n--- exit code 3\n"


def test_a_half_line_on_stdout_counts_only_where_both_streams_meet() -> None:
    events = (Output(0, "stdout", "half"), Ended(0, 3, "error"))
    assert on("stderr", rendered(*events, one_place=True)) == "\n--- exit code 3\n"
    assert on("stderr", rendered(*events, one_place=False)) == "--- exit code 3\n"


def test_a_good_end_says_nothing() -> None:
    assert rendered(Ended(0, 0, "ok")) == []


@pytest.mark.parametrize(
    ("ended", "said"),
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
def test_a_bad_end_says_why(ended: Ended, said: str) -> None:
    assert rendered(ended) == [Piece("stderr", f"--- {said}\n", "bold")]


def test_files_are_listed_with_their_sizes() -> None:
    pieces = rendered(FileCreated(0, "a/b.csv", 1536), Ended(0, 0, "ok"))
    assert on("stderr", pieces) == "--- made coding/a/b.csv (1.5 KiB)\n"


def test_a_thousand_files_are_not_a_thousand_lines() -> None:
    pieces = rendered(
        *(FileCreated(0, f"{number}", 1) for number in range(1000)), Ended(0, 0, "ok")
    )
    assert len(pieces) == 21
    assert pieces[-1].text == "--- made 980 more files\n"


def test_names_made_by_a_program_cannot_steer_the_terminal() -> None:
    pieces = rendered(FileCreated(0, "\x1b[2J\n--- fake\x9b", 1), Ended(0, 0, "ok"))
    assert on("stderr", pieces) == "--- made coding/\ufffd[2J\ufffd--- fake\ufffd (1 byte)\n"


def test_what_is_shown_is_named_where_neither_text_nor_a_file_stands_for_it() -> None:
    assert (
        on("stderr", rendered(Display(0, {"application/json": {}, "x/y": ""})))
        == "--- shown: application/json, x/y\n"
    )
    assert (
        rendered(
            Display(0, {"text/plain": "1"}), Display(0, {"image/png": ""}, files=("coding/a.png",))
        )
        == []
    )


def test_what_became_of_a_session_is_told() -> None:
    assert (
        on("stderr", rendered(Ended(0, 139, "error", notice="It was restored.")))
        == "--- exit code 139; It was restored\n"
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
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "M", "0", "0.1", "-1M", "5X", "1 2", "1e3", "nan", "1..5", "٣M", "9" * 400]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write 512M"):
        parse_size(text)


def test_sizes_are_written() -> None:
    assert [format_size(size) for size in (0, 1, 1023, 1024, 3 << 19, 5 << 30)] == [
        *("0 bytes", "1 byte", "1023 bytes"),
        *("1.0 KiB", "1.5 MiB", "5.0 GiB"),
    ]


# what is run


def test_every_suffix_of_the_table_names_its_language() -> None:
    assert [
        language.suffix for language in LANGUAGES if find_language(language.suffix) is None
    ] == []


@pytest.mark.parametrize("suffix", ["", ".md", ".markdown", ".txt", ".MD"])
def test_a_message_is_taken_apart(suffix: str) -> None:
    assert blocks_of("say\n```sh\ntrue\n```\n", suffix, None) == [CodeBlock("true", "sh")]


def test_a_program_is_one_block() -> None:
    assert blocks_of("```\n", ".py", None) == [CodeBlock("```\n", "py")]
    assert blocks_of("```\n", ".md", "sh") == [CodeBlock("```\n", "sh")]


def test_a_suffix_of_no_language_is_refused() -> None:
    with pytest.raises(NoSource, match=r"\.rb is the suffix of no known language"):
        blocks_of("puts 1", ".rb", None)


def test_blocks_that_are_not_meant_to_be_run_are_counted() -> None:
    good = [CodeBlock("1", "python"), CodeBlock("?", "klingon")]
    others = [CodeBlock("a", "text"), CodeBlock("b", ""), CodeBlock("c", "text")]
    assert runnable([*good, *others]) == (good, "not run: 2 x text, 1 x no language")
    assert runnable(good) == (good, "")


def test_a_block_that_names_its_file_is_handed_over_to_be_saved() -> None:
    blocks = [CodeBlock("# filename: a.yaml\na: 1", "yaml"), CodeBlock("a: 1", "yaml")]
    assert runnable(blocks) == (blocks[:1], "not run: 1 x yaml")


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(NoSource, match=r"nothing to run \(no code blocks\)"):
        runnable([])
    with pytest.raises(NoSource, match=r"nothing to run \(not run: 1 x text\)"):
        runnable([CodeBlock("a", "text")])


# the doctor's rows

FOUND = (
    Guarantee("files", "enforced", "walls", "not needed"),
    Guarantee("kernel surface", "not possible here", "no filter", "Use another kernel."),
)


def plain(lines: list[str]) -> list[str]:
    import click

    return [click.unstyle(line) for line in lines]


def test_rows_are_aligned_and_give_advice_where_it_is_needed() -> None:
    assert plain(list(rows(FOUND, None))) == [
        "files           enforced           walls",
        "kernel surface  not possible here  no filter. Use another kernel.",
    ]


def test_rows_are_wrapped_below_their_own_column() -> None:
    narrow = plain(list(rows((Guarantee("files", "partly", "a " * 40, "Do it."),), 60)))
    assert len(narrow) > 1
    assert all(len(line) <= 60 for line in narrow)
    assert all(line.startswith(" " * 26) for line in narrow[1:])
