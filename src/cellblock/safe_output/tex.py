r"""Take commands that act out of TeX. Pure: no I/O.

Clients typeset TeX with MathJax or KaTeX, and nbconvert also with LaTeX. The remaining TeX can only
draw and define macros. Kept from working are the commands that make links, styles, classes,
identifiers and attributes, load extensions and pictures, or read and write files. So are those that
make other commands from text (`\csname`, `\begin{href}`, `^^`). A macro cannot: its arguments are
not part of a command's name. Besides TeX, clients read HTML and Markdown in it, so that is broken
up as well.
"""

from __future__ import annotations

import re

_NAMES = (
    # Links, styles and attributes, of MathJax and KaTeX.
    r"href|url\w*|nolinkurl|hyper\w+|html\w*|style|class|css\w+|data|mmlToken|bbox|fcolorbox"
    r"|enclose|unicode|include\w*|require|setOptions|mathtoolsset"
    # Other names for commands.
    r"|csname|catcode|scantokens|ExplSyntaxOn|makeatletter|usepackage|RequirePackage|documentclass"
    # Files and programs, in LaTeX.
    r"|input\w*|\w*import|special|immediate|(?:new)?(?:read|write)\w*|open(?:in|out)|directlua"
    r"|luaexec|pdf\w+|XeTeX\w+|lstinputlisting|\w*verbatiminput|(?:InputIf|If)File\w+"
    r"|filecontents\*?"
)
_COMMAND = re.compile(
    rf"\\(?=(?:{_NAMES})(?![A-Za-z])|(?:begin|end)\s*\{{\s*(?:{_NAMES})\s*\}})", re.ASCII
)
_BACKSLASH_SIGN = "\u29f5"  # looks like a backslash, and starts no command
# A tag, an entity, and a link or picture of Markdown. To TeX, a space behind it means nothing.
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|&(?=[#A-Za-z])|\](?=[(:\[])")
_TAG_OR_TEXT = re.compile(r'<(?:[^<>"]|"[^"]*")*>|[^<]+')  # in an attribute, `>` ends nothing


def clean_tex(text: str) -> str:
    """Return TeX that cannot act, neither as TeX nor as HTML or Markdown."""
    text = _COMMAND.sub(_BACKSLASH_SIGN, text).replace("^^", "^{}^")
    return _MARKUP.sub(lambda match: f"{match[0]} ", text)


def part_commands(html: str) -> str:
    """Return HTML in whose text no formula has a command that `clean_tex` would take out.

    An empty element follows the command's backslash: it is not seen nor copied, and a formula ends
    at an element. `html` is the output of a serializer, without comments and `<wbr>`.
    """
    return _TAG_OR_TEXT.sub(
        lambda match: (
            match[0] if match[0].startswith("<") else _COMMAND.sub(r"\\<span></span>", match[0])
        ),
        html,
    )
