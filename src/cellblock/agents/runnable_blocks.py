"""Choose the blocks of a message that an agent runs: fences, or the code of tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from ..blocks import CodeBlock, action_for_block, extract_code_blocks, file_name, infer_language
from ..fences import fenced, without_thoughts
from ..languages import find_language
from ..models.messages import FunctionCall
from ..source_text import python_error

# Models use these names for the same thing.
_FAMILIES = {"bash": "sh"}


def language_family(tag: str) -> str:
    """Return one name for all tags of a language: "python" for "py3", "sh" for "sh" and "bash"."""
    language = find_language(tag)
    name = tag.strip().lower() if language is None else language.name
    return _FAMILIES.get(name, name)


def is_named_data(block: CodeBlock) -> bool:
    """Return True if executors save `block` under the name on its first line, and do not run it."""
    language = find_language(block.language)
    return (
        language is not None
        and file_name(block.code) is not None
        and action_for_block(block, language) == "save"
    )


def runnable_blocks(
    markdown: str, languages: Sequence[str], *, with_named_data: bool = False
) -> list[CodeBlock]:
    """Return the blocks of `markdown` in one of `languages`. Their code keeps its last line end.

    Fences without a tag count only if no other fence does: with code, they often hold its output.
    `with_named_data` adds those that executors save under the name on their first line. Without any
    block, code that models put into tags counts; see `tagged_blocks`.
    """
    families = {language_family(tag) for tag in languages}
    for infer in (False, True):
        blocks = [
            block
            for block in extract_code_blocks(markdown, infer_languages=infer, keep_line_ends=True)
            if language_family(block.language) in families
            or (with_named_data and is_named_data(block))
        ]
        if blocks:
            return blocks
    return tagged_blocks(markdown, languages)


# What models are trained to write instead of fences; "" if it does not say the language.
_TAGS = {
    "code": "",
    "execute": "",
    "python": "python",
    "execute_python": "python",
    "execute_ipython": "python",
    "bash": "sh",
    "execute_bash": "sh",
}
_CALL_TAGS = ("tool_call", "function_call")
# A tag at the start of a line. One in a fence, in a comment or in code is text, even if only a
# model or only CommonMark would see that fence there.
_OPENING_TAG = re.compile(
    r"^[ \t>*+\-\d.)]*(?P<marks>`{3,}|~{3,})[^`\n]*\n"
    r".*?(?:^[ \t>]*(?P=marks)(?![ \t]*[\w{])[^\n]*$|\Z)"
    r"|<!--.*?(?:-->|\Z)"
    rf"|^<(?P<tag>{'|'.join((*_TAGS, *_CALL_TAGS))})(?:[ \t]+\w+=[\"']?(?P<language>\w+)[\"']?)?>",
    re.MULTILINE | re.DOTALL,
)
_XML_NAME = re.compile(r"\s*<function=([\w.-]+)>")
_XML_PARAMETER = re.compile(r"<parameter=([\w.-]+)>(.*?)(?:</parameter>|\Z)", re.DOTALL)
_CODE_PARAMETERS = {"code", "command", "cmd", "script", "input"}
# The words of the names of tools that run code: one of these, and no others than those below.
_TOOLS = {
    "sh": {"sh", "bash", "shell", "terminal", "command", "cmd"},
    "python": {"py", "python", "python3", "ipython", "code", "interpreter", "jupyter"},
}
_RUN_WORDS = set("run execute exec eval execution executor repl cell functions tool tools".split())
_TOOL_WORDS = _RUN_WORDS.union(*_TOOLS.values())


def tagged_blocks(text: str, languages: Sequence[str]) -> list[CodeBlock]:
    """Return the code in tags such as `<code>`, `<execute>` and `<tool_call>`, in `languages`.

    The tags begin and end a line. Without an end, the rest of the text counts if it can be nothing
    else: Python that compiles, or a call in JSON. A tool call has code if its name is that of a
    tool that runs code, and one argument is that code. Line ends become LF.
    """
    families = {language_family(tag) for tag in languages}
    return [
        CodeBlock(f"{block.code}\n", block.language)
        for _, block in _tags(text)
        if block is not None and language_family(block.language) in families
    ]


def calls_tools(text: str) -> bool:
    """Return True if `text` has the call of a tool: the model believes that there are tools."""
    return any(tag in _CALL_TAGS or tag.startswith("execute") for tag, _ in _tags(text))


def call_as_text(call: FunctionCall) -> str:
    """Return the call of a tool as text: a fence if it is code, else a tag that `calls_tools`."""
    values = _json_object(call.arguments)
    block = _block_of_call(call.name, call.arguments if values is None else values)
    if block is not None:
        return fenced(block.code, block.language)
    arguments = call.arguments if values is None else values
    text = json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


def _tags(text: str) -> Iterator[tuple[str, CodeBlock | None]]:
    """Yield each tag outside fences, comments and thoughts, and the code in it, if any."""
    text = without_thoughts(_plain(text))
    fences = [block.code for block in extract_code_blocks(text, infer_languages=False)]
    without_end = set[str]()
    position = 0
    while opening := _OPENING_TAG.search(text, position):
        tag, position = opening["tag"], opening.end()
        if tag is None:
            continue
        language, closing = opening["language"] or "", f"</{tag}>"
        end = -1 if tag in without_end else text.find(closing, position)
        if end < 0:
            is_first, content = tag not in without_end, text[position:]
            without_end.add(tag)
            yield tag, _block_without_end(tag, language, content) if is_first else None
            continue
        content, position = text[position:end], end + len(closing)
        is_prose = text[position:].partition("\n")[0].strip()
        if not is_prose and not any(text[opening.start() : position] in code for code in fences):
            yield tag, _block_of_tag(tag, language, content)


def _block_without_end(tag: str, language: str, content: str) -> CodeBlock | None:
    """Return the code in a tag without an end: None if the text behind it may be more than code."""
    block = _block_of_tag(tag, language, content)
    if block is None or (tag in _CALL_TAGS and _json_object(content) is not None):
        return block
    is_python = tag not in _CALL_TAGS and language_family(block.language) == "python"
    return block if is_python and python_error(block.code) is None else None


def _block_of_tag(tag: str, language: str, content: str) -> CodeBlock | None:
    content = re.sub(r"\A\s*\n|\s+\Z", "", content)
    if tag in _CALL_TAGS:
        inner = extract_code_blocks(content, infer_languages=False)
        return _block_of_text_call(inner[0].code if len(inner) == 1 else content)
    language = language or _TAGS[tag] or infer_language(content)
    return CodeBlock(content, language) if content and language != "unknown" else None


def _block_of_text_call(content: str) -> CodeBlock | None:
    """Return the code of a call in JSON, or in the form of Qwen3-Coder."""
    if name := _XML_NAME.match(content):
        pairs = [(key, value.strip("\n")) for key, value in _XML_PARAMETER.findall(content)]
        return _block_of_call(name[1], _unambiguous(pairs))
    call = _json_object(content) or {}
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str) and (values := _json_object(arguments)) is not None:
        arguments = values
    return _block_of_call(str(call.get("name", "")), arguments)


def _block_of_call(name: str, arguments: object) -> CodeBlock | None:
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    language = next((language for language, tools in _TOOLS.items() if words & tools), None)
    is_object = isinstance(arguments, dict)
    values = cast(Mapping[str, object], arguments if is_object else {"code": arguments})
    named = find_language(str(values.get("language", values.get("lang", ""))))
    codes = [values[key] for key in _CODE_PARAMETERS & values.keys()]
    if language is None or not words <= _TOOL_WORDS or len(codes) != 1:
        return None
    code = _plain(codes[0]).rstrip() if isinstance(codes[0], str) else ""
    return CodeBlock(code, language if named is None else named.name) if code else None


def _plain(text: str) -> str:
    """Return `text` with LF at the end of its lines, and without NUL: as people are shown it."""
    return re.sub(r"\r\n?", "\n", text).replace("\0", "\ufffd")


def _unambiguous(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return an object; an empty one if two values have the same name: which one counts?"""
    values = dict(pairs)
    return values if len(values) == len(pairs) else {}


def _json_object(text: str) -> Mapping[str, object] | None:
    try:
        # Strings may contain line ends.
        value = json.loads(text, strict=False, object_pairs_hook=_unambiguous)
    except (ValueError, RecursionError):
        return None
    return cast(Mapping[str, object], value) if isinstance(value, dict) else None
