"""Who started a native thread is looked up in the code that is loaded."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import ctypes, glob, os, sys
from cellblock.runtime.cell.session import native_threads
def files():
    return native_threads.LoadedCode.current()
before = files()
assert files() is before  # it takes long with many libraries
import _ctypes_test
after = files()
assert after is not before
address = ctypes.cast(ctypes.CDLL(_ctypes_test.__file__)._testfunc_i_bhilfd, ctypes.c_void_p).value
assert after.file_at(address) == os.path.realpath(_ctypes_test.__file__), after.file_at(address)
assert before.file_at(address) == after.file_at(8) == ""
assert files() is after
"""


def test_the_mappings_are_read_again_only_after_a_library_was_loaded() -> None:
    subprocess.run([sys.executable, "-c", LOADED], check=True)
