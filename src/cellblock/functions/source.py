"""The source of one function: read, freed from its surroundings, and searched for what it needs from them.

Nothing here runs the function's code: text is parsed and compiled, and the compiled code is looked at.
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


def parse_function(text: str) -> tuple[Definition | None, str]:
    """Give the one function that `text` defines (None: it is not exactly one), and the text, not indented.

    Text that does not compile raises `SyntaxError` or `ValueError`.
    """
    text = _dedent(text)
    tree = ast.parse(text)
    # Compiling finds what parsing does not, such as a parameter named twice.
    compile(tree, "<function>", "exec", dont_inherit=True)
    match tree.body:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as node]:
            return node, text
        case _:
            return None, text


def read_function(
    func: FunctionType, is_ours: Callable[[ast.expr], bool]
) -> tuple[Definition, str]:
    """Give the definition of `func` and its text, without the decorators that are ours."""
    name = func.__qualname__
    try:
        text = _dedent(inspect.getsource(func))
        body = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise FunctionError(
            f"The source of {name!r} cannot be read: {error}. "
            "Define it in a file, or give its text with FunctionWithRequirements.from_str."
        ) from error
    node = body[0] if len(body) == 1 else None
    if not isinstance(node, Definition) or node.name != func.__code__.co_name:
        raise FunctionError(
            f"The source found for {name!r} is not its own. Was its file changed meanwhile?"
        )
    node.decorator_list = [item for item in node.decorator_list if not is_ours(item)]
    return node, text


def definition_text(node: Definition, text: str) -> str:
    """Give the function's source with the decorators that `node` has left."""
    decorators = [f"@{ast.unparse(item)}" for item in node.decorator_list]
    return "\n".join([*decorators, *text.split("\n")[node.lineno - 1 :]]).rstrip()


def stub(node: Definition) -> str:
    """Give the signature as it is written, the docstring and `...`."""
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
    """Give the names that `text` takes from its module or the builtins: while it is defined, and in all.

    `postponed` says that annotations are not evaluated.
    """
    import __future__

    flags = __future__.annotations.compiler_flag if postponed else 0
    try:
        code = compile(text, f"<{name}>", "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise FunctionError(f"The function {name!r} cannot stand alone: {error}.") from error
    early = _loaded(code)
    return early, early.union(*(_loaded(part) for part in _nested(code)))


def has_postponed_annotations(func: FunctionType) -> bool:
    """Tell whether `func` was compiled under `from __future__ import annotations`."""
    import __future__

    return bool(func.__code__.co_flags & __future__.annotations.compiler_flag)


def _dedent(text: str) -> str:
    """Give `text` without its first line's indentation. Lines inside a string keep theirs: it is content."""
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


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)


def _loaded(code: CodeType) -> set[str]:
    """Give the names that this code, the code nested in it aside, takes from its module or the builtins."""
    loads: set[str] = set()
    stores: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"):
            loads.add(step.argval)
        elif step.opname == "STORE_NAME":
            stores.add(step.argval)
    return loads - stores
