"""Code blocks, and their extraction from Markdown messages. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from .fences import Fence, commonmark_fences, language_tag, model_fences, without_thoughts
from .languages import Action, Language, action_for
from .source_text import python_error


@dataclass
class CodeBlock:
    """A piece of source text and the tag of its language."""

    code: str
    language: str


class CodeBlockLike(Protocol):
    """An object with the attributes of a `CodeBlock`, such as AutoGen's and AG2's."""

    @property
    def code(self) -> str:
        """The source text."""
        ...

    @property
    def language(self) -> str:
        """The tag of the language."""
        ...


def extract_code_blocks(
    markdown: str, *, infer_languages: bool = True, keep_line_ends: bool = False
) -> list[CodeBlock]:
    """Return the fenced code blocks of `markdown` in order. Accepts any text.

    Raise `ValueError` for anything else.

    CommonMark defines a fence: backticks or tildes, also in lists and quotes. A fence that is not
    closed ends with the message. Indented code is not a block, nor is a fence in an HTML comment.
    Where CommonMark finds no code, or seems to misread a fence such as one after other text or one
    that ends with "```<end_code>", fences are read as models mean them: more of the code compiles,
    and nothing ends within a string. Fences without code and those between `<think>` and `</think>`
    are left out.

    `code` is the text between the lines of the fence, without the last line end; with it if
    `keep_line_ends`, unless the fence is closed on the last line of the code. As CommonMark
    requires, line ends become LF and NUL becomes U+FFFD. `language` is the tag as written. The
    language of a fence without a tag is inferred; it is "" if that fails, or if `infer_languages`
    is False. A byte order mark at the start is ignored.
    """
    if not isinstance(markdown, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ValueError(
            "Pass the message as a text, such as '```python\\nprint(1)\\n```', "
            f"not {markdown!r:.100}."
        )
    text = re.sub(r"\r\n?", "\n", markdown.removeprefix("\ufeff")).replace("\0", "\ufffd")
    text = without_thoughts(text)
    fences = commonmark_fences(text)
    with_code = _with_code(fences)
    if not with_code or any(fence.seems_misread for fence in fences):
        with_code = max(with_code, _with_code(model_fences(text)), key=_quality)
    return [
        CodeBlock(
            f"{fence.code}\n" if keep_line_ends and fence.ends_line else fence.code,
            _language(fence, infer_languages),
        )
        for fence in with_code
    ]


def _with_code(fences: Sequence[Fence]) -> list[Fence]:
    return [fence for fence in fences if fence.code.strip()]


def _quality(fences: Sequence[Fence]) -> tuple[int, int, int]:
    whole = [len(fence.code) for fence in fences if fence.is_whole]
    return len(whole), sum(whole), len(fences)


def _language(fence: Fence, infer: bool) -> str:
    language = language_tag(fence.info)
    if not language and infer and (language := infer_language(fence.code)) == "unknown":
        language = ""
    return language


class MarkdownCodeExtractor:
    """Extract code blocks from the content of a message, with AutoGen 0.2's interface."""

    def extract_code_blocks(
        self, message: str | Sequence[str | Mapping[str, Any]] | None
    ) -> list[CodeBlock]:
        """Return the blocks of `message`: a text, the parts of a multimodal message, or None.

        Each part is parsed on its own. Parts without text, such as images, are skipped.
        """
        if message is None:
            return []
        parts = [message] if isinstance(message, str) else [_part_text(part) for part in message]
        return [block for part in parts for block in extract_code_blocks(part)]


def _part_text(part: str | Mapping[str, Any]) -> str:
    text = part if isinstance(part, str) else part.get("text")
    return text if isinstance(text, str) else ""


# "pip = 3" and "pipeline = make()" are Python. AutoGen treats the second as a command.
_SHELL_COMMAND = re.compile(r"(?:python3?|pip3?)[ \t]+(?![ \t=])")


def infer_language(code: str) -> str:
    """Return "sh" for a python or pip command, "python" if `code` compiles, else "unknown"."""
    if _SHELL_COMMAND.match(code):
        return "sh"
    return "unknown" if python_error(code, top_level_await=False) else "python"


_COMMENTS = (("#", ""), ("//", ""), ("/*", "*/"), ("<!--", "-->"))


def file_name(code: str) -> str | None:
    """Return the name in a `# filename: NAME` comment on the first line; None without one.

    `//`, `/* */` and `<!-- -->` comments are accepted too. The name is returned as written and may
    point anywhere: the caller must check that it is in the work folder.
    """
    first_line = code.removeprefix("\ufeff").partition("\n")[0].partition("\r")[0].strip()
    for opening, closing in _COMMENTS:
        if first_line.startswith(opening) and first_line.endswith(closing):
            comment = first_line.removeprefix(opening).removesuffix(closing).strip()
            # AutoGen 0.2 treats any first comment as a name. Here the keyword is required.
            if comment.startswith("filename:"):
                return comment.removeprefix("filename:").strip() or None
    return None


def action_for_block(
    block: CodeBlockLike, language: Language, policies: Mapping[str, Action] | None = None
) -> Action:
    """Return what to do with `block`, which is in `language`; see `action_for`."""
    # The name matters only where the block would be ignored.
    names_file = language.policy == "ignore" and file_name(block.code) is not None
    return action_for(language, policies, names_file=names_file)


def notebook_code(data: bytes) -> tuple[str, list[tuple[int, str]]]:
    """Return the language of a Jupyter notebook, and its code cells with their numbers from 1.

    Cells without code are left out. Raise `ValueError` if the data are no notebook.
    """
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("the file holds no JSON object")
    notebook = _as_mapping(cast("object", found))
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise ValueError('"cells" is missing')
    kernel = _as_mapping(_as_mapping(notebook.get("metadata")).get("kernelspec"))
    numbered = enumerate(map(_cell_code, cast("list[object]", cells)), 1)
    return str(kernel.get("language") or "python"), [
        (number, code) for number, code in numbered if code.strip()
    ]


def _cell_code(cell: object) -> str:
    values = _as_mapping(cell)
    if values.get("cell_type") != "code":
        return ""
    source = values.get("source", "")
    parts = cast("list[object]", source) if isinstance(source, list) else [source]
    return "".join(map(str, parts))


def _as_mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
