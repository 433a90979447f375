"""The text of files: encodings, byte order marks, coding cookies."""

from __future__ import annotations

import codecs

import pytest

from cellblock.text_files import UnreadableText, decode_python, decode_text

TEXT = "na\u00efve \u20ac\n"


def test_text_is_read_in_the_encodings_that_editors_and_shells_write() -> None:
    written = [TEXT.encode(encoding) for encoding in ("utf-8", "utf-8-sig", "utf-16")]
    written.append(codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"))
    assert [decode_text(data, "a.md") for data in written] == [TEXT] * 4


def test_text_in_another_encoding_is_an_error_that_names_file_byte_and_line() -> None:
    with pytest.raises(UnreadableText) as caught:
        decode_text(b"one\ncaf\xe9\n", "a.md")
    expected = "a.md is not UTF-8: see the byte 0xe9 in line 2. Save it as UTF-8."
    assert str(caught.value) == expected
    with pytest.raises(UnreadableText, match="a.md is not utf-16"):
        decode_text("a".encode("utf-16") + b"\0", "a.md")


def test_python_is_read_in_the_encoding_that_it_names() -> None:
    for encoding in ("latin-1", "cp1252", "koi8-r", "utf-8"):
        word = "\u0434\u0430" if encoding == "koi8-r" else "caf\u00e9"
        text = f"# -*- coding: {encoding} -*-\n{word}"
        assert decode_python(text.encode(encoding), "a.py") == text


def test_python_that_python_cannot_decode_is_an_error_with_the_next_step() -> None:
    for data in (
        b"print('caf\xe9')\n",
        b"\n\n\nprint('caf\xe9')\n",
        b"# coding: no-such-encoding\n",
        codecs.BOM_UTF8 + b"# coding: latin-1\n",
        "print(1)\n".encode("utf-16"),
    ):
        with pytest.raises(UnreadableText, match=r"^a\.py .*# coding: latin-1"):
            decode_python(data, "a.py")
