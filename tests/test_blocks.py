"""Code blocks: extraction from Markdown, inferred languages, file names."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cellblock.blocks import (
    CodeBlock,
    MarkdownCodeExtractor,
    extract_code_blocks,
    file_name,
    infer_language,
)

# All of Unicode, including lone surrogates, and often characters that the parser treats specially.
SYNTAX_CHARACTERS = "`~\n\r\t\0 >-*+#1.)<!\\&;:={}[]'\"x"
TEXTS = st.text(st.one_of(st.sampled_from(SYNTAX_CHARACTERS), st.characters(categories=None)))
FENCES = st.sampled_from("`~")


def normalized(text: str) -> str:
    """Return `text` with line ends and NUL replaced, as CommonMark requires."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def from_fence(code: str) -> str:
    """Return `code` as it is extracted from a fence, whose line end is not part of the code."""
    return normalized(code + "\n").removesuffix("\n")


def python_block(code: str) -> list[tuple[str, str]]:
    """Return the blocks of one fence of Python: none if there is no code in it."""
    code = from_fence(code)
    return [("python", code)] if code.strip() else []


def fenced(code: str, mark: str = "`", info: str = "python") -> str:
    """Return `code` in a fence that is longer than any run of `mark` in the code."""
    longest = max(
        (len(run) for run in "".join(c if c == mark else " " for c in code).split()), default=0
    )
    fence = mark * max(3, longest + 1)
    return f"{fence}{info}\n{code}\n{fence}\n"


def add_prefix(text: str, first: str, rest: str) -> str:
    lines = normalized(text).split("\n")
    return "\n".join([first + lines[0], *(rest + line for line in lines[1:])])


def extract_pairs(markdown: str) -> list[tuple[str, str]]:
    return [(block.language, block.code) for block in extract_code_blocks(markdown)]


@given(TEXTS, FENCES)
@example("", "`")
@example("\n\n", "~")
@example("x\r\n\ty\0\r", "`")
def test_code_is_extracted_unchanged(code: str, mark: str) -> None:
    assert extract_pairs(f"Before.\n{fenced(code, mark)}After.\n") == python_block(code)


@given(TEXTS, FENCES)
@example("def f():\n\treturn 1\n\n\n", "`")
def test_code_in_a_list_is_extracted_unchanged(code: str, mark: str) -> None:
    markdown = "- one\n" + add_prefix(fenced(code, mark), "- ", "  ") + "\n- three\n"
    assert extract_pairs(markdown) == python_block(code)


@given(TEXTS, FENCES)
@example("def f():\n\treturn 1\n\n\n", "`")
def test_code_in_a_quote_is_extracted_unchanged(code: str, mark: str) -> None:
    markdown = add_prefix(fenced(code, mark), "> ", "> ") + "\n\nAfter.\n"
    assert extract_pairs(markdown) == python_block(code)


@given(st.lists(st.tuples(TEXTS, FENCES), max_size=4))
def test_blocks_are_extracted_in_order(blocks: list[tuple[str, str]]) -> None:
    markdown = "\nWords.\n".join(fenced(code, mark) for code, mark in blocks)
    assert extract_pairs(markdown) == [block for code, _ in blocks for block in python_block(code)]


@given(TEXTS)
@example("``` &#xD800; &#0; \\\nx")
@example("[a]: http://\ud800/\n\n```\n\ud800")
@example("> " * 500 + "```")
@example("- " * 500 + "```")
def test_extraction_accepts_any_text(text: str) -> None:
    for block in extract_code_blocks(text):
        assert isinstance(block.code, str)
        assert block.language != "unknown"


@given(TEXTS)
def test_info_string_does_not_change_the_code(info: str) -> None:
    line = normalized(info).replace("\n", " ")
    assert [code for _, code in extract_pairs(f"~~~ {line}\nx y\n~~~\n")] == ["x y"]


