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

SERVER = _PACKAGE + "from cellblock.cell import start\njob = start.main(None)\nfrom cellblock.cell import script\n" + _CELL
ZYGOTE = _PACKAGE + "from cellblock.cell import script, zygote\njob = zygote.main()\n" + _CELL
SANDBOX_SERVER = (
    _PACKAGE + "from cellblock.cell import start\nfrom cellblock.sandbox.enter import enclose\nstart.main(enclose)\n"
)
TRIALS = _PACKAGE + "from cellblock.sandbox import trials\ntrials.main()\n"
