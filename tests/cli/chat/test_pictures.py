"""Pictures in the terminal: which protocol, and what is written."""

from __future__ import annotations

import base64
import io
import os
import re
from pathlib import Path

import pytest

from cellblock.cli.chat.pictures.find import PictureFinder
from cellblock.cli.chat.pictures.protocols import (
    ITerm,
    Kitty,
    Sixel,
    find_protocol,
)
from cellblock.events import Display, FileCreated
from cellblock.models import Image

PNG = b"\x89PNG\r\n\x1a\n" + bytes(5000)


def test_a_picture_that_code_has_replaced_by_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    private, work = tmp_path / "private.png", tmp_path / "work"
    private.write_bytes(PNG)
    work.mkdir()
    names = [str(work / name) for name in ("link.png", "pipe.png", "own.png")]
    os.symlink(private, names[0])
    os.mkfifo(names[1])
    Path(names[2]).write_bytes(PNG)
    finder = PictureFinder(str(work))
    finder.add_event(Display(0, {}, {}, tuple(names)))
    assert [found.image is not None for found in finder.pictures()] == [False, False, True]


def test_the_environment_names_the_terminal() -> None:
    terminals = {
        ("xterm-kitty", "", ""): Kitty,
        ("xterm-ghostty", "", ""): Kitty,
        ("xterm-256color", "TERM_PROGRAM", "iTerm.app"): ITerm,
        ("xterm-256color", "TERM_PROGRAM", "WezTerm"): ITerm,
        ("xterm-256color", "LC_TERMINAL", "iTerm2"): ITerm,
    }
    found = {
        (term, name, value): type(find_protocol({"TERM": term, name: value}))
        for term, name, value in terminals
    }
    assert found == terminals


def test_other_terminals_get_no_pictures_that_they_cannot_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others: list[dict[str, str]] = [
        {"TERM": "dumb"},
        {"TERM": "tmux-256color", "TERM_PROGRAM": "WezTerm"},
        {"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"},
        {},
    ]
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)  # no terminal that could answer
        assert [each for each in others if find_protocol(each) is not None] == []


def test_kitty_gets_png_in_pieces_and_iterm_the_file() -> None:
    written = Kitty().encode(Image.from_bytes(PNG))
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", written)
    assert [control for control, _ in pieces] == ["a=T,f=100,q=2,m=1", "m=0"]
    assert base64.b64decode("".join(data for _, data in pieces)) == PNG
    written = ITerm().encode(Image.from_bytes(PNG))
    assert written.startswith(f"\x1b]1337;File=inline=1;size={len(PNG)}:iVBOR")
    assert written.endswith("\a")


def png(width: int, height: int, colour: tuple[int, int, int]) -> Image:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is missing: the extra `bench` has it")
    buffer = io.BytesIO()
    pillow.new("RGB", (width, height), colour).save(buffer, format="PNG")
    return Image.from_bytes(buffer.getvalue())


def test_sixel_has_the_size_the_colour_and_every_pixel_unless_it_is_large() -> None:
    written = Sixel().encode(png(10, 8, (255, 0, 0)))
    # Two bands: six rows, of which all pixels are set (63 + 63), and two rows (63 + 3).
    shown = r'\x1bPq"1;1;10;8#(\d+);2;100;0;0#\1!10~-#\1!10B\x1b\\'
    assert re.fullmatch(shown, written), repr(written)
    assert '"1;1;800;400' in Sixel().encode(png(2000, 1000, (0, 0, 255)))


def test_a_damaged_picture_is_not_shown() -> None:
    damaged = Image.from_bytes(b"\xff\xd8\xff nothing")
    assert [Sixel().encode(damaged), Kitty().encode(damaged)] == ["", ""]


def test_pictures_are_displays_and_files_that_are_pictures_but_no_links(tmp_path: Path) -> None:
    images, work = tmp_path / "images", tmp_path / "work"
    images.mkdir()
    work.mkdir()
    (images / "1.png").write_bytes(PNG)
    (work / "plot.PNG").write_bytes(PNG)
    (work / "text.png").write_text("no picture")
    (tmp_path / "secret.png").write_bytes(PNG)
    (work / "link.png").symlink_to(tmp_path / "secret.png")
    finder = PictureFinder(str(work))
    finder.add_event(Display(0, {}, files=(str(images / "1.png"),)))
    finder.add_event(Display(0, {}, files=(str(images / "page.html"),)))
    for name in ("plot.PNG", "text.png", "link.png", "data.csv"):
        finder.add_event(FileCreated(0, name, 10))
    found = [(os.path.basename(picture.path), picture.image) for picture in finder.pictures()]
    image = Image.from_bytes(PNG)
    assert found == [("1.png", image), ("plot.PNG", image), ("text.png", None)]