@pytest.mark.parametrize(
    ("info", "language"),
    [
        ("python", "python"),
        ("  Python  ", "Python"),
        ('python title="x"', "python"),
        ("python {.numberLines}", "python"),
        ("python{.numberLines startFrom=3}", "python"),
        ("python{1,3-4}", "python"),
        ("{python}", "python"),
        ("{python, echo=FALSE}", "python"),
        ("{ .python .numberLines }", "python"),
        ("{#setup .python}", "python"),
        ("python:src/app.py", "python"),
        ("python,no_run", "python"),
        ("python3.11", "python3.11"),
        ("c++", "c++"),
        ("c#", "c#"),
        ("c\\+\\+ x", "c++"),
        ("objective-c", "objective-c"),
        ("text", "text"),
    ],
)
def test_language_is_read_from_the_info_string(info: str, language: str) -> None:
    assert extract_pairs(f"```{info}\ncode\n```") == [(language, "code")]


@pytest.mark.parametrize(
    "info", ["", "  ", 'title="my python"', "{}", "{#setup}", ":app.py", "{=x}"]
)
def test_language_is_inferred_if_the_info_string_has_none(info: str) -> None:
    assert extract_pairs(f"```{info}\npip install x\n```") == [("sh", "pip install x")]


def test_languages_are_not_inferred_if_nobody_asks() -> None:
    blocks = extract_code_blocks("```\nprint(1)\n```\n```sh\nls\n```", infer_languages=False)
    assert [block.language for block in blocks] == ["", "sh"]


def test_untagged_fence_without_code_has_no_language() -> None:
    assert extract_pairs("```\nsrc/\n  app.py\n```") == [("", "src/\n  app.py")]


def test_longer_fence_can_contain_shorter_fences() -> None:
    inner = "```python\nprint(1)\n```"
    assert extract_pairs(f"````markdown\n{inner}\n````\n{inner}\n") == [
        ("markdown", inner),
        ("python", "print(1)"),
    ]


def test_tilde_fence_can_contain_backticks_and_vice_versa() -> None:
    assert extract_pairs("~~~md\n```\n~~~\n```md\n~~~\n```\n") == [("md", "```"), ("md", "~~~")]


def test_windows_line_ends_become_newlines() -> None:
    assert extract_pairs("Do:\r\n\r\n```sh\r\nls\r\n\r\npwd\r\n```\r\n") == [("sh", "ls\n\npwd")]


@pytest.mark.parametrize("end", ["", "\n"])
def test_unclosed_fence_ends_with_the_message(end: str) -> None:
    assert extract_pairs(f"```sh\nls\n```\n\n```python\nx = 1\nprint(x){end}") == [
        ("sh", "ls"),
        ("python", "x = 1\nprint(x)"),
    ]


def test_code_of_an_indented_fence_keeps_its_relative_indent() -> None:
    assert extract_pairs("   ```python\n   if x:\n       y\n z\n   ```\n") == [
        ("python", "if x:\n    y\nz")
    ]


def test_fences_in_numbered_lists_and_quotes_are_found() -> None:
    markdown = textwrap.dedent("""\
        1. First:

           ```sh
           ls
           ```

        2. > Then:
           > - ~~~python
           >   if x:
           >       y
           >   ~~~
        """)
    assert extract_pairs(markdown) == [("sh", "ls"), ("python", "if x:\n    y")]


@pytest.mark.parametrize(
    "markdown",
    [
        "",
        "plain words",
        "Text:\n\n    print('indented')\n",
        "Use `print(1)` or ``` print(2) ``` here.",
        "```python\n```",
        "```python\n \n```\n",
        "```python print(1)\n```",
        "<!--\n```python\nprint(1)\n```\n-->\n",
        "``\npython\n``\n",
    ],
)
def test_text_without_a_fence_has_no_blocks(markdown: str) -> None:
    assert extract_code_blocks(markdown) == []


PRINT_1, PRINT_2 = ("python", "print(1)"), ("python", "print(2)")


