"""The module of functions that blocks can import.

Blocks receive only the source of a function, so it must not depend on its original module. Missing
names are found and reported here, when the module is created. No function is run for this.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from types import FunctionType, ModuleType
from typing import Any, cast

from ..errors import FunctionError
from .imports import (
    POSTPONED_ANNOTATIONS,
    Alias,
    Import,
    ImportFromModule,
    bound_names,
    from_json,
    import_line,
    to_json,
)
from .requirements import (
    Function,
    FunctionWithRequirements,
    FunctionWithRequirementsStr,
    as_own_class,
    with_requirements,
)
from .source import (
    Definition,
    definition_text,
    has_postponed_annotations,
    names_needed,
    read_function,
    require_function,
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

FUNCTION_PROMPT_TEMPLATE = """\
You have access to the following user defined functions. \
They can be accessed from the module called `$module_name` by their function names.

For example, if there was a function called `foo` \
you could import it by writing `from $module_name import foo`

$functions"""

# Names that every module has, in addition to the builtins.
_MODULE_NAMES = frozenset(
    "__annotations__ __builtins__ __debug__ __doc__ __file__ __loader__ __name__ __package__ "
    "__spec__".split()
)


class FunctionModule:
    """The module from which blocks import the given functions.

    functions     the functions as passed by the caller
    module_name   name of the module in `from module_name import ...`
    names         names of the functions
    source        source of the module; "" without functions
    packages      requirements of all functions, without duplicates, in the given order

    Raise `FunctionError` (a `ValueError`) for a function that blocks could not import: a lambda,
    builtin, method, partial or class; a function without source; a function that needs a name which
    the module does not have.
    """

    def __init__(self, functions: Sequence[Function] = (), module_name: str = "functions") -> None:
        if not str(module_name).isidentifier() or keyword.iskeyword(module_name):
            raise ValueError("Module name must be a valid Python identifier")
        if not isinstance(cast(object, functions), Sequence) or isinstance(functions, str):
            raise FunctionError(
                f"functions must be a list of functions, such as [add], not {functions!r:.100}."
            )
        self.functions = tuple(functions)
        self.module_name = module_name
        self._functions = [_resolve_function(function) for function in self.functions]
        self.names = tuple(entry.node.name for entry in self._functions)
        self.packages = tuple(
            dict.fromkeys(name for entry in self._functions for name in entry.packages)
        )
        lines = dict.fromkeys(
            import_line(item) for entry in self._functions for item in entry.imports
        )
        # Python requires future imports at the top.
        imports = sorted(lines, key=lambda line: not line.startswith("from __future__"))
        _check_module(self._functions, imports, module_name)
        parts = ["\n".join(imports), *(entry.text for entry in self._functions)]
        self.source = (
            "\n\n\n".join(part for part in parts if part) + "\n" if self._functions else ""
        )

    def stubs(self) -> str:
        """Return the signature and docstring of each function, for a prompt."""
        return "\n\n".join(stub(entry.node) for entry in self._functions)

    def format_for_prompt(self, template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Return `template` with `$module_name` and `$functions` filled in."""
        return Template(template).substitute(module_name=self.module_name, functions=self.stubs())

    def to_list(self) -> list[dict[str, object]]:
        """Return the functions as JSON values: source, packages and imports of each."""
        return [
            {
                "source": entry.text,
                "python_packages": list(entry.packages),
                "global_imports": [to_json(item) for item in entry.imports],
            }
            for entry in self._functions
        ]

    @classmethod
    def from_list(cls, items: Sequence[object], module_name: str = "functions") -> FunctionModule:
        """Return the module that `to_list` returned as `items`.

        Its functions are `FunctionWithRequirementsStr` objects.
        """
        return cls([_from_json(item) for item in items], module_name)


@dataclass(frozen=True)
class _ModuleFunction:
    """One function of the module.

    module_globals    the globals of the module where the function was defined
    enclosing_names   the variables that it uses from a function around it
    """

    node: Definition
    text: str
    packages: tuple[str, ...] = ()
    imports: tuple[Import, ...] = ()
    module_globals: Mapping[str, object] = field(default_factory=dict[str, object])
    enclosing_names: tuple[str, ...] = ()


def _resolve_function(item: object) -> _ModuleFunction:
    """Read one of the given functions, under all its wrappers."""
    packages: list[str] = []
    imports: list[Import] = []
    wrappers: list[object] = []
    while not isinstance(item := as_own_class(item), FunctionWithRequirementsStr):
        if isinstance(item, FunctionWithRequirements):
            function = cast(FunctionWithRequirements[Any, ...], item)
            packages += function.python_packages
            imports += function.global_imports
            item = function.func
            continue
        if reason := _rejection_reason(item):
            raise FunctionError(f"{_display_name(item)!r} cannot be given to blocks: {reason}.")
        if not hasattr(item, "__wrapped__"):
            break
        wrappers.append(item)
        item = cast(Any, item).__wrapped__
    if isinstance(item, FunctionWithRequirementsStr):
        entry = _parse_text(item)
    else:
        entry = _read_callable(cast(FunctionType, item), wrappers)
    return replace(entry, packages=(*packages, *entry.packages), imports=(*imports, *entry.imports))


