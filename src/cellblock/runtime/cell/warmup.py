"""Warm up the zygote, and pre-touch the memory of a process that waits for its block.

An interpreter that runs something for the first time writes to its own memory: attribute caches,
specialized instructions, free lists. A forked process copies each page that it writes to.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from types import FunctionType

from ..handshake import CellJob
from ..linux import syscalls
from . import interpreter, script

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
    assert max(map(int, ("1", "2"))) == 2 and any([False, True])
    assert list(zip("ab", (1, 2)))[0] == ("a", 1)
    try:
        [][1]
    except IndexError as error:
        str(error)

check(found)
"""
# Features that most programs use, cheap to compile and run.
_PRETOUCH_PROGRAM = b"""\
import sys

def listed(count, more=1):
    return [str(number + more) for number in range(count)]

print(" ".join(listed(3))[:0], end="")
"""


def warm_up() -> None:
    """Run a small program like a block, and leave no trace of it."""
    modules, path, argv, original = sys.modules.copy(), sys.path[:], sys.argv, sys.orig_argv
    # It fails, because the zygote leads its process group. But the linker resolves the function.
    with contextlib.suppress(OSError):
        os.setsid()
    harmless = syscalls.PreparedCall("getppid", "getppid")
    code = compile(_PROGRAM, "warmup", "exec", dont_inherit=True)
    harmless()
    script.prepare_main()
    _, namespace = script.load(CellJob(os.devnull))
    exec(code, namespace)
    del namespace
    script.release_modules()
    syscalls.flush_c_streams()
    sys.path[:], sys.argv, sys.orig_argv = path, argv, original
    interpreter.clear_last_error()  # set by `release_modules`
    sys.modules.clear()
    sys.modules.update(modules)


def prime_attribute_cache(owner: object, *functions: FunctionType) -> None:
    """Look up all names in `functions` as attributes of `owner`, to fill the attribute cache."""
    for function in functions:
        for name in function.__code__.co_names:
            getattr(owner, name, None)


def pretouch() -> None:
    """In a process that waits for its block, copy pages now that the block would have to copy."""
    with contextlib.suppress(Exception):
        code, _ = script.load(CellJob(os.devnull, _PRETOUCH_PROGRAM))
        del sys.path[0]
        exec(code, {})  # not in the `__main__` module of the block
        gc.get_objects(2)
        gc.collect()
        syscalls.flush_c_streams()
        # No `gc.freeze`: what refers to the namespace now would never be collected.
