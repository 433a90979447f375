"""Read the source of one function, and find the names that it needs from its module.

The source is parsed and compiled, never run.
"""

from __future__ import annotations

import ast
import copy
import dis
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType

from ..errors import FunctionError

Definition = ast.FunctionDef | ast.AsyncFunctionDef


def require_function(source: object) -> tuple[Definition, str]:
    """Return the one function that `source` defines, and the text without indentation.

    Raise `FunctionError` if it is not the source of exactly one function.
    """
    if not isinstance(source, str):
        raise FunctionError(f"The source of a function must be a str, not {source!r:.200}.")
    try:
        text = _dedent(source)
        tree = ast.parse(text)
        # Compiling finds errors that parsing does not, such as a duplicate parameter.
        compile(tree, "<function>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FunctionError(f"Could not compile function: {error}") from error
    match tree.body:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as node]:
            return node, text
        case _:
            raise FunctionError("The string must contain exactly one function")


def read_function(
    func: FunctionType, is_removed: Callable[[ast.expr], bool]
) -> tuple[Definition, str]:
    """Return the definition of `func` and its text, without decorators for which `is_removed`.

    Raise `FunctionError` if the source is not available.
    """
    name = func.__qualname__
    try:
        text = _dedent(inspect.getsource(func))
        body = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise FunctionError(
            f"The source of {name!r} cannot be read: {error}. "
            "Define it in a file, or pass its source to FunctionWithRequirements.from_str."
        ) from error
    node = body[0] if len(body) == 1 else None
    if not isinstance(node, Definition) or node.name != func.__code__.co_name:
        raise FunctionError(
            f"The source at the position of {name!r} is not that function. "
            "Import its module again if the file was changed."
        )
    node.decorator_list = [item for item in node.decorator_list if not is_removed(item)]
    return node, text


def definition_text(node: Definition, text: str) -> str:
    """Return the source of the function with the decorators that are left in `node`."""
    decorators = [f"@{ast.unparse(item)}" for item in node.decorator_list]
    return "\n".join([*decorators, *text.split("\n")[node.lineno - 1 :]]).rstrip()


def stub(node: Definition) -> str:
    """Return the signature as written, the docstring and `...`."""
    bare = copy.copy(node)
    bare.body, bare.decorator_list = [], []
    head = ast.unparse(bare)
    doc = ast.get_docstring(node, clean=False)
    if not doc:
        return f"{head}\n    ..."
    text = inspect.cleandoc(doc) + ("\n" if doc.rstrip(" \t").endswith("\n") else "")
    quote = "'''" if '"""' in text or text.endswith('"') else '"""'
    lines = f"{quote}{text}{quote}".split("\n")
    return "\n".join([head, *(f"    {line}" if line else "" for line in lines), "    ..."])


def names_needed(name: str, text: str, *, postponed: bool) -> tuple[set[str], set[str]]:
    """Return the names that `text` needs from its module or the builtins.

    The first set holds those needed when the function is defined, the second set holds all.
    `postponed` is True if annotations are not evaluated.
    """
    import __future__

    flags = __future__.annotations.compiler_flag if postponed else 0
    try:
        code = compile(text, f"<{name}>", "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise FunctionError(
            f"The function {name!r} does not compile outside its module: {error}."
        ) from error
    early = _loaded_names(code)
    return early, early.union(*(_loaded_names(part) for part in _nested_code(code)))


def has_postponed_annotations(func: FunctionType) -> bool:
    """Return True if `func` was compiled under `from __future__ import annotations`."""
    import __future__

    return bool(func.__code__.co_flags & __future__.annotations.compiler_flag)


def _dedent(text: str) -> str:
    """Return `text` without the indentation of its first line. Strings keep theirs."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    while text and not text.partition("\n")[0].strip():
        text = text.partition("\n")[2]
    margin = text[: len(text) - len(text.lstrip(" \t"))]
    if not margin:
        return text
    inside = {
        line
        for node in ast.walk(ast.parse("if True:\n" + text))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for line in range(node.lineno - 1, (node.end_lineno or node.lineno) - 1)
    }
    lines = text.split("\n")
    return "\n".join(
        line if i in inside else line.removeprefix(margin) for i, line in enumerate(lines)
    )


def _nested_code(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested_code(constant)


def _loaded_names(code: CodeType) -> set[str]:
    """Return the names that `code`, without nested code, needs from its module or the builtins."""
    loads: set[str] = set()
    stores: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"):
            loads.add(step.argval)
        elif step.opname == "STORE_NAME":
            stores.add(step.argval)
    return loads - stores
