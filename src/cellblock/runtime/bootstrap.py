"""The first lines of our own programs, a cell server and a zygote above all, as text for ``python -c``.

The package is made by hand, so that its ``__init__``, which is the library's, is not run. What stands below `main` is at the
bottom of a cell's stack when user code runs.
"""

from __future__ import annotations

_PACKAGE = """\
import sys, types
sys.path[:] = [entry for entry in sys.path if entry]
package = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
sys.modules["cellblock"] = package
"""

_CELL = """\
status, namespace, failure = 0, None, None
try:
    code, namespace = script.load(job)
    exec(code, namespace)
except BaseException as error:
    failure = error
if failure is not None:
    status = script.report(failure)
script.finish(status, namespace)
"""

SERVER = (
    _PACKAGE
    + "from cellblock.runtime import main\njob = main.main(None)\nfrom cellblock.runtime.cell import script\n"
    + _CELL
)
ZYGOTE = (
    _PACKAGE + "from cellblock.runtime.cell import script, zygote\njob = zygote.main()\n" + _CELL
)
SANDBOX_SERVER = (
    _PACKAGE
    + "from cellblock.runtime import main\nfrom cellblock.sandbox.setup.launcher import enclose\nmain.main(enclose)\n"
)
# In a container nothing of ours is installed: it says which code it understands, and is sent its modules.
CONTAINER = (
    """\
import sys
if sys.version_info < (3, 10):
    sys.exit("The Python of the image is %d.%d; the cell server needs 3.10 or later." % sys.version_info[:2])
import os
from importlib import _bootstrap_external
os.write(1, b"\\0" + _bootstrap_external.MAGIC_NUMBER)
import json, marshal, site, zlib  # while the modules are on their way
from importlib.machinery import ModuleSpec
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data
class Shipped:
    is_code = read(1) == b"C"
    modules = (marshal if is_code else json).loads(zlib.decompress(read(int.from_bytes(read(4), "big"))))
    def find_spec(self, name, path=None, target=None):
        if name in self.modules:
            return ModuleSpec(name, self, is_package=any(other.startswith(name + ".") for other in self.modules))
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        shipped = self.modules[name]
        code = marshal.loads(shipped) if self.is_code else compile(shipped, "<%s>" % name, "exec", dont_inherit=True)
        exec(code, module.__dict__)
sys.path[:] = [entry for entry in sys.path if entry]
if site.ENABLE_USER_SITE is not None:  # where `pip install` of a block puts what the blocks after it import
    os.makedirs(site.getusersitepackages(), exist_ok=True)
    names, end = ("site-packages", "dist-packages"), len(sys.path)
    at = next((at for at, entry in enumerate(sys.path) if os.path.basename(entry) in names), end)
    site.addsitedir(site.getusersitepackages())
    sys.path[at:] = sys.path[end:] + sys.path[at:end]  # above the image's own, as where the folder was there at the start
sys.meta_path.insert(0, Shipped())
from cellblock.runtime import main
from cellblock.runtime.cell import script
job = main.main(None)
del sys.meta_path[0]
"""
    + _CELL
)
TRIALS = _PACKAGE + "from cellblock.sandbox import checks\nchecks.main()\n"
