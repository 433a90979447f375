"""The source of the runtime's programs for ``python -c``: the server, the zygote, the checks.

They create the package by hand, so that the library's ``__init__`` does not run. The lines after
`main` are at the bottom of a cell's stack when user code runs.
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
    status = script.report_exception(failure)
script.finish(status)
"""

SERVER = (
    _PACKAGE
    + """\
from cellblock.runtime import main
job = main.main(None)
from cellblock.runtime.cell import script
"""
    + _CELL
)
ZYGOTE = (
    _PACKAGE + "from cellblock.runtime.cell import script, zygote\njob = zygote.main()\n" + _CELL
)
SANDBOX_SERVER = (
    _PACKAGE
    + """\
from cellblock.runtime import main
from cellblock.sandbox.setup.launcher import launch
main.main(launch)
"""
)
# A container has no Cellblock: the program writes the magic number of its Python's bytecode, and
# reads its modules from standard input. See `backends.module_bundle`.
CONTAINER = (
    """\
import sys
if sys.version_info < (3, 10):
    version = "%d.%d" % sys.version_info[:2]
    sys.exit("The image has Python " + version + ". Use an image with Python 3.10 or later.")
import os
from importlib import _bootstrap_external
os.write(1, b"\\0" + _bootstrap_external.MAGIC_NUMBER)
import json, marshal, site, zlib  # before reading: the modules are being sent
from importlib.machinery import ModuleSpec
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data
class BundledModules:
    is_code = read(1) == b"C"
    data = zlib.decompress(read(int.from_bytes(read(4), "big")))
    modules = (marshal if is_code else json).loads(data)
    def find_spec(self, name, path=None, target=None):
        if name in self.modules:
            is_package = any(other.startswith(name + ".") for other in self.modules)
            return ModuleSpec(name, self, is_package=is_package)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        data = self.modules[name]
        if self.is_code:
            code = marshal.loads(data)
        else:
            code = compile(data, "<%s>" % name, "exec", dont_inherit=True)
        exec(code, module.__dict__)
sys.path[:] = [entry for entry in sys.path if entry]
if site.ENABLE_USER_SITE is not None:  # where `pip install` in a block installs packages
    os.makedirs(site.getusersitepackages(), exist_ok=True)
    names, end = ("site-packages", "dist-packages"), len(sys.path)
    at = next((at for at, entry in enumerate(sys.path) if os.path.basename(entry) in names), end)
    site.addsitedir(site.getusersitepackages())
    # Before the image's own packages, as if the folder had existed when Python started.
    sys.path[at:] = sys.path[end:] + sys.path[at:end]
sys.meta_path.insert(0, BundledModules())
from cellblock.runtime import main
from cellblock.runtime.cell import script
job = main.main(None)
del sys.meta_path[0]
"""
    + _CELL
)
SANDBOX_CHECKS = _PACKAGE + "from cellblock.sandbox import checks\nchecks.main()\n"