@pytest.mark.parametrize(
    ("markdown", "blocks"),
    [
        ("Run: ```python\nprint(1)\n```", [PRINT_1]),
        ("Run: ```python\nprint(1)\n```\n\nDone", [PRINT_1]),
        ("Run: ```\nprint(1)\n```", [PRINT_1]),
        ("Run: ```python\r\nprint(1)\r\n```", [PRINT_1]),
        ("1: ```python\nprint(1)\n```\n2:\n```python\nprint(2)\n```", [PRINT_1, PRINT_2]),
        ("1: ```python\nprint(1)\n```\n2: ```python\nprint(2)\n```", [PRINT_1, PRINT_2]),
        ("```python\nprint(1)\n```\n2: ```python\nprint(2)\n```", [PRINT_1, PRINT_2]),
        ("```python\nprint(1)```", [PRINT_1]),
        ("```python\nprint(1)``` \n\nDone.", [PRINT_1]),
        ("Run: ```python\nprint(1)```", [PRINT_1]),
        ("Run:\n    ```python\n    if x:\n        y\n    ```", [("python", "if x:\n    y")]),
        ("    ```python\n    print(1)\n    ```\n", [PRINT_1]),
        ("> Run: ```python\n> if x:\n>     y\n> ```", [("python", "if x:\n    y")]),
        ("<details>\n```python\nprint(1)\n```\n</details>", [PRINT_1]),
        ("Run: ```text\n\n```", []),
    ],
)
def test_fences_as_models_write_them_are_found(
    markdown: str, blocks: list[tuple[str, str]]
) -> None:
    assert extract_pairs(markdown) == blocks


def test_fences_in_an_example_are_not_blocks_beside_other_fences() -> None:
    example = "```python\nprint(1)\n```\n```python\nprint(2)\n```"
    assert extract_pairs(f"~~~markdown\n{example}\n~~~\n\n```\na tree\n```\n") == [
        ("markdown", example),
        ("", "a tree"),
    ]


@pytest.mark.parametrize(
    "markdown",
    [
        "<think>\nhm\n</think>```python\nprint(1)\n```",
        "<think>\nhm\n\nhm\n</think>```python\nprint(1)\n```",
        "<think>\nhm\n</think>\n```python\nprint(1)\n```",
        "<think>\n\n```python\nprint(2)\n```\n</think>\n\n```python\nprint(1)\n```",
        "Yes.\n<think>\n```python\nprint(2)\n</think>\n\n```python\nprint(1)\n```",
        "```python\nprint(2)\n```\n</think>\n\n```python\nprint(1)\n```",
        "```python\nprint(1)\n```\n<think>\n```python\nprint(2)\n```\n",
    ],
)
def test_code_of_a_thought_is_not_a_block(markdown: str) -> None:
    assert extract_pairs(markdown) == [PRINT_1]


@pytest.mark.parametrize("fence", ["```", "~~~~"])
def test_code_can_contain_the_tags_of_thoughts(fence: str) -> None:
    code = "text = '''\n```json\n<think>\n</think>\n'''"
    assert extract_pairs(f"{fence}python\n{code}\n{fence}\n") == [("python", code)]


