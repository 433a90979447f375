"""The source of a block as it is run: line ends, coding cookies, the program that it names."""

from __future__ import annotations

import tokenize
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.languages import find_language
from cellblock.source_text import silence_pip, source_to_run, with_named_program


@pytest.mark.parametrize("language", ["python", "py", "sh", "shell", "bash", "zsh"])
def test_line_ends_become_lf_in_python_and_shells(language: str) -> None:
    assert source_to_run("\ufeffa\r\n\rb\r", language) == "a\n\nb\n"


@pytest.mark.parametrize("language", ["js", "csv", "html", "pwsh", "unheard-of"])
def test_source_in_another_language_is_kept_as_it_is(language: str) -> None:
    code = "\ufeff# coding: latin-1\r\na\r"
    assert source_to_run(code, language) == code


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("# coding: latin-1\nx", "# coding: utf-8\nx"),
        ("# -*- coding: cp1252 -*-\r\nx", "# -*- coding: utf-8 -*-\nx"),
        ("#!/usr/bin/python\n# coding=koi8-r\nx", "#!/usr/bin/python\n# coding=utf-8\nx"),
        ("\n# coding: latin-1\nx", "\n# coding: utf-8\nx"),
        ("# coding: nosuch", "# coding: utf-8"),
        ("import x\n# coding: latin-1", "import x\n# coding: latin-1"),
        ("\n\n# coding: latin-1", "\n\n# coding: latin-1"),
        ("x = 1  # coding: latin-1", "x = 1  # coding: latin-1"),
    ],
)
def test_coding_cookie_names_the_encoding_that_the_source_is_written_in(
    code: str, source: str
) -> None:
    assert source_to_run(code, "python") == source


@given(st.lists(st.sampled_from(["#", " ", "\n", "\r", "\f", "coding", ":", "=", "latin-1", "x"])))
def test_python_reads_every_source_as_utf_8(pieces: list[str]) -> None:
    source = source_to_run("".join(pieces), "python").encode()
    assert tokenize.detect_encoding(BytesIO(source).readline)[0] == "utf-8"


@pytest.mark.parametrize(
    ("first_line", "argv"),
    [
        ("#!/bin/bash", ["bash"]),
        ("\ufeff#! /usr/local/bin/bash -e\r", ["bash", "-e"]),
        ("#!/usr/bin/env bash", ["bash"]),
        ("# filename: run.sh\r\n#!/bin/bash", ["bash"]),
        ("# comment\n#!/bin/bash", ["sh"]),
        ("#!/usr/bin/env -S bash -eu", ["bash", "-eu"]),
        ("#!/usr/bin/env A=1 bash", ["env", "A=1", "bash"]),
        ("#!/bin/zsh", ["bash"]),
        ("#!/usr/bin/python3 -u", ["python3", "-u"]),
        ("#!/usr/bin/env node", ["node"]),
        ("#!/usr/bin/perl", ["perl"]),
        ("#!/home/me/bin/tool", ["/home/me/bin/tool"]),
        ("#!", ["sh"]),
        ("# !/bin/bash", ["sh"]),
        ("", ["sh"]),
    ],
)
def test_shell_block_runs_with_the_program_that_it_names(first_line: str, argv: list[str]) -> None:
    language = find_language("sh")
    assert language is not None
    found = with_named_program(language, f"{first_line}\necho")
    assert (found.name, list(found.argv or ())) == ("sh", argv)


def test_python_block_runs_with_python_whatever_it_names() -> None:
    language = find_language("python")
    assert language is not None
    assert with_named_program(language, "#!/bin/bash\n") is language


@pytest.mark.parametrize(
    ("language", "code", "quiet"),
    [
        ("python", "! pip install x\nimport x", "! pip install -qqq x\nimport x"),
        ("PY", "x\n!pip install a b", "x\n!pip install -qqq a b"),
        ("python", "pip install x", "pip install x"),
        ("python", "print('! pip install x')", "print('! pip install x')"),
        ("sh", "pip install x\npip install y", "pip install -qqq x\npip install -qqq y"),
        ("zsh", "pip install x", "pip install -qqq x"),
        ("Shell", "pip install", "pip install -qqq"),
        ("ps1", "pip install x", "pip install -qqq x"),
        ("bash", "pip install x -qqq\npip install y", "pip install x -qqq\npip install -qqq y"),
        ("bash", "  pip install x\npip installed", "  pip install x\npip installed"),
        ("js", "pip install x", "pip install x"),
        ("cobol", "pip install x", "pip install x"),
    ],
)
def test_pip_install_is_silenced_in_languages_that_run_it(
    language: str, code: str, quiet: str
) -> None:
    assert silence_pip(code, language) == quiet


@given(
    st.lists(
        st.sampled_from(
            ["pip install", "! pip install", "!pip install", " ", "\n", "-qqq", "x", "\r", "-q"]
        )
    ),
    st.sampled_from(["python", "py", "sh", "shell", "bash", "pwsh", "js", ""]),
)
def test_silencing_pip_twice_equals_once(pieces: list[str], language: str) -> None:
    once = silence_pip("".join(pieces), language)
    assert silence_pip(once, language) == once
