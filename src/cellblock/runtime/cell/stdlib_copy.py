"""The standard library as our own modules see it where code of others runs: as it was before that.

What a process of ours has to do after a block's code must not depend on what that did to `os` and its like: guards against
bad code, as evaluations have them, set dozens of functions to None.
"""

from __future__ import annotations

import sys
from types import ModuleType

# Not `sys`: its streams, arguments and modules are the block's.
_COPIED = frozenset(
    (
        "atexit",
        "contextlib",
        "errno",
        "fcntl",
        "functools",
        "gc",
        "importlib",
        "itertools",
        "json",
        "marshal",
        "os",
        "select",
    )
    + ("shutil", "signal", "socket", "struct", "time", "weakref")
)


def keep() -> None:
    """Give each of our modules that are loaded copies of the modules it imported."""
    copies: dict[str, ModuleType] = {}
    for module in [module for name, module in sys.modules.items() if name.startswith("cellblock.")]:
        names = vars(module)
        for name, value in list(names.items()):
            if isinstance(value, ModuleType) and value.__name__ in _COPIED:
                if value.__name__ not in copies:
                    copy = copies[value.__name__] = ModuleType(value.__name__)
                    vars(copy).update(vars(value))
                names[name] = copies[value.__name__]
