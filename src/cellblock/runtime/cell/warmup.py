"""Do in advance what each block's process will do: in the zygote a few times over, and once more in a process that waits.

An interpreter that does something for the first times writes into its own memory: caches of where attributes are found,
instructions that are made faster, free lists. A process that has been forked pays for each page so written with a copy.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from types import FunctionType

from ..linux import syscalls
from . import script

_ROUNDS = 10  # an instruction is made faster after eight runs
_PROGRAM = b"""\
import math
from typing import Dict, List, Optional

class Point:
    kind = "point"

    def __init__(self, x: float) -> None:
        self.x = x

    def shifted(self, by: float = 1.0) -> List[float]:
        return [self.x + by * i for i in range(4)]

def found(numbers: List[float], wanted: Optional[float] = None) -> Dict[str, float]:
    counts: Dict[str, float] = {}
    for index, number in enumerate(sorted(numbers, reverse=True)):
        while index > 2:
            index -= 1
        if number == wanted or abs(number - index) < 0.5:
            continue
        counts[f"{number:.1f}"] = counts.get(str(index), 0) + math.floor(number)
    return counts

def check(candidate):
    assert candidate([3.0, 1.5, 2.0, 9.0], 3.0) != {}
    text = " ".join(str(x) for x in Point(1.0).shifted())
    assert [word.strip() for word in text.split()][::-1] and "1" in text and len(set(text)) > 1
    assert max(map(int, ("1", "2"))) == 2 and any([False, True]) and list(zip("ab", (1, 2)))[0] == ("a", 1)
    try:
        [][1]
    except IndexError as error:
        str(error)

check(found)
"""
# Something of what most programs do, to be compiled and run at little cost.
_SHORT = b"""\
import sys

def listed(count, more=1):
    return [str(number + more) for number in range(count)]

print(" ".join(listed(3))[:0], end="")
"""


def practise() -> None:
    """Run a small program as a block's would be, often enough, and leave no trace of it."""
    modules, path, argv, original = sys.modules.copy(), sys.path[:], sys.argv, sys.orig_argv
    with contextlib.suppress(
        OSError
    ):  # it leads its group already; what counts is that the C library has found the call
        os.setsid()
    harmless = syscalls.Call("getppid", "getppid")
    code = compile(_PROGRAM, "practice", "exec", dont_inherit=True)
    for _ in range(_ROUNDS):
        harmless()
        script.prepare()
        _, namespace = script.load({"script": os.devnull})
        exec(code, namespace)
        del namespace
        script.let_go()
        syscalls.flush_c_streams()
    sys.path[:], sys.argv, sys.orig_argv = path, argv, original
    del sys.last_type, sys.last_value, sys.last_traceback  # made by `let_go`
    sys.modules.clear()
    sys.modules.update(modules)


def look_up(owner: object, *functions: FunctionType) -> None:
    """Look in `owner` for all attributes that `functions` name; a table notes where each is, or that it is nowhere."""
    for function in functions:
        for name in function.__code__.co_names:
            getattr(owner, name, None)


def rehearse() -> None:
    """In a block's process, while nobody comes for it: each page that is copied now needs no copy when somebody waits."""
    with contextlib.suppress(Exception):
        code, _ = script.load({"script": os.devnull, "code": _SHORT})
        del sys.path[0]
        exec(code, {})  # and not in the module that will be the block's
        gc.get_objects(2)
        gc.collect()
        syscalls.flush_c_streams()  # and no `gc.freeze`: what holds on to the namespace by now would never be collected
