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
    PictureProtocol,
    Sixel,
    find_protocol,
)
from cellblock.events import Display, FileCreated
from cellblock.models import Image

PNG = b"\x89PNG\r\n\x1a\n" + bytes(5000)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-kitty"}, Kitty),
        ({"TERM": "xterm-ghostty"}, Kitty),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, ITerm),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, ITerm),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, ITerm),
    ],
)
def test_the_environment_names_the_terminal(
    environment: dict[str, str], expected: type[PictureProtocol]
) -> None:
    assert isinstance(find_protocol(environment), expected)


@pytest.mark.parametrize(
    "environment",
    [
        {"TERM": "dumb"},
        {"TERM": "tmux-256color", "TERM_PROGRAM": "WezTerm"},
        {"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"},
        {},
    ],
)
def test_other_terminals_get_no_pictures_that_they_cannot_show(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)  # no terminal that could answer
        assert find_protocol(environment) is None


def test_kitty_gets_png_in_pieces() -> None:
    written = Kitty().encode(Image.from_bytes(PNG))
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", written)
    assert [control for control, _ in pieces] == ["a=T,f=100,q=2,m=1", "m=0"]
    assert base64.b64decode("".join(data for _, data in pieces)) == PNG


def test_iterm_gets_the_file() -> None:
    written = ITerm().encode(Image.from_bytes(PNG))
    assert written.startswith(f"\x1b]1337;File=inline=1;size={len(PNG)}:iVBOR")
    assert written.endswith("\a")


def png(width: int, height: int, colour: tuple[int, int, int]) -> Image:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is missing: the extra `bench` has it")
    buffer = io.BytesIO()
    pillow.new("RGB", (width, height), colour).save(buffer, format="PNG")
    return Image.from_bytes(buffer.getvalue())


def test_sixel_has_the_size_the_colour_and_every_pixel() -> None:
    written = Sixel().encode(png(10, 8, (255, 0, 0)))
    # Two bands: six rows, of which all pixels are set (63 + 63), and two rows (63 + 3).
    assert re.fullmatch(r'\x1bPq"1;1;10;8#(\d+);2;100;0;0#\1!10~-#\1!10B\x1b\\', written), repr(
        written
    )


def test_large_pictures_are_made_smaller_for_sixel() -> None:
    written = Sixel().encode(png(2000, 1000, (0, 0, 255)))
    assert '"1;1;800;400' in written


@pytest.mark.parametrize("protocol", [Sixel(), Kitty()])
def test_a_damaged_picture_is_not_shown(protocol: PictureProtocol) -> None:
    assert protocol.encode(Image.from_bytes(b"\xff\xd8\xff nothing")) == ""


def test_pictures_are_displays_and_files_that_are_pictures(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.png").write_bytes(PNG)
    work = tmp_path / "work"
    work.mkdir()
    (work / "plot.PNG").write_bytes(PNG)
    (work / "text.png").write_text("no picture")
    finder = PictureFinder(str(work))
    for event in (
        Display(0, {}, files=(str(tmp_path / "images" / "1.png"),)),
        Display(0, {}, files=(str(tmp_path / "images" / "page.html"),)),
        FileCreated(0, "plot.PNG", len(PNG)),
        FileCreated(0, "text.png", 10),
        FileCreated(0, "data.csv", 10),
    ):
        finder.add_event(event)
    found = [(os.path.basename(picture.path), picture.image) for picture in finder.pictures()]
    image = Image.from_bytes(PNG)
    assert found == [("1.png", image), ("plot.PNG", image), ("text.png", None)]


def test_a_link_that_code_made_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(PNG)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "plot.png").symlink_to(tmp_path / "secret.png")
    finder = PictureFinder(str(tmp_path / "work"))
    finder.add_event(FileCreated(0, "plot.png", len(PNG)))
    assert finder.pictures() == []
