"""Jupyter kernels for tests, which neither read nor write the user's home."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cellblock import CodeBlock, CodeResult, Event, JupyterCodeResult, Output, fold, sync

# If this variable is set, ipykernel does not capture the output of child processes.
_RUN_IPYKERNEL = (
    "import os; os.environ.pop('PYTEST_CURRENT_TEST', 0); "
    "from ipykernel.kernelapp import main; main()"
)
_PYTHON = {
    "argv": [sys.executable, "-c", _RUN_IPYKERNEL, "-f", "{connection_file}"],
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


def install_kernel_specs(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Install the kernels `python3`, `bash` and `broken`, and make Jupyter use only `folder`."""
    for name, spec in (("python3", _PYTHON), ("bash", _BASH), ("broken", _BROKEN)):
        spec_folder = folder / "share" / "kernels" / name
        spec_folder.mkdir(parents=True)
        (spec_folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "share"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "run"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder / "config"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))


def run(executor: sync.SyncCodeExecutor, code: str, language: str = "python") -> JupyterCodeResult:
    """Run one block, and return its result."""
    result = executor.execute_code_blocks([CodeBlock(code, language)])
    assert isinstance(result, JupyterCodeResult)
    return result


def run_and_end(executor: sync.SyncCodeExecutor, ending: str, folder: Path) -> CodeResult:
    """Run a block that prints "x", and `ending` once the output has arrived: it could be lost.

    `folder` is the current folder of the kernel.
    """
    code = "import os, time\nprint('x', flush=True)\n"
    code += f"while not os.path.exists('seen'): time.sleep(0.01)\nos.remove('seen')\n{ending}"
    events = list[Event]()
    for event in executor.execute_stream([CodeBlock(code, "python")]):
        events.append(event)
        if isinstance(event, Output) and event.text.startswith("x"):
            (folder / "seen").touch()
    return fold(events)
