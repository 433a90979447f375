"""MIME bundles are saved as files and represented as text."""

from __future__ import annotations

import base64
import contextlib
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import CodeBlock
from cellblock.errors import WorkspaceError
from cellblock.executors.displays import DisplayFiles, display_text, strip_terminal_codes
from cellblock.sync import SandboxSessionCodeExecutor

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)
EIGHT_BIT_CONTROLS = "".join(map(chr, range(0x80, 0xA0)))
KINDS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
}
MIMES = [
    *KINDS,
    "image/svg+xml",
    "text/html",
    "text/plain",
    "text/markdown",
    "text/latex",
    "application/json",
    "x/y",
]

values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.binary(max_size=20)
    | st.sets(st.integers(), max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
bundles = st.dictionaries(st.sampled_from(MIMES) | st.text(max_size=5), values, max_size=5)


def test_images_are_saved_as_their_bytes(tmp_path: Path) -> None:
    encoded = base64.encodebytes(PIXEL).decode()  # contains line breaks, as kernels send it
    for mime, suffix in KINDS.items():
        for shown in (encoded, PIXEL):
            (saved,) = DisplayFiles(tmp_path).save({mime: shown, "text/plain": "<Figure>"})
            path = Path(saved)
            assert (path.parent, path.suffix) == (tmp_path, f".{suffix}")
            assert path.read_bytes() == PIXEL


def test_html_and_svg_are_saved_as_text(tmp_path: Path) -> None:
    files = DisplayFiles(tmp_path)
    paths = [
        *files.save({"text/html": ["<b>\n", "grün</b>"]}),
        *files.save({"image/svg+xml": "<svg/>"}),
    ]
    assert {Path(path).suffix: Path(path).read_text(encoding="utf-8") for path in paths} == {
        ".html": "<b>\ngrün</b>",
        ".svg": "<svg/>",
    }


def test_one_display_is_one_file(tmp_path: Path) -> None:
    files = DisplayFiles(tmp_path)
    picture = {"text/html": "<img>", "image/jpeg": PIXEL, "image/png": PIXEL, "text/plain": "x"}
    saved = [
        files.save(data)
        for data in (
            picture,
            {**picture, "image/png": "not an image"},
            {"application/pdf": PIXEL, "text/html": "<p>"},
        )
    ]
    assert [[Path(path).suffix for path in paths] for paths in saved] == [
        [".png"],
        [".jpg"],
        [".html"],
    ]
    assert len(list(tmp_path.iterdir())) == 3


def test_each_file_gets_a_new_name(tmp_path: Path) -> None:
    files = DisplayFiles(tmp_path)
    names = [path for _ in range(20) for path in files.save({"text/html": "same"})]
    assert len(set(names)) == 20


def test_saved_files_are_not_executable(tmp_path: Path) -> None:
    (path,) = DisplayFiles(tmp_path).save({"text/html": "x"})
    assert stat.S_IMODE(Path(path).stat().st_mode) & 0o111 == 0


def test_the_folder_is_created_when_needed(tmp_path: Path) -> None:
    files = DisplayFiles(tmp_path / "deep" / "er")
    assert files.save({"text/plain": "x"}) == ()
    assert not files.folder.parent.exists()
    (path,) = files.save({"text/html": "x"})
    assert Path(path).read_text() == "x"


def test_a_folder_that_cannot_be_written_raises_workspace_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot be saved"):
        DisplayFiles(tmp_path / "file").save({"text/html": "x"})


@pytest.mark.parametrize("is_protected", [True, False])
def test_a_link_that_code_has_made_is_followed_only_without_the_protection(
    tmp_path: Path, *, is_protected: bool
) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    (outside / "deep").mkdir(parents=True)
    (work / "shown").symlink_to(outside)
    for folder in (work / "shown", work / "shown" / "deep"):
        with contextlib.suppress(WorkspaceError):
            DisplayFiles(folder, work if is_protected else None).save({"text/html": "x"})
    assert len([path for path in outside.rglob("*") if path.is_file()]) == 2 * (not is_protected)


def test_an_invalid_image_is_skipped(tmp_path: Path) -> None:
    for value in ("no base64!", "abc", "", None, 3, ["a", 3], {"a": 1}, "\ud800", [], "é"):
        assert DisplayFiles(tmp_path).save({"image/png": value}) == ()
        assert list(tmp_path.iterdir()) == []


@given(bundles)
def test_no_bundle_raises_an_exception(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    for path in DisplayFiles(tmp_path_factory.getbasetemp() / "shown").save(data):
        Path(path).unlink()
    text = display_text(data)
    assert text == "" or text.endswith("\n")
    text.encode()
    assert "\x1b" not in text
    assert "\x00" not in text


def test_a_bundle_is_represented_as_text() -> None:
    texts: list[tuple[dict[str, Any], str]] = [
        ({"text/plain": "a\nb", "text/html": "<p>"}, "a\nb\n"),
        ({"text/plain": ["a\n", "b\n"]}, "a\nb\n"),
        ({"text/plain": "\x1b[31mred\x1b[0m"}, "red\n"),
        ({"text/plain": ""}, ""),
        ({"text/html": "<p>", "text/markdown": "*x*"}, "*x*\n"),
        ({"text/latex": "$x$", "image/png": ""}, "$x$\n"),
        ({"application/json": {"ü": [1]}}, '{"ü": [1]}\n'),
        ({"image/png": "aaaa", "text/html": "<p>"}, "[image/png] [text/html]\n"),
        ({"text/plain": 3, "x/y": 1}, "[text/plain] [x/y]\n"),
        ({}, ""),
    ]
    faults = [(data, found) for data, text in texts if (found := display_text(data)) != text]
    assert faults == []


def test_terminal_codes_and_controls_of_eight_bits_are_removed() -> None:
    texts = {
        "\x1b[0;31mZeroDivisionError\x1b[0m": "ZeroDivisionError",
        "\x1b[38;5;28;01mfor\x1b[39;00m": "for",
        "\x1b]8;;http://x\x07link\x1b]8;;\x07": "link",
        "\x1b[2K\rtwo": "\rtwo",
        "a\x00b\ud800c\x1b": "a\ufffdb\ufffdc\ufffd",
        "a[31m": "a[31m",
        EIGHT_BIT_CONTROLS: "\ufffd" * 32,
        f"\x1b[1m{EIGHT_BIT_CONTROLS}": "\ufffd" * 32,
    }
    assert {text: strip_terminal_codes(text) for text in texts} == texts


def test_controls_of_eight_bits_are_replaced_in_output() -> None:
    """Some terminals obey them as they obey ESC."""
    code = f"print({EIGHT_BIT_CONTROLS!r})\nprint('\\x9b31mred')\n"
    with SandboxSessionCodeExecutor(timeout=30) as session:
        block = CodeBlock(f"{code}raise ValueError('\\x9d0;title\\x9c')", "python")
        result = session.execute_code_blocks([block])
    assert result.output.startswith("\ufffd" * 32 + "\n\ufffd31mred\n")
    assert not set(EIGHT_BIT_CONTROLS) & set(result.output)
