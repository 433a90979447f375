"""Private copies of standard library modules for our own modules, made before user code runs.

What Cellblock's processes do after a block must not depend on what the block did to `os` and
others. Evaluation harnesses, for example, disable dozens of functions by setting them to None.
"""

from __future__ import annotations

import sys
from types import ModuleType

# Not `sys`: its streams, arguments and modules are those of the block.
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


def snapshot_stdlib() -> None:
    """Replace the modules in the namespaces of our loaded modules by copies."""
    copies: dict[str, ModuleType] = {}
    for module in [module for name, module in sys.modules.items() if name.startswith("cellblock.")]:
        names = vars(module)
        for name, value in list(names.items()):
            if isinstance(value, ModuleType) and value.__name__ in _COPIED:
                if value.__name__ not in copies:
                    copy = copies[value.__name__] = ModuleType(value.__name__)
                    vars(copy).update(vars(value))
                names[name] = copies[value.__name__]
