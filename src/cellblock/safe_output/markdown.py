"""Turn Markdown into HTML, as JupyterLab does, for `clean_html`. Pure: no I/O.

Clients render Markdown with their own extensions and rules, which differ and can act: HTML in
it, diagrams, links with commands. So it never leaves the kernel as Markdown. Formulas stay text,
which clients typeset in HTML too.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from markdown_it import MarkdownIt
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin

_MAX_CHARACTERS = 50_000  # the parser's time is not linear: seconds for the worst text
_FORMULAS = {  # the parser's names, and how clients find the formulas again
    "math_inline": "${}$",
    "math_inline_double": "$${}$$",
    "math_block": "<p>$${}$$</p>\n",
    "amsmath": "<p>{}</p>\n",
}


def markdown_html(text: str) -> str:
    """Return Markdown as HTML that is not clean yet. Long Markdown is shown as it is."""
    if len(text) > _MAX_CHARACTERS:
        return f"<pre>{html.escape(text)}</pre>"
    return _parser().render(text)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    dollarmath_plugin(parser, allow_labels=False, double_inline=True)
    amsmath_plugin(parser)
    for name, form in _FORMULAS.items():
        parser.add_render_rule(name, _show_formula(form))
    return parser


def _show_formula(form: str) -> Callable[..., str]:
    def render(_self: Any, tokens: Any, index: int, *_more: Any) -> str:
        return form.format(html.escape(tokens[index].content))

    return render
