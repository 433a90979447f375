"""For tests of functions: modules to read them from, and an interpreter to run them in."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from cellblock.errors import FunctionError
from cellblock.functions.module import Function, FunctionModule


def run_with_module(module: FunctionModule, code: str, folder: Path) -> str:
    """Return what `code` prints in a process that can import `module` but not this file."""
    (folder / f"{module.module_name}.py").write_text(module.source, encoding="utf-8")
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=15)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(module: FunctionModule, expression: str, folder: Path) -> str:
    """Return what `print(expression)` prints where the functions of `module` are imported."""
    code = f"from {module.module_name} import *\nprint({expression})"
    return run_with_module(module, code, folder).removesuffix("\n")


def import_text(text: str, folder: Path) -> ModuleType:
    """Write `text` to a file and return it as a module."""
    path = folder / f"written_{abs(hash(text))}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refusal_message(*functions: object) -> str:
    with pytest.raises(FunctionError) as caught:
        FunctionModule(cast(list[Function], functions))
    return str(caught.value)
