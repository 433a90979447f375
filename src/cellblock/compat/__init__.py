"""AutoGen's module names, mapped onto ours: scripts for AutoGen 0.2 and 0.7 run as they are.

Importing this package installs the names. It never replaces an installed AutoGen:
`install(force=True)` does. `from cellblock.compat import autogen` works in any case.
`python -m cellblock.compat script.py` runs a script.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .finder import install, uninstall
from .names import NotOffered

if TYPE_CHECKING:
    autogen: Any
    autogen_agentchat: Any
    autogen_core: Any
    autogen_ext: Any

__all__ = [
    "NotOffered",
    "autogen",
    "autogen_agentchat",
    "autogen_core",
    "autogen_ext",
    "install",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    if name.startswith("autogen") and name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


install()
