"""Lines of Python are split into the blocks that a user would type at a prompt."""

from __future__ import annotations

import pytest

pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")

from cellblock.cli.repl.statement_splitter import StatementSplitter, missing_indent

IF_ELSE = "if a:\n    b\nelif c:\n    d\nelse:\n    e"
TRY = "try:\n    a\nexcept E:\n    b\nfinally:\n    c"


def blocks(script: str) -> list[str]:
    splitter = StatementSplitter()
    complete = [block for line in script.split("\n") for block in splitter.add_line(line)]
    return [*complete, *splitter.flush()]


def test_script_is_split_into_statements() -> None:
    scripts = {
        "a = 1\nb = 2": ["a = 1", "b = 2"],
        "\n\n# note\na = 1\n\n": ["a = 1"],
        "a = [1,\n2]\nb": ["a = [1,\n2]", "b"],
        "a = '''x\n\ny'''\nb": ["a = '''x\n\ny'''", "b"],
        "a = 1 + \\\n2\nb": ["a = 1 + \\\n2", "b"],
        "def f():\n    a\n\n    b\nc": ["def f():\n    a\n\n    b", "c"],
        "def f():\n    a\n# note\n    b\nc": ["def f():\n    a\n# note\n    b", "c"],
        "def f():\n    return '''\nx\n'''\nc": ["def f():\n    return '''\nx\n'''", "c"],
        f"{IF_ELSE}\nf": [IF_ELSE, "f"],
        f"{TRY}\nd": [TRY, "d"],
        "@a\n@b\ndef f():\n    c\nd": ["@a\n@b\ndef f():\n    c", "d"],
        "class A:\n    x\nclass B:\n    y": ["class A:\n    x", "class B:\n    y"],
        "for x in y: z\nfor x in y: w": ["for x in y: z", "for x in y: w"],
        "async def f():\n    a\nawait f()": ["async def f():\n    a", "await f()"],
        "!ls\n%time a\n?b": ["!ls", "%time a", "?b"],
        "%%time\na\nb\n\nc": ["%%time\na\nb", "c"],
        ":checkpoint a\nif a:\n    b\n:restore": [":checkpoint a", "if a:\n    b", ":restore"],
        "a = = 1\nb": ["a = = 1", "b"],
        "formula = 1\nb": ["formula = 1", "b"],
        "def f(a,\nb": ["def f(a,\nb"],
    }
    assert {script: blocks(script) for script in scripts} == scripts


def test_statement_is_yielded_as_soon_as_it_is_complete() -> None:
    splitter = StatementSplitter()
    assert list(splitter.add_line("a = 1")) == ["a = 1"]
    assert list(splitter.add_line("if a:")) == []
    assert list(splitter.add_line("    b")) == []
    assert list(splitter.add_line("c")) == ["if a:\n    b", "c"]
    assert list(splitter.flush()) == []


def test_missing_indent_of_unfinished_text() -> None:
    indents = {
        "a": None,
        "def f():": 4,
        "def f():\n    a": 4,
        "def f():\n    a\n    ": None,
        "a(": 0,
        ":x(": None,
    }
    assert {text: missing_indent(text) for text in indents} == indents
