"""Code blocks: extraction from Markdown, inferred languages, file names."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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
    runs = re.findall(f"{mark}+", code)
    fence = mark * max(3, *(len(run) + 1 for run in runs), 0)
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
@example("def f():\n\treturn 1\n\n\n", "`")
def test_code_is_extracted_unchanged_also_from_lists_and_quotes(code: str, mark: str) -> None:
    block = fenced(code, mark)
    in_list = "- one\n" + add_prefix(block, "- ", "  ") + "\n- three\n"
    in_quote = add_prefix(block, "> ", "> ") + "\n\nAfter.\n"
    for markdown in (f"Before.\n{block}After.\n", in_list, in_quote):
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


def test_language_is_read_from_the_info_string_or_inferred() -> None:
    languages = {
        "python": "python",
        "  Python  ": "Python",
        'python title="x"': "python",
        "python {.numberLines}": "python",
        "python{.numberLines startFrom=3}": "python",
        "python{1,3-4}": "python",
        "{python}": "python",
        "{python, echo=FALSE}": "python",
        "{ .python .numberLines }": "python",
        "{#setup .python}": "python",
        "python:src/app.py": "python",
        "python,no_run": "python",
        "python3.11": "python3.11",
        "c++": "c++",
        "c#": "c#",
        "c\\+\\+ x": "c++",
        "objective-c": "objective-c",
        "text": "text",
    }
    without = ["", "  ", 'title="my python"', "{}", "{#setup}", ":app.py", "{=x}"]
    languages |= dict.fromkeys(without, "sh")
    found = {info: extract_pairs(f"```{info}\npip install x\n```") for info in languages}
    assert found == {info: [(name, "pip install x")] for info, name in languages.items()}


def test_languages_are_not_inferred_if_nobody_asks_or_there_is_no_code() -> None:
    blocks = extract_code_blocks("```\nprint(1)\n```\n```sh\nls\n```", infer_languages=False)
    assert [block.language for block in blocks] == ["", "sh"]
    assert extract_pairs("```\nsrc/\n  app.py\n```") == [("", "src/\n  app.py")]


def test_fences_in_longer_or_other_fences_are_no_blocks() -> None:
    inner = "```python\nprint(1)\n```"
    assert extract_pairs(f"````markdown\n{inner}\n````\n{inner}\n") == [
        ("markdown", inner),
        ("python", "print(1)"),
    ]
    assert extract_pairs("~~~md\n```\n~~~\n```md\n~~~\n```\n") == [("md", "```"), ("md", "~~~")]
    assert extract_pairs(f"~~~markdown\n{inner}\n{inner}\n~~~\n\n```\na tree\n```\n") == [
        ("markdown", f"{inner}\n{inner}"),
        ("", "a tree"),
    ]


def test_line_ends_unclosed_and_indented_fences_are_handled_as_in_commonmark() -> None:
    assert extract_pairs("Do:\r\n\r\n```sh\r\nls\r\n\r\npwd\r\n```\r\n") == [("sh", "ls\n\npwd")]
    for end in ("", "\n"):
        assert extract_pairs(f"```sh\nls\n```\n\n```python\nx = 1\nprint(x){end}") == [
            ("sh", "ls"),
            ("python", "x = 1\nprint(x)"),
        ]
    indented = "   ```python\n   if x:\n       y\n z\n   ```\n"
    assert extract_pairs(indented) == [("python", "if x:\n    y\nz")]


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


def test_text_without_a_fence_has_no_blocks() -> None:
    texts = [
        "",
        "plain words",
        "Text:\n\n    print('indented')\n",
        "Use `print(1)` or ``` print(2) ``` here.",
        "```python\n```",
        "```python\n \n```\n",
        "```python print(1)\n```",
        "<!--\n```python\nprint(1)\n```\n-->\n",
        "``\npython\n``\n",
        "Run: ```text\n\n```",
    ]
    assert [text for text in texts if extract_code_blocks(text)] == []


def test_fences_as_models_write_them_are_found() -> None:
    first, second = [("python", "print(1)")], [("python", "print(2)")]
    indented = [("python", "if x:\n    y")]
    messages = {
        "Run: ```python\nprint(1)\n```": first,
        "Run: ```python\nprint(1)\n```\n\nDone": first,
        "Run: ```\nprint(1)\n```": first,
        "Run: ```python\r\nprint(1)\r\n```": first,
        "1: ```python\nprint(1)\n```\n2:\n```python\nprint(2)\n```": first + second,
        "1: ```python\nprint(1)\n```\n2: ```python\nprint(2)\n```": first + second,
        "```python\nprint(1)\n```\n2: ```python\nprint(2)\n```": first + second,
        "```python\nprint(1)```": first,
        "```python\nprint(1)``` \n\nDone.": first,
        "Run: ```python\nprint(1)```": first,
        "Run:\n    ```python\n    if x:\n        y\n    ```": indented,
        "    ```python\n    print(1)\n    ```\n": first,
        "> Run: ```python\n> if x:\n>     y\n> ```": indented,
        "<details>\n```python\nprint(1)\n```\n</details>": first,
    }
    assert {message: extract_pairs(message) for message in messages} == messages


def test_fences_that_do_not_close_as_commonmark_wants_are_read_as_they_are_meant() -> None:
    first, second = ("python", "print(1)"), ("python", "print(2)")
    messages: dict[str, list[tuple[str, str]]] = {
        "```python\nprint(1)\n```python\nprint(2)\n```": [first, second],
        "```python\nprint(1)\n``````python\nprint(2)\n```": [first, second],
        "```python\nprint(1)\n``` ```python\nprint(2)\n``````\n": [first, second],
        "```python\nprint(1)\n```mermaid\ngraph\n```\n": [first, ("mermaid", "graph")],
        "```python\nprint(1)\n``\n\nThen:\n\n```python\nprint(2)\n``": [first, second],
        "~~~python\nprint(1)\n~~~<end_code>\nThen:\n~~~py\nx": [first, ("py", "x")],
        "> ```python\n> print(1)\n> ```<end_code>\n": [first],
        "```python\nprint(1)\n```.\n<think>\n```python\nprint(2)\n```\n</think>": [first],
        "```python\n!ls\nawait f()\n```<end_code>": [("python", "!ls\nawait f()")],
        "```python\nprint(1\n```\n\n```python\nprint(2)\n```": [("python", "print(1"), second],
        "```python\ns = '''a\n```\n\n```python\nprint(2)\n```": [("python", "s = '''a"), second],
        "```python\nx  # in ```\ny\n```!": [("python", "x  # in ```\ny")],
    }
    ends = "<end_code> <|im_end|> <|eot_id|> </s> . ) Done".split()
    for end in (*ends, " Now it runs.", " Now:\n", "Now it runs: see.", "`", "``"):
        for tag, code in (first, ("sh", "ls")):
            messages[f"```{tag}\n{code}\n```{end}"] = [(tag, code)]
            both = f"```{tag}\n{code}\n```{end}\nThen:\n```python\nprint(2)"
            messages[both] = messages[f"{both}\n```\n"] = [(tag, code), second]
    found = {message: extract_pairs(message) for message in messages}
    assert found == messages


def test_fences_in_strings_here_documents_and_markdown_do_not_end_the_block() -> None:
    codes = [
        ("python", "s = '''\n```json\n{}\n```\n'''\nprint(s)"),
        ("python", "s = '''\n```\n{}\n```\n'''\nprint(s)"),
        ("python", 's = f"""\n```json\n{x}\n```<end>\n"""\nawait f(s)'),
        ("python", "s = '''In ```\nx\n```\n'''\n!ls"),
        ("python", 's = """\n<!-- a -->\n```html\n<p>\n   \n```\n"""'),
        ("bash", "cat > R.md <<'EOF'\n# T\n```python\nx\n```\nEOF\necho done"),
        ("markdown", "# filename: R.md\n\n```python\nx\n```\n\n```sh\nls\n```\nmore"),
    ]
    for language, code in codes:
        for end in ("```", "```<end_code>", "```\n\nThen:\n\n```python\nprint(2)\n```"):
            blocks = extract_pairs(f"Run:\n```{language}\n{code}\n{end}")
            assert blocks[0] == (language, code)
            assert blocks[1:] == ([("python", "print(2)")] if "Then" in end else [])
    assert extract_pairs("Run: ```python\n" + codes[0][1] + "\n```") == [codes[0]]


def test_code_of_a_thought_is_not_a_block() -> None:
    messages = [
        "<think>\nhm\n</think>```python\nprint(1)\n```",
        "<think>\nhm\n\nhm\n</think>```python\nprint(1)\n```",
        "<think>\nhm\n</think>\n```python\nprint(1)\n```",
        "<think>\n\n```python\nprint(2)\n```\n</think>\n\n```python\nprint(1)\n```",
        "Yes.\n<think>\n```python\nprint(2)\n</think>\n\n```python\nprint(1)\n```",
        "```python\nprint(2)\n```\n</think>\n\n```python\nprint(1)\n```",
        "```python\nprint(1)\n```\n<think>\n```python\nprint(2)\n```\n",
    ]
    found = {message: extract_pairs(message) for message in messages}
    assert found == dict.fromkeys(messages, [("python", "print(1)")])
    code = "text = '''\n```json\n<think>\n</think>\n'''"
    for fence in ("```", "~~~~"):
        assert extract_pairs(f"{fence}python\n{code}\n{fence}\n") == [("python", code)]


def test_long_text_is_parsed_in_linear_time_and_deep_nesting_hides_nothing() -> None:
    for piece in (
        "x ```a\n",
        "``` ",
        "<think>",
        "```\n",
        " " * 100 + "```x",
        "```py\n(\n",
        "```py\n'''\n",
    ):
        extract_code_blocks(piece * (100_000 // len(piece)))
    assert extract_pairs("- " * 20 + "x\n\n```python\nprint(1)\n```\n") == [("python", "print(1)")]


def test_byte_order_mark_at_the_start_is_ignored() -> None:
    [block] = extract_code_blocks("\ufeff```python\nprint(1)\n```")
    assert block == CodeBlock("print(1)", "python")
    block.language = "bash"  # blocks are mutable
    assert block == CodeBlock(code="print(1)", language="bash")
    assert extract_code_blocks("```python\n\ufeff1\n```") == [CodeBlock("\ufeff1", "python")]


def test_extractor_accepts_any_message_content() -> None:
    parts: list[Any] = [
        {"type": "text", "text": "See:\n```sh\nls\n```"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "text", "text": "```sh\npwd\n```"},
    ]
    messages: list[tuple[Any, list[str]]] = [
        (None, []),
        ("```sh\nls\n```", ["ls"]),
        ([], []),
        (parts, ["ls", "pwd"]),
        (["```sh\nls", "```sh\npwd"], ["ls", "pwd"]),
        ([{"type": "text", "text": None}], []),
    ]
    for message, codes in messages:
        blocks = MarkdownCodeExtractor().extract_code_blocks(message)
        assert [block.code for block in blocks] == codes


def test_language_is_inferred_from_the_code() -> None:
    languages = {
        "sh": "python app.py|python3 -m venv x|pip install x|pip3 --version|pip -V",
        "python": "pip  = 3|pipeline = [1]|python3 == x|import os\nprint(os.name)"
        "|def f(a: list[int]) -> None: ...|def f(a: (b := 1)): ...",
        "unknown": "cd /tmp && ls|for (;;) {}|x = 1\0|x = '\ud800'|return 1",
    }
    found = {
        name: [infer_language(code) for code in codes.split("|")]
        for name, codes in languages.items()
    }
    assert found == {name: [name] * len(codes.split("|")) for name, codes in languages.items()}
    too_complex = ["-" * 100_000 + "1", "(" * 10_000, "x" + ".a" * 100_000, "9" * 100_000]
    assert {infer_language(code) for code in too_complex} == {"unknown"}


def test_python_with_warnings_is_python_without_warnings() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        assert infer_language("import re\nre.compile('\\d')\nassert 1 is 1") == "python"
    assert caught == []


def test_inferring_in_threads_keeps_the_warning_filters() -> None:
    filters = list(warnings.filters)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(infer_language, ["x = '\\d'"] * 1200))
    assert list(warnings.filters) == filters


@given(TEXTS)
def test_inference_accepts_any_text(code: str) -> None:
    assert infer_language(code) in ("sh", "python", "unknown")


def test_filename_is_read_from_the_first_line() -> None:
    names: dict[str, str | None] = {
        "# filename: app.py\nprint(1)": "app.py",
        "#filename:app.py": "app.py",
        "  #  filename:   my app.py  \r\nprint(1)": "my app.py",
        "// filename: app.js\nf()": "app.js",
        "/* filename: a.css */\nb {}": "a.css",
        "<!-- filename: a.html -->\n<p>": "a.html",
        "<!--filename:a.html-->": "a.html",
        "# filename: a:b.py": "a:b.py",
        "# filename: ../../etc/passwd": "../../etc/passwd",
        "# filename: sub/a.py": "sub/a.py",
    }
    without = [
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
    ]
    names |= dict.fromkeys(without)
    assert {code: file_name(code) for code in names} == names


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
