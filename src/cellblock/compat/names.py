"""Look up AutoGen's names: what each is here, or the nearest thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any

from ..errors import CellblockError
from .modules import CONSTANTS, TABLE, TOP_MODULES
from .not_offered import ADVICE

_PACKAGE = __name__.partition(".")[0]


class NotOffered(CellblockError, ImportError):
    """A module or name of AutoGen is not offered. The message names the nearest thing."""


@dataclass(frozen=True)
class Target:
    """Where a name of AutoGen is found here."""

    module: str
    name: str

    def load(self) -> Any:
        """Import the module, and return the object."""
        return getattr(import_module(self.module), self.name)


@cache
def offered_names(module: str) -> dict[str, Target]:
    """Return the names of a module of AutoGen that are objects here."""
    return dict(_targets(module))


def _targets(module: str) -> Iterator[tuple[str, Target]]:
    for ours, names in TABLE.get(module, {}).items():
        path = f"{_PACKAGE}.{ours}" if ours else _PACKAGE
        for entry in names.split():
            old, _, new = entry.partition("=")
            yield old, Target(path, new or old)


@cache
def all_modules() -> frozenset[str]:
    """Return the modules that can be imported: those of the table, and their parents."""
    known = [*TABLE, *(name.rpartition(".")[0] for name in ADVICE)]
    parents = {
        ".".join(parts[:end])
        for parts in (name.split(".") for name in known)
        for end in range(1, len(parts) + 1)
    }
    return frozenset({*TABLE, *TOP_MODULES, *(name for name in parents if advice(name) is None)})


def submodules(module: str) -> list[str]:
    """Return the last parts of the names of the modules in `module`."""
    prefix = f"{module}."
    rests = (name.removeprefix(prefix) for name in all_modules() if name.startswith(prefix))
    return sorted(rest for rest in rests if "." not in rest)


def public_names(module: str) -> list[str]:
    """Return all names of a module: objects, texts and modules."""
    texts = [name for name in CONSTANTS.get(module, {}) if not name.startswith("__")]
    return sorted({*offered_names(module), *texts, *submodules(module)})


def advice(name: str) -> str | None:
    """Return what to do instead of a name that AutoGen has and Cellblock does not."""
    while name:
        if name in ADVICE:
            return ADVICE[name]
        name = name.rpartition(".")[0]
    return None


def explain_missing(name: str) -> str:
    """Return the message about a full name that is not offered, with the nearest thing."""
    problem = f"Cellblock does not offer {name}."
    if (instead := advice(name)) is not None:
        return f"{problem} {instead}"
    if (nearest := nearest_name(name)) is not None:
        return f"{problem} The nearest is {nearest}."
    return f"{problem} `cellblock compat check` lists what a script needs."


def nearest_name(name: str) -> str | None:
    """Return the full name that is offered and most like `name`.

    The same name in another module comes first, then a similar name in the same module.
    """
    module, _, last = name.rpartition(".")
    top = module.partition(".")[0]
    same = [other for other in _modules_with(last) if other != module]
    same.sort(key=lambda other: (_distance(other, top), "._" in other, other.count("."), other))
    if same:
        return f"{same[0]}.{last}"
    for names in (public_names(module), _all_names(top), _all_names("autogen")):
        if close := get_close_matches(last, names, 1, 0.75):
            other = module if close[0] in public_names(module) else _modules_with(close[0])[0]
            return f"{other}.{close[0]}"
    return None


def _distance(module: str, top: str) -> int:
    """Return 0 for a module in `top`, 1 for one of the same version of AutoGen, 2 for others."""
    other = module.partition(".")[0]
    return 0 if other == top else 1 + ((other == TOP_MODULES[0]) != (top == TOP_MODULES[0]))


def _modules_with(name: str) -> list[str]:
    return [module for module in TABLE if name in public_names(module)]


def _all_names(top: str) -> list[str]:
    modules = [module for module in TABLE if module.partition(".")[0] == top]
    return sorted({name for module in modules for name in public_names(module)})