def _rejection_reason(item: object) -> str | None:
    """Return why `item` cannot be used as a function; None if it can."""
    if isinstance(item, str):
        return "it is a string; use FunctionWithRequirements.from_str"
    if isinstance(item, functools.partial):
        return "it is a partial; write a function that makes the call"
    if inspect.isclass(item):
        return "it is a class; write a function that creates or uses it"
    if inspect.isbuiltin(item):
        return "it is built in and has no source; blocks can import it themselves"
    outer = _display_name(item).rpartition(".")[0]
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


def _display_name(item: object) -> str:
    return getattr(item, "__qualname__", None) or repr(item)


def _read_callable(func: FunctionType, wrappers: Sequence[object]) -> _ModuleFunction:
    node, text = read_function(func, lambda decorator: _is_with_requirements(decorator, func))
    if len(wrappers) > len(node.decorator_list):
        raise FunctionError(
            f"{func.__qualname__!r} is wrapped by a {type(wrappers[0]).__name__} that is not in "
            "its source. Write the wrapper as a decorator, or pass the function itself."
        )
    # Postponed annotations may use names that do not exist: the module must postpone them too.
    imports = (POSTPONED_ANNOTATIONS,) if has_postponed_annotations(func) else ()
    free = func.__code__.co_freevars
    return _ModuleFunction(
        node,
        definition_text(node, text),
        imports=imports,
        module_globals=func.__globals__,
        enclosing_names=free,
    )


def _is_with_requirements(decorator: ast.expr, func: FunctionType) -> bool:
    called = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return (
        called.rpartition(".")[2] == "with_requirements"
        or getattr(func.__globals__.get(called), "__name__", None) == "with_requirements"
    )


def _parse_text(item: FunctionWithRequirementsStr) -> _ModuleFunction:
    node, text = require_function(item.func)
    return _ModuleFunction(
        node, definition_text(node, text), tuple(item.python_packages), tuple(item.global_imports)
    )


def _check_module(
    entries: Sequence[_ModuleFunction], imports: Sequence[str], module_name: str
) -> None:
    """Raise `FunctionError` where the functions cannot work in one module under `imports`."""
    bound: dict[str, str] = {}
    for line in imports:
        for name, target in bound_names(line).items():
            if target.split(".")[0] == module_name:
                raise FunctionError(
                    f"The module {module_name!r} would import itself with {line!r}. "
                    "Choose another module name."
                )
            if name != "*" and bound.get(name, target) != target:
                raise FunctionError(
                    f"Two imports bind {name!r}: {bound[name]} and {target}. Use an Alias."
                )
            bound[name] = target
    defined: list[str] = []
    for entry in entries:
        if entry.node.name in defined or entry.node.name in bound:
            raise FunctionError(
                f"The name {entry.node.name!r} is defined twice. Rename the function."
            )
        defined.append(entry.node.name)
    postponed = import_line(POSTPONED_ANNOTATIONS) in imports
    for position, entry in enumerate(entries):
        early, needed = names_needed(entry.node.name, entry.text, postponed=postponed)
        for name in sorted(early.intersection(defined[position + 1 :])):
            raise FunctionError(
                f"{entry.node.name!r} needs {name!r} when it is defined. "
                f"Pass {name!r} before {entry.node.name!r}."
            )
        if "*" not in bound:
            _check_missing_names(entry, needed - {*bound, *defined, *_MODULE_NAMES})


def _check_missing_names(entry: _ModuleFunction, needed: set[str]) -> None:
    # The function's own module may have redefined the name of a builtin.
    missing = sorted(
        needed - (set(dir(builtins)) - {*entry.module_globals, *entry.enclosing_names})
    )
    if missing:
        raise FunctionError(
            f"The function {entry.node.name!r} cannot be given to blocks: it needs "
            f"{', '.join(_describe_name(name, entry) for name in missing)}. "
            "Add it to global_imports, pass it as a function too, or define it inside the function."
        )


def _describe_name(name: str, entry: _ModuleFunction) -> str:
    """Return what the missing `name` is where the function was defined."""
    decorators = [node for item in entry.node.decorator_list for node in ast.walk(item)]
    if any(isinstance(node, ast.Name) and node.id == name for node in decorators):
        return f"{name!r} of its decorator"
    if name in entry.enclosing_names:
        return f"{name!r} of the function around it"
    match entry.module_globals.get(name):
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
            f"A saved function must have the keys {', '.join(sorted(keys))}, not {item!r:.200}."
        )
    values = cast(Mapping[str, Any], item)
    imports = values["global_imports"]
    if not isinstance(imports, list):
        raise FunctionError(
            f"global_imports of a saved function must be a list, not {imports!r:.200}."
        )
    saved = [from_json(value) for value in cast(list[object], imports)]
    return FunctionWithRequirementsStr(values["source"], values["python_packages"], saved)
