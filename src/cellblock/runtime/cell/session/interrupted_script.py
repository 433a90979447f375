"""Interrupts of the scripts that `%%bash` and similar magics of IPython run."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from typing import Any

from ...linux import process_tree

_SCRIPT_MODULE = "IPython.core.magics.script"


def interrupt_script(frame: Any) -> None:
    """Interrupt the processes of the script that `frame` waits for, if any, as a terminal does.

    IPython interrupts only a shell, which waits until its command has ended.
    """
    if (script := _find_script(frame)) is not None:
        _signal_script(script, signal.SIGINT)


def kill_script(error: BaseException) -> None:
    """Kill the script that IPython gave up after an interrupt, which leaves `error` incomplete."""
    if isinstance(error, subprocess.CalledProcessError) and error.returncode is None:  # pyright: ignore[reportUnnecessaryComparison]
        trace = error.__traceback__
        while trace is not None:
            if (script := _find_script(trace.tb_frame)) is not None:
                _signal_script(script, signal.SIGKILL)
                error.returncode = -signal.SIGKILL
                return
            trace = trace.tb_next


def _signal_script(script: Any, number: int) -> None:
    with contextlib.suppress(OSError):  # too many open files
        # The shell first: otherwise it would begin its next command.
        for pid in (script.pid, *process_tree.descendants(script.pid)):
            process_tree.send_signal(pid, number)


def _find_script(frame: Any) -> Any:
    """Return the process of `%%bash` or a similar magic that `frame` is part of, if any."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _SCRIPT_MODULE and "p" in frame.f_locals:
            return frame.f_locals["p"]
        frame = frame.f_back
    return None