@pytest.mark.parametrize("piece", ["x ```a\n", "``` ", "<think>", "```\n", " " * 100 + "```x"])
def test_long_text_is_parsed_in_linear_time(piece: str) -> None:
    extract_code_blocks(piece * (200_000 // len(piece)))


def test_deep_nesting_does_not_hide_later_blocks() -> None:
    assert extract_pairs("- " * 20 + "x\n\n```python\nprint(1)\n```\n") == [("python", "print(1)")]


def test_byte_order_mark_at_the_start_is_ignored() -> None:
    assert extract_code_blocks("\ufeff```python\nprint(1)\n```") == [
        CodeBlock("print(1)", "python")
    ]
    assert extract_code_blocks("```python\n\ufeff1\n```") == [CodeBlock("\ufeff1", "python")]


def test_extracted_blocks_are_mutable() -> None:
    [block] = extract_code_blocks("```sh\nls\n```")
    block.language = "bash"
    assert block == CodeBlock(code="ls", language="bash")


@pytest.mark.parametrize(
    ("message", "codes"),
    [
        (None, []),
        ("```sh\nls\n```", ["ls"]),
        ([], []),
        (
            [
                {"type": "text", "text": "See:\n```sh\nls\n```"},
                {"type": "image_url", "image_url": {"url": "data:,"}},
                {"type": "text", "text": "```sh\npwd\n```"},
            ],
            ["ls", "pwd"],
        ),
        (["```sh\nls", "```sh\npwd"], ["ls", "pwd"]),
        ([{"type": "text", "text": None}], []),
    ],
)
def test_extractor_accepts_any_message_content(
    message: str | list[str] | None, codes: list[str]
) -> None:
    assert [block.code for block in MarkdownCodeExtractor().extract_code_blocks(message)] == codes


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("python app.py", "sh"),
        ("python3 -m venv x", "sh"),
        ("pip install x", "sh"),
        ("pip3 --version", "sh"),
        ("pip -V", "sh"),
        ("pip  = 3", "python"),
        ("pipeline = [1]", "python"),
        ("python3 == x", "python"),
        ("import os\nprint(os.name)", "python"),
        ("def f(a: list[int]) -> None: ...", "python"),
        ("def f(a: (b := 1)): ...", "python"),
        ("cd /tmp && ls", "unknown"),
        ("for (;;) {}", "unknown"),
        ("x = 1\0", "unknown"),
        ("x = '\ud800'", "unknown"),
        ("return 1", "unknown"),
    ],
)
def test_language_is_inferred_from_the_code(code: str, language: str) -> None:
    assert infer_language(code) == language


@pytest.mark.parametrize(
    "code", ["-" * 100_000 + "1", "(" * 10_000, "x" + ".a" * 100_000, "9" * 100_000]
)
def test_code_too_complex_for_the_compiler_is_not_python(code: str) -> None:
    assert infer_language(code) == "unknown"


def test_python_with_warnings_is_python_without_warnings() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        assert infer_language("import re\nre.compile('\\d')\nassert 1 is 1") == "python"
    assert caught == []


def test_inferring_in_threads_keeps_the_warning_filters() -> None:
    filters = list(warnings.filters)
    threads = [
        threading.Thread(target=lambda: [infer_language("x = '\\d'") for _ in range(300)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == filters


@given(TEXTS)
def test_inference_accepts_any_text(code: str) -> None:
    assert infer_language(code) in ("sh", "python", "unknown")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("# filename: app.py\nprint(1)", "app.py"),
        ("#filename:app.py", "app.py"),
        ("  #  filename:   my app.py  \r\nprint(1)", "my app.py"),
        ("// filename: app.js\nf()", "app.js"),
        ("/* filename: a.css */\nb {}", "a.css"),
        ("<!-- filename: a.html -->\n<p>", "a.html"),
        ("<!--filename:a.html-->", "a.html"),
        ("# filename: a:b.py", "a:b.py"),
        ("# filename: ../../etc/passwd", "../../etc/passwd"),
        ("# filename: sub/a.py", "sub/a.py"),
    ],
)
def test_filename_is_read_from_the_first_line(code: str, name: str) -> None:
    assert file_name(code) == name


@pytest.mark.parametrize(
    "code",
    [
        "",
        "print(1)",
        "# This is a comment\nprint(1)",
        "print(1)\n# filename: app.py",
        "# filename:\napp.py",
        "# filename:   ",
        "filename: app.py",
        "# the filename: app.py",
        "/* filename: a.css\n*/",
        "<!-- filename: a.html",
    ],
)
def test_other_first_lines_have_no_filename(code: str) -> None:
    assert file_name(code) is None


@given(
    st.one_of(
        TEXTS, st.tuples(st.sampled_from(["#", "//", "/*", "<!--"]), TEXTS).map(" filename:".join)
    )
)
def test_filename_is_one_line_and_not_blank(code: str) -> None:
    name = file_name(code)
    assert name is None or (name == name.strip() != "" and not {"\n", "\r"} & set(name))


def test_importing_blocks_does_not_import_the_markdown_parser() -> None:
    check = (
        "import sys, cellblock.blocks; sys.exit(any('markdown_it' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
