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
_DIES = (
    "a block that ends its process ends the kernel: this is reported so, and unsent output is lost"
)
_LIVES = "a session continues after a block, and so do the processes that the block started"
_STREAMS = (
    "ipykernel reads descriptors 1 and 2 separately, in pieces that can end inside a character"
)
# Maps a check of the contract to the reason why kernels must fail it.
DIFFERENCES = {
    "exit_codes_are_passed_through": _DIES,
    "death_by_signal_is_exit_code_128_plus_signal": _DIES,
    "out_of_memory_is_reported": "the last line is the notice that the kernel was restarted",
    "endlessly_forking_processes_are_killed": _DIES,
    "block_continues_after_closing_its_output": _DIES,
    "child_process_left_running_is_killed": _LIVES,
    "grandchild_with_open_pipes_is_killed": _LIVES,
    "daemon_with_closed_pipes_is_killed": _LIVES,
    "daemon_with_open_pipes_is_killed": _LIVES,
    "standard_input_is_empty": "input() raises StdinNotImplementedError",
    "temporary_work_folder_is_removed_on_stop": (
        "without a work_dir a kernel starts in the current folder"
    ),
    "named_file_is_written_run_and_kept": "a block is a request and not a file: it has no __file__",
    "output_order_is_kept_after_much_output_on_one_stream": _STREAMS,
    "output_of_child_processes_is_kept": _STREAMS,
    "character_split_across_writes_is_decoded": _STREAMS,
}
# Maps a check to the reason why it is not reliable with kernels.
UNRELIABLE = {
    "large_output_is_truncated_and_marked": (
        "takes a minute, and output printed within 0.2 s arrives in one piece of any size"
    ),
    "open_files_limit_applies": (
        "IPython's history needs a file too, and reports an error if it cannot open one"
    ),
    "stopped_processes_are_killed": _DIES,
    "files_limit_is_reported": "they count for the kernel, which the next check ends",
    "cpu_time_limit_covers_the_process_tree": (
        "they count for the kernel, which can have used them up during its start"
    ),
    "invalid_bytes_in_output_are_replaced": _STREAMS,
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
