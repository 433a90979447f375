"""Import AutoGen's modules from the table."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Sequence
from enum import Enum
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .modules import CONSTANTS, TOP_MODULES
from .names import (
    NotOffered,
    all_modules,
    explain_missing,
    offered_names,
    public_names,
    submodules,
)

_PREFIX = f"{__name__.rpartition('.')[0]}."  # `from cellblock.compat import autogen`


class Coverage(Enum):
    """Which of AutoGen's top modules are imported from the table."""

    NONE = "none"
    MISSING = "those that are not installed"
    ALL = "all"


class CompatModule(ModuleType):
    """A module of AutoGen. Its objects are ours, and are imported when they are used."""

    def __init__(self, name: str, autogen_name: str) -> None:
        super().__init__(name, f"The names of AutoGen's module {autogen_name}, as Cellblock's.")
        self._autogen_name = autogen_name
        self.__all__ = public_names(autogen_name)
        vars(self).update(CONSTANTS.get(autogen_name, {}))

    def __getattr__(self, name: str) -> Any:
        module = self._autogen_name
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if name in submodules(module):
            return import_module(f"{self.__name__}.{name}")
        if (target := offered_names(module).get(name)) is None:
            raise AttributeError(explain_missing(f"{module}.{name}"))
        value = target.load()
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})

    def __repr__(self) -> str:
        return f"<module {self.__name__!r} of Cellblock>"


class CompatFinder(MetaPathFinder, Loader):
    """Find the modules of AutoGen that `coverage` includes.

    They are always found below `cellblock.compat`.
    """

    def __init__(self) -> None:
        self.coverage = Coverage.NONE

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module of the table.

        Raise `NotOffered` if its parent is one of Cellblock's, and the module is not offered.
        """
        name = fullname.removeprefix(_PREFIX)
        top = name.partition(".")[0]
        if top not in TOP_MODULES:
            return None
        parent = fullname.rpartition(".")[0]
        if fullname == top:
            if not self._covers(top):
                return None
        elif name != top and not isinstance(sys.modules.get(parent), CompatModule):
            return None
        if name not in all_modules():
            raise NotOffered(explain_missing(name), name=fullname)
        return ModuleSpec(fullname, self, origin="cellblock.compat", is_package=True)

    def create_module(self, spec: ModuleSpec) -> CompatModule:
        """Return a new module of the table."""
        return CompatModule(spec.name, spec.name.removeprefix(_PREFIX))

    def exec_module(self, module: ModuleType) -> None:
        """Import what scripts expect to be there after the module, which itself is complete."""
        if module.__name__ == "autogen_core":
            with contextlib.suppress(ImportError):
                import_module("PIL.Image")  # as AutoGen does: `import PIL` has it then

    def _covers(self, top: str) -> bool:
        if self.coverage is not Coverage.MISSING:
            return self.coverage is Coverage.ALL
        if not self._is_installed(top):
            return True
        _warn_about_installed(top)
        return False

    def _is_installed(self, top: str) -> bool:
        """Return True if another finder has the module. A folder without code does not count."""
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(top, None)) is not None:
                return spec.origin is not None
        return False


_FINDER = CompatFinder()


def install(*, force: bool = False) -> None:
    """Make `import autogen`, `autogen_core`, `autogen_ext` and `autogen_agentchat` import ours.

    An installed AutoGen stays, with a warning when it is imported. `force` replaces it; modules
    that are imported already keep what they have.
    """
    _FINDER.coverage = Coverage.ALL if force else Coverage.MISSING
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if force:
        _forget_modules(ours=False)
        return
    for top in TOP_MODULES:
        if top in sys.modules and not isinstance(sys.modules[top], CompatModule):
            _warn_about_installed(top)


def uninstall() -> None:
    """Undo `install`. `from cellblock.compat import autogen` still works."""
    _FINDER.coverage = Coverage.NONE
    _forget_modules(ours=True)


def _forget_modules(*, ours: bool) -> None:
    """Forget the imported modules of AutoGen: ours, or those of an installed AutoGen."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in TOP_MODULES and isinstance(module, CompatModule) is ours:
            del sys.modules[name]


def _warn_about_installed(top: str) -> None:
    warnings.warn(
        f"{top} is installed, and stays in place: its code runs without Cellblock. "
        "To replace it, call cellblock.compat.install(force=True).",
        stacklevel=3,
    )
