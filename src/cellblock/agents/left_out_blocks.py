"""Say which blocks of a message do not run although they look like code."""

from __future__ import annotations

from collections.abc import Sequence

from ..blocks import extract_code_blocks
from ..languages import find_language
from .runnable_blocks import calls_tools, is_named_data, language_family

# Of programs that models write, in addition to those that executors run.
_PROGRAMS = frozenset(
    "applescript bat batch c c++ cc clojure cmd cpp cs csharp dart elixir erlang f# fish fsharp go "
    "golang groovy haskell hs java jl jsx julia kotlin kt lua matlab nim objc octave ocaml perl "
    "php pl r rb rs ruby rust scala swift ts tsx typescript vb zig".split()
)
_PROSE = ("text", "output", "console", "markdown")
_MEANT_TO_RUN = ("sql", "html", "css")  # in addition to programs
_USE_OTHERS = "If they were to run, write them in one of these. If not, answer without them."
_SAVED = "A block is saved as a file if its first line is a comment such as `# filename: NAME`."


def left_out_of(markdown: str, languages: Sequence[str]) -> list[str]:
    """Return the tags of blocks that neither run nor name a file, except those of plain text."""
    families = {*map(language_family, languages), *_PROSE}
    blocks = extract_code_blocks(markdown, infer_languages=False)
    left_out = [
        block.language
        for block in blocks
        if language_family(block.language) not in families and not is_named_data(block)
    ]
    return list(dict.fromkeys(filter(None, left_out)))


def is_meant_to_run(left_out: Sequence[str]) -> bool:
    """Return True if a model that writes only blocks of these languages wanted to do something."""
    return any(is_program(tag) or language_family(tag) in _MEANT_TO_RUN for tag in left_out)


def advise_left_out(left_out: Sequence[str], languages: Sequence[str], *, is_all: bool) -> str:
    """Return `describe_left_out`, and what the model can do. `is_all`: no other block runs."""
    text = describe_left_out(left_out, languages)
    text += f" {_SAVED}" if any(map(find_language, left_out)) else ""
    return f"{text} {_USE_OTHERS}" if is_all else text


def advise_nothing_ran(markdown: str, languages: Sequence[str]) -> str:
    """Return what a model is told of an answer that wants to run something, and ran nothing."""
    if not calls_tools(markdown):
        return advise_left_out(left_out_of(markdown, languages), languages, is_all=True)
    fences = _list([f"```{language}" for language in languages]).replace(" and ", " or ")
    return (
        "Nothing was run: there are no tools to call. To run code, write it in blocks that begin "
        f"with {fences} and end with ```. If nothing is to run, answer without tool calls."
    )


def left_out_languages(markdown: str, languages: Sequence[str]) -> list[str]:
    """Return the tags of blocks that are in none of `languages`, each once.

    Data, markup and output of programs, which nobody expects to run, do not count.
    """
    return [tag for tag in left_out_of(markdown, languages) if not _is_data(tag)]


def describe_left_out(left_out: Sequence[str], languages: Sequence[str]) -> str:
    """Return the sentence that people and models are told."""
    names = _list(list(dict.fromkeys(left_out)))
    only = f"only blocks in {_list(languages)} are" if languages else "none are"
    return f"Blocks in {names} were not run: {only}."


def _is_data(tag: str) -> bool:
    language = find_language(tag)
    return language is not None and language.policy == "ignore"


def is_program(tag: str) -> bool:
    """Return True if `tag` is that of a programming language for certain."""
    language = find_language(tag)
    name = tag.strip().lower()
    return name in _PROGRAMS if language is None else language.policy == "execute"


def _list(names: Sequence[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
