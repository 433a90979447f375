"""The source of a block as it is run: line ends, coding cookies, the program that it names."""

from __future__ import annotations

import tokenize
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from cellblock.languages import find_language
from cellblock.source_text import silence_pip, source_to_run, with_named_program


def test_line_ends_become_lf_in_python_and_shells_only() -> None:
    languages = ("python", "py", "sh", "shell", "bash", "zsh")
    found = {language: source_to_run("\ufeffa\r\n\rb\r", language) for language in languages}
    assert found == dict.fromkeys(languages, "a\n\nb\n")
    code, others = "\ufeff# coding: latin-1\r\na\r", ("js", "csv", "html", "pwsh", "unheard-of")
    found = {language: source_to_run(code, language) for language in others}
    assert found == dict.fromkeys(others, code)


def test_coding_cookie_names_the_encoding_that_the_source_is_written_in() -> None:
    sources = {
        "# coding: latin-1\nx": "# coding: utf-8\nx",
        "# -*- coding: cp1252 -*-\r\nx": "# -*- coding: utf-8 -*-\nx",
        "#!/usr/bin/python\n# coding=koi8-r\nx": "#!/usr/bin/python\n# coding=utf-8\nx",
        "\n# coding: latin-1\nx": "\n# coding: utf-8\nx",
        "# coding: nosuch": "# coding: utf-8",
    }
    kept = ["import x\n# coding: latin-1", "\n\n# coding: latin-1", "x = 1  # coding: latin-1"]
    sources |= {code: code for code in kept}
    assert {code: source_to_run(code, "python") for code in sources} == sources


@given(st.lists(st.sampled_from(["#", " ", "\n", "\r", "\f", "coding", ":", "=", "latin-1", "x"])))
def test_python_reads_every_source_as_utf_8(pieces: list[str]) -> None:
    source = source_to_run("".join(pieces), "python").encode()
    assert tokenize.detect_encoding(BytesIO(source).readline)[0] == "utf-8"


def test_shell_block_runs_with_the_program_that_it_names() -> None:
    programs = {
        "#!/bin/bash": ["bash"],
        "\ufeff#! /usr/local/bin/bash -e\r": ["bash", "-e"],
        "#!/usr/bin/env bash": ["bash"],
        "# filename: run.sh\r\n#!/bin/bash": ["bash"],
        "# comment\n#!/bin/bash": ["sh"],
        "#!/usr/bin/env -S bash -eu": ["bash", "-eu"],
        "#!/usr/bin/env A=1 bash": ["env", "A=1", "bash"],
        "#!/bin/zsh": ["bash"],
        "#!/usr/bin/python3 -u": ["python3", "-u"],
        "#!/usr/bin/env node": ["node"],
        "#!/usr/bin/perl": ["perl"],
        "#!/home/me/bin/tool": ["/home/me/bin/tool"],
        "#!": ["sh"],
        "# !/bin/bash": ["sh"],
        "": ["sh"],
    }
    shell, python = find_language("sh"), find_language("python")
    assert shell is not None
    found = {line: with_named_program(shell, f"{line}\necho") for line in programs}
    assert {language.name for language in found.values()} == {"sh"}
    assert {line: list(language.argv or ()) for line, language in found.items()} == programs
    assert python is not None
    assert with_named_program(python, "#!/bin/bash\n") is python


def test_pip_install_is_silenced_in_languages_that_run_it() -> None:
    quiet = {
        ("python", "! pip install x\nimport x"): "! pip install -qqq x\nimport x",
        ("PY", "x\n!pip install a b"): "x\n!pip install -qqq a b",
        ("sh", "pip install x\npip install y"): "pip install -qqq x\npip install -qqq y",
        ("zsh", "pip install x"): "pip install -qqq x",
        ("Shell", "pip install"): "pip install -qqq",
        ("ps1", "pip install x"): "pip install -qqq x",
        ("bash", "pip install x -qqq\npip install y"): "pip install x -qqq\npip install -qqq y",
    }
    for language, code in (
        ("python", "pip install x"),
        ("python", "print('! pip install x')"),
        ("bash", "  pip install x\npip installed"),
        ("js", "pip install x"),
        ("cobol", "pip install x"),
    ):
        quiet[language, code] = code
    assert {case: silence_pip(case[1], case[0]) for case in quiet} == quiet


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
