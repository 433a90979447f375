"""Functions that blocks may import: their source, what they need, and how a prompt shows them.

Only source text travels to the blocks, so a function must stand alone: what it needs and its module would not
have is found here, when the module is made, and refused by name. No function's code is run to find it out.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from types import FunctionType, ModuleType
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, cast

from ..errors import FunctionError
from .imports import (
    POSTPONED_ANNOTATIONS,
    Alias,
    Import,
    ImportFromModule,
    bindings,
    from_json,
    render,
    to_json,
)
from .source import (
    Definition,
    definition_text,
    has_postponed_annotations,
    names_needed,
    parse_function,
    read_function,
    stub,
)

__all__ = [
    "FUNCTION_PROMPT_TEMPLATE",
    "Alias",
    "Function",
    "FunctionModule",
    "FunctionWithRequirements",
    "FunctionWithRequirementsStr",
    "Import",
    "ImportFromModule",
    "with_requirements",
]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")

FUNCTION_PROMPT_TEMPLATE = """\
You have access to the following user defined functions. \
They can be accessed from the module called `$module_name` by their function names.

For example, if there was a function called `foo` \
you could import it by writing `from $module_name import foo`

$functions"""

# What every module has by itself, beside the builtins.
_MODULE_NAMES = frozenset(
    "__annotations__ __builtins__ __debug__ __doc__ __file__ __loader__ __name__ __package__ __spec__".split()
)


@dataclass(eq=False)
class FunctionWithRequirements(Generic[T, P]):
    """A function, the packages it needs, and the imports that must stand above it.

    Calling it calls the function.
    """

    func: Callable[P, T]
    python_packages: Sequence[str] = ()
    global_imports: Sequence[Import] = ()

    def __post_init__(self) -> None:
        self.python_packages = _packages(self.python_packages)
        self.global_imports = _imports(self.global_imports)
        # Without its __dict__: that of another FunctionWithRequirements would replace our own fields.
        functools.update_wrapper(self, self.func, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.func(*args, **kwargs)

    @classmethod
    def from_callable(
        cls,
        func: Callable[Q, R],
        python_packages: Sequence[str] = (),
        global_imports: Sequence[Import] = (),
    ) -> FunctionWithRequirements[R, Q]:
        """Give `func` with what it needs."""
        return FunctionWithRequirements(func, python_packages, global_imports)

    @staticmethod
    def from_str(
        func: str, python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
    ) -> FunctionWithRequirementsStr:
        """Give the one function whose source is `func`, with what it needs. It is not run."""
        return FunctionWithRequirementsStr(func, python_packages, global_imports)


@dataclass(eq=False)
class FunctionWithRequirementsStr:
    """The source of exactly one function, the packages it needs, and the imports that must stand above it.

    The text is compiled when this is made, never run; `FunctionError` (a `ValueError`) says what is wrong.
    """

    func: str
    python_packages: Sequence[str] = ()
    global_imports: Sequence[Import] = ()

    def __post_init__(self) -> None:
        self.python_packages = _packages(self.python_packages)
        self.global_imports = _imports(self.global_imports)
        _entry_of_text(self)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            "String based function with requirement objects are not directly callable"
        )


Function = Callable[..., Any] | FunctionWithRequirementsStr


def with_requirements(
    python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
) -> Callable[[Callable[P, T]], FunctionWithRequirements[T, P]]:
    """Decorate a function with the packages and imports that it needs where blocks run.

    The imports stand at the top of the module that blocks import the function from.
    """
    packages, imports = _packages(python_packages), _imports(global_imports)

    def decorate(func: Callable[P, T]) -> FunctionWithRequirements[T, P]:
        return FunctionWithRequirements(func, packages, imports)

    return decorate


class FunctionModule:
    """The module that blocks import the given functions from.

    functions     the functions as given
    module_name   its name in `from module_name import ...`
    names         the functions' names
    source        its text; empty without functions
    packages      the requirements of all functions, each once, in the order given

    Making it raises `FunctionError` (a `ValueError`) for a function that cannot stand in it, with the reason:
    a lambda, builtin, method, partial or class; no source; a name it needs that the module does not have.
    """

    def __init__(self, functions: Sequence[Function] = (), module_name: str = "functions") -> None:
        if not str(module_name).isidentifier() or keyword.iskeyword(module_name):
            raise ValueError("Module name must be a valid Python identifier")
        self.functions = tuple(functions)
        self.module_name = module_name
        self._entries = [_entry(function) for function in self.functions]
        self.names = tuple(entry.node.name for entry in self._entries)
        self.packages = tuple(
            dict.fromkeys(name for entry in self._entries for name in entry.packages)
        )
        lines = dict.fromkeys(render(item) for entry in self._entries for item in entry.imports)
        # Python allows a future import nowhere but first.
        imports = sorted(lines, key=lambda line: not line.startswith("from __future__"))
        _check(self._entries, imports, module_name)
        parts = ["\n".join(imports), *(entry.text for entry in self._entries)]
        self.source = "\n\n\n".join(part for part in parts if part) + "\n" if self._entries else ""

    def stubs(self) -> str:
        """Give each function's signature and docstring, as a prompt shows them."""
        return "\n\n".join(stub(entry.node) for entry in self._entries)

    def format_for_prompt(self, template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Tell a model about the functions: `template` with `$module_name` and `$functions` filled in."""
        return Template(template).substitute(module_name=self.module_name, functions=self.stubs())

    def to_list(self) -> list[dict[str, object]]:
        """Give the functions as JSON values: source, packages and imports of each."""
        return [
            {
                "source": entry.text,
                "python_packages": list(entry.packages),
                "global_imports": [to_json(item) for item in entry.imports],
            }
            for entry in self._entries
        ]

    @classmethod
    def from_list(cls, items: Sequence[object], module_name: str = "functions") -> FunctionModule:
        """Make a module from `to_list`'s values. Its functions are `FunctionWithRequirementsStr`."""
        return cls([_from_json(item) for item in items], module_name)


@dataclass(frozen=True)
class _Entry:
    """One function as it will stand in the module.

    `scope` and `free` are the names around it where it was written: its module's, and a function's around it.
    """

    node: Definition
    text: str
    packages: tuple[str, ...] = ()
    imports: tuple[Import, ...] = ()
    scope: Mapping[str, object] = field(default_factory=dict[str, object])
    free: tuple[str, ...] = ()


def _packages(values: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(cast(object, values), list | tuple):
        raise FunctionError(f"python_packages must be a list of requirements, not {values!r}.")
    for value in values:
        # An installer would take a leading dash for one of its options.
        if (
            not isinstance(cast(object, value), str)
            or not value.isprintable()
            or value[:1] in ("", "-", " ")
        ):
            raise FunctionError(
                f"{value!r} in python_packages is not a requirement such as 'pandas>=2'."
            )
    return tuple(values)


def _imports(values: Sequence[Import]) -> tuple[Import, ...]:
    if not isinstance(cast(object, values), list | tuple):
        raise FunctionError(f"global_imports must be a list of imports, not {values!r}.")
    for value in values:
        bindings(render(value))
    return tuple(values)


def _entry(item: object) -> _Entry:
    """Read one of the functions given, through all its wrappers."""
    packages: list[str] = []
    imports: list[Import] = []
    wrappers: list[object] = []
    while not isinstance(item, FunctionWithRequirementsStr):
        if isinstance(item, FunctionWithRequirements):
            function = cast(FunctionWithRequirements[Any, ...], item)
            packages += function.python_packages
            imports += function.global_imports
            item = function.func
            continue
        if reason := _why_not(item):
            raise FunctionError(f"{_name(item)!r} cannot be given to blocks: {reason}.")
        if not hasattr(item, "__wrapped__"):
            break
        wrappers.append(item)
        item = cast(Any, item).__wrapped__
    if isinstance(item, FunctionWithRequirementsStr):
        entry = _entry_of_text(item)
    else:
        entry = _entry_of_function(cast(FunctionType, item), wrappers)
    return replace(entry, packages=(*packages, *entry.packages), imports=(*imports, *entry.imports))


def _why_not(item: object) -> str | None:
    """Say why no function can be read from `item`; None when one can."""
    if isinstance(item, str):
        return "it is text; use FunctionWithRequirements.from_str"
    if isinstance(item, functools.partial):
        return "it is a partial; write a function that makes the call"
    if inspect.isclass(item):
        return "it is a class; write a function that makes or uses it"
    if inspect.isbuiltin(item):
        return "it is built in and has no source; blocks can import it themselves"
    outer = _name(item).rpartition(".")[0]
    if inspect.ismethod(item) or (
        inspect.isfunction(item) and outer and not outer.endswith("<locals>")
    ):
        return "it is a method; write a function outside the class"
    if hasattr(item, "__wrapped__"):
        return None
    if not inspect.isfunction(item):
        return (
            f"it is of type {type(item).__name__!r}, not a function; write a function that calls it"
        )
    if item.__code__.co_name == "<lambda>":
        return "it is a lambda; give it a name with def"
    return None


def _name(item: object) -> str:
    return getattr(item, "__qualname__", None) or repr(item)


def _entry_of_function(func: FunctionType, wrappers: Sequence[object]) -> _Entry:
    node, text = read_function(func, lambda decorator: _is_ours(decorator, func))
    if len(wrappers) > len(node.decorator_list):
        raise FunctionError(
            f"{func.__qualname__!r} is wrapped by a {type(wrappers[0]).__name__} that its source does not "
            "show: write the wrapper as a decorator, or give the function itself."
        )
    # Postponed annotations may name things that exist nowhere: the module must postpone them too.
    imports = (POSTPONED_ANNOTATIONS,) if has_postponed_annotations(func) else ()
    free = func.__code__.co_freevars
    return _Entry(
        node, definition_text(node, text), imports=imports, scope=func.__globals__, free=free
    )


def _is_ours(decorator: ast.expr, func: FunctionType) -> bool:
    called = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return (
        called.rpartition(".")[2] == "with_requirements"
        or func.__globals__.get(called) is with_requirements
    )


def _entry_of_text(item: FunctionWithRequirementsStr) -> _Entry:
    if not isinstance(cast(object, item.func), str):
        raise FunctionError(f"A function's text must be a str, not {item.func!r:.200}.")
    try:
        node, text = parse_function(item.func)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FunctionError(f"Could not compile function: {error}") from error
    if node is None:
        raise FunctionError("The string must contain exactly one function")
    return _Entry(
        node, definition_text(node, text), tuple(item.python_packages), tuple(item.global_imports)
    )


def _check(entries: Sequence[_Entry], imports: Sequence[str], module_name: str) -> None:
    """Raise `FunctionError` where the functions cannot work in one module under `imports`."""
    bound: dict[str, str] = {}
    for line in imports:
        for name, target in bindings(line).items():
            if target.split(".")[0] == module_name:
                raise FunctionError(
                    f"The module {module_name!r} would import itself: {line!r}. Rename it."
                )
            if name != "*" and bound.get(name, target) != target:
                raise FunctionError(
                    f"Two imports give {name!r}: {bound[name]} and {target}. Use an Alias."
                )
            bound[name] = target
    defined: list[str] = []
    for entry in entries:
        if entry.node.name in defined or entry.node.name in bound:
            raise FunctionError(
                f"The name {entry.node.name!r} is given twice: rename the function."
            )
        defined.append(entry.node.name)
    postponed = render(POSTPONED_ANNOTATIONS) in imports
    for position, entry in enumerate(entries):
        early, needed = names_needed(entry.node.name, entry.text, postponed=postponed)
        for name in sorted(early.intersection(defined[position + 1 :])):
            raise FunctionError(
                f"{entry.node.name!r} needs {name!r} to be defined: give {name!r} before it."
            )
        if "*" not in bound:
            _check_names(entry, needed - {*bound, *defined, *_MODULE_NAMES})


def _check_names(entry: _Entry, needed: set[str]) -> None:
    # A builtin's name that means something else where the function was written is not the builtin.
    missing = sorted(needed - (set(dir(builtins)) - {*entry.scope, *entry.free}))
    if missing:
        raise FunctionError(
            f"The function {entry.node.name!r} cannot be given to blocks: it needs "
            f"{', '.join(_describe(name, entry) for name in missing)}. "
            "Name it in global_imports, give it as a function as well, or define it inside the function."
        )


def _describe(name: str, entry: _Entry) -> str:
    """Say what the missing `name` is, as the function's author knows it."""
    decorators = [node for item in entry.node.decorator_list for node in ast.walk(item)]
    if any(isinstance(node, ast.Name) and node.id == name for node in decorators):
        return f"{name!r} of its decorator"
    if name in entry.free:
        return f"{name!r} of the function around it"
    match entry.scope.get(name):
        case ModuleType() as module:
            return f"the module {module.__name__!r} as {name!r}"
        case type():
            return f"the class {name!r}"
        case _:
            return f"the name {name!r}"


def _from_json(item: object) -> FunctionWithRequirementsStr:
    keys = {"source", "python_packages", "global_imports"}
    if not isinstance(item, Mapping) or set(cast(Mapping[object, object], item)) != keys:
        raise FunctionError(
            f"A saved function must be an object of {', '.join(sorted(keys))}, not {item!r:.200}."
        )
    values = cast(Mapping[str, Any], item)
    imports = values["global_imports"]
    if not isinstance(imports, list):
        raise FunctionError(
            f"global_imports of a saved function must be a list, not {imports!r:.200}."
        )
    saved = [from_json(value) for value in cast(list[object], imports)]
    return FunctionWithRequirementsStr(values["source"], values["python_packages"], saved)
