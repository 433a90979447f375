"""The pages of the documentation: their code blocks, links and headings."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INTEGRATIONS = [page for page in PAGES if page.parent.name == "integrations"]
OTHERS = [ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
_INCLUDED = re.compile(r'^--8<-- "(.*)"$', re.MULTILINE)
_SHOWN = re.compile(r"^[ ]*#>[ ]?(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class PageBlock:
    """A fenced block of a page. `line` is the number of the line before its code, from 0."""

    language: str
    code: str
    line: int
    output: str | None  # of an `sh` block: the text block right below it

    @property
    def shown_output(self) -> str:
        """Return the output that the `#>` comments of a Python block show."""
        return "\n".join(_SHOWN.findall(self.code))


def page_name(path: Path) -> str:
    """Return the path of a page in the repository."""
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[PageBlock]:
    """Return the fenced blocks of `page` in order."""
    tokens = _tokens(page)
    found: list[PageBlock] = []
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "fence":
            assert token.map is not None
            is_output = following is not None and _language(following) == "text"
            output = following.content if following is not None and is_output else None
            found.append(PageBlock(_language(token), token.content, token.map[0] + 1, output))
    return found


def links(page: Path) -> Iterator[str]:
    """Yield the targets of the links on `page` that stay in the repository."""
    for token in _tokens(page):
        for child in token.children or ():
            target = str(child.attrGet("href") or "")
            if target and not re.match(r"[a-z]+:", target):
                yield target


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings on `page`."""
    tokens = _tokens(page)
    titles = [
        following.content
        for token, following in zip(tokens, tokens[1:], strict=False)
        if token.type == "heading_open"
    ]
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def matches(output: str, shown: str) -> bool:
    """Return True if `output` is what a page shows. There, `...` stands for any text."""
    pattern = re.escape(shown.rstrip()).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, output.rstrip(), re.DOTALL) is not None


def _language(token: Token) -> str:
    return (token.info.split() or [""])[0] if token.type == "fence" else ""


@functools.cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(_text(page))


def _text(page: Path) -> str:
    """Return the text of `page` with the files that it includes (`--8<-- "FILE"`)."""
    text = page.read_text(encoding="utf-8")
    return _INCLUDED.sub(lambda match: (ROOT / match[1]).read_text(encoding="utf-8"), text)
