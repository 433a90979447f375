"""Code that makes the module of functions importable where its file cannot be put."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .module import FunctionModule

# The data is JSON inside a Python literal, so that nothing in it can end the literal.
_CODE = """
def _cellblock_load():
    import json, linecache, sys, types
    name, source, folders = json.loads({data!r})
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    module = types.ModuleType(name)
    module.__file__ = f"<{{name}}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(True), module.__file__)
    sys.modules[name] = module
    exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
_cellblock_load()
del _cellblock_load
"""


def code_to_load_functions(module: FunctionModule, package_folders: Sequence[str] = ()) -> str:
    """Return code that makes `module` importable in the interpreter that runs it.

    package_folders   folders with the packages that the functions need
    """
    data = json.dumps([module.module_name, module.source, list(package_folders)])
    return _CODE.format(data=data)
