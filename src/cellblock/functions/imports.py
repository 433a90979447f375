"""The imports at the top of a function module: as values, as source lines and as JSON."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..errors import FunctionError


@dataclass(frozen=True)
class Alias:
    """`name as alias`, in an import."""

    name: str
    alias: str


@dataclass(frozen=True)
class ImportFromModule:
    """`from module import imports`. A single name or `Alias` stands for a list of it."""

    module: str
    imports: Sequence[str | Alias]

    def __init__(self, module: str, imports: Sequence[str | Alias] | Alias) -> None:
        names = (imports,) if isinstance(imports, str | Alias) else tuple(imports)
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "imports", names)


Import = str | ImportFromModule | Alias
POSTPONED_ANNOTATIONS = ImportFromModule("__future__", ("annotations",))


def to_import(item: object) -> Import:
    """Return an import as Cellblock's object. AutoGen's classes are recognised by their attributes.

    Raise `FunctionError` if it is not an import.
    """
    match item:
        case str() | Alias() | ImportFromModule():
            return item
        case _ if hasattr(item, "name") and hasattr(item, "alias"):
            found = cast(Any, item)
            return Alias(found.name, found.alias)
        case _ if hasattr(item, "module") and hasattr(item, "imports"):
            found = cast(Any, item)
            return ImportFromModule(found.module, _to_names(found.imports))
        case _:
            raise FunctionError(
                f"{item!r} in global_imports is not a name, an Alias or an ImportFromModule."
            )


def import_line(item: Import) -> str:
    """Return the import as a line of source."""
    match item:
        case str() as name:
            return f"import {name}"
        case Alias(name, alias):
            return f"import {name} as {alias}"
        case ImportFromModule(module, names):
            parts = [
                f"{name.name} as {name.alias}" if isinstance(name, Alias) else name
                for name in names
            ]
            return f"from {module} import {', '.join(parts)}"


def bound_names(line: str) -> dict[str, str]:
    """Return the names that an import line binds, each with the full name of its target.

    Raise `FunctionError` if the line is not exactly one absolute import.
    """
    try:
        body = ast.parse(line).body
    except (SyntaxError, ValueError) as error:
        raise FunctionError(f"{line!r}, from global_imports, is not an import: {error}.") from error
    match body:
        case [ast.Import(names=names)]:
            return dict(_bound_by_import(name) for name in names)
        case [ast.ImportFrom(module=str(module), names=names, level=0)]:
            return {name.asname or name.name: f"{module}.{name.name}" for name in names}
        case _:
            raise FunctionError(f"{line!r}, from global_imports, is not one absolute import.")


def _bound_by_import(name: ast.alias) -> tuple[str, str]:
    # `import a.b as c` binds c to a.b, but `import a.b` binds a.
    root = name.name.partition(".")[0]
    return (name.asname, name.name) if name.asname else (root, root)


def to_json(item: Import) -> object:
    """Return the import as a JSON value."""
    match item:
        case str():
            return item
        case Alias():
            return {"name": item.name, "alias": item.alias}
        case ImportFromModule():
            return {"module": item.module, "imports": [to_json(name) for name in item.imports]}


def from_json(item: Any) -> Import:
    """Return the import that `to_json` returned as `item`."""
    match item:
        case str():
            return item
        case {"name": str(name), "alias": str(alias)} if len(item) == 2:
            return Alias(name, alias)
        case {"module": str(module), "imports": [*names]} if len(item) == 2:
            return ImportFromModule(module, [_require_name(from_json(name)) for name in names])
        case _:
            raise FunctionError(f"{item!r:.200} is not a saved import.")


def _to_names(values: object) -> list[str | Alias]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise FunctionError(f"ImportFromModule.imports must be a list of names, not {values!r}.")
    return [_require_name(to_import(value)) for value in cast(Sequence[object], values)]


def _require_name(item: Import) -> str | Alias:
    if isinstance(item, ImportFromModule):
        raise FunctionError(f"{item!r:.200} is an import inside an import.")
    return item
