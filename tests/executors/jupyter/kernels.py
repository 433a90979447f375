"""Real Jupyter kernels for tests, found and started without a look at, or a trace in, the user's home."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cellblock import CodeBlock, JupyterCodeResult, sync

# Under pytest, which it knows by that variable, ipykernel does not look at what child processes print.
_START = "import os; os.environ.pop('PYTEST_CURRENT_TEST', 0); from ipykernel.kernelapp import main; main()"
_PYTHON = {
    "argv": [sys.executable, "-c", _START, "-f", "{connection_file}"],
    "display_name": "Python",
    "language": "python",
}
_BASH = {
    "argv": [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"],
    "display_name": "Bash",
    "language": "bash",
    "env": {"PS1": "$"},
}
_BROKEN = {
    "argv": [sys.executable, "-c", "raise SystemExit('no kernel today')", "{connection_file}"],
    "display_name": "Broken",
    "language": "python",
}


def prepare(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have kernels `bash` and `broken` beside `python3`, and all that kernels write in `folder`."""
    for name, spec in (("python3", _PYTHON), ("bash", _BASH), ("broken", _BROKEN)):
        place = folder / "share" / "kernels" / name
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "share"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "run"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder / "config"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))


def run(executor: sync.SyncCodeExecutor, code: str, language: str = "python") -> JupyterCodeResult:
    """Run one block."""
    result = executor.execute_code_blocks([CodeBlock(code, language)])
    assert isinstance(result, JupyterCodeResult)
    return result
