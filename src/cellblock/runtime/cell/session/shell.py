"""The shell of a live session: IPython's own, without a terminal, whose rich output goes to whoever is told of it.

The one module of this folder that needs more than the standard library: the IPython of the Python that runs the blocks.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..stdio import text_stream
from .fast_path import PlainCells, forget_old_inputs

Publish = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
Ask = Callable[[str, bool], str]

_NOBODY = "input() has nobody to ask: this session was made without an input_callback."
_INLINE = "module://matplotlib_inline.backend_inline"
_PATIENCE = 0.5  # seconds for what is ending already


class Shell:
    """One namespace and what runs cells in it. `ask` answers `input()`.

    `publish` is told of each display, `publish_last` of one after which the cell has nothing left to do.
    """

    def __init__(self) -> None:
        self.publish: Publish = lambda _data, _metadata: None
        self.publish_last: Callable[[dict[str, Any]], None] = lambda _data: None
        self.ask: Ask | None = None
        self.interrupted = False  # from outside, so that there is nothing to tell of it
        self._shell = _make(self)
        self._ask_outside: Callable[..., str] | None = None
        self._waited_for: object = None
        self._plain = PlainCells(self._shell, self._show_value)

    @property
    def variables(self) -> dict[str, Any]:
        """What cells have defined, and what the shell itself keeps for them."""
        return self._shell.user_ns

    @property
    def hidden(self) -> Mapping[str, Any]:
        """What the shell itself put among the variables."""
        return self._shell.user_ns_hidden

    def run(self, code: str, *, quietly: bool = False, file: str | None = None) -> int:
        """Run one cell and give its exit code. Output goes where output goes, an exception's traceback to stderr.

        `quietly`: it is no part of the history, and shows no value. `file`: what it finds as ``__file__``. Raises
        `KeyboardInterrupt` when it was interrupted.
        """
        if builtins.input is not self._ask_outside:
            self._install_input()
        _mend_streams()
        if file is not None:
            self.variables["__file__"] = file
        try:
            error = self._run(code, quietly)
        finally:
            if file is not None:
                self.variables.pop("__file__", None)
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
        if isinstance(error, SystemExit):
            return _exit_code(error)
        if isinstance(error, KeyboardInterrupt):
            raise error
        return 1 if error is not None else 0

    def _run(self, code: str, quietly: bool) -> BaseException | None:
        program = None if quietly else self._plain.compiled(code)
        if program is not None:
            return self._plain.run(code, program)
        result = self._shell.run_cell(code, store_history=not quietly, silent=quietly)
        return result.error_before_exec or result.error_in_exec

    def _show_value(self, data: dict[str, Any]) -> None:
        _show_text(data)
        self.publish_last(data)

    def tidy(self) -> None:
        """Do what is left to do of a cell, and nobody waits for."""
        self._plain.tidy()
        forget_old_inputs(self._shell)

    def begin_in(self, folder: str) -> None:
        """Have the history of folders begin in `folder`: the shell itself was made elsewhere."""
        self._shell.history_manager.dir_hist[:] = [Path(folder)]

    def move(self, before: str, after: str) -> None:
        """In a branch, which goes on in `after`: have the history of folders name that in the place of `before`, and last."""
        with contextlib.suppress(Exception):  # code may have done anything to it
            known = self._shell.history_manager.dir_hist
            for index, folder in enumerate(known):
                if (path := Path(folder)).is_relative_to(before):
                    known[index] = Path(after, path.relative_to(before))
            if not known or known[-1] != Path(after):
                known.append(Path(after))

    def _install_input(self) -> None:
        import getpass

        self._ask_outside = builtins.input = lambda prompt="": self._input(
            str(prompt), hidden=False
        )
        getpass.getpass = lambda prompt="Password: ", stream=None: self._input(
            str(prompt), hidden=True
        )

    def _input(self, prompt: str, *, hidden: bool) -> str:
        if self.ask is None:
            raise EOFError(_NOBODY)
        _flush(sys.stdout)
        return self.ask(prompt, hidden)

    def forget_loop(self) -> None:
        """In a fork: let cells have an event loop of their own, since that of before is shared with the other side."""
        import asyncio

        from IPython.core import async_helpers

        async_helpers._asyncio_event_loop = None  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        asyncio.set_event_loop(None)

    def pending_tasks(self) -> list[str]:
        """Name the asyncio tasks that cells have begun and not awaited."""
        import asyncio

        from IPython.core import async_helpers

        loop = async_helpers._asyncio_event_loop  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        if loop is None or loop.is_closed():
            return []
        return [task.get_name() for task in asyncio.all_tasks(loop)]

    def end_script_thread(self) -> bool:
        """End the thread that ``%%bash`` and its like have left, where nothing needs it any more; tell whether it did."""
        # Without a look for magics that were never loaded.
        magics = self._shell.magics_manager.registry.get("ScriptMagics")
        loop = getattr(magics, "event_loop", None)
        if loop is None or self._needs(loop) or not self._await_scripts(magics, loop):
            return False
        magics.event_loop = None  # the next such cell makes another
        if finalizer := getattr(magics, "_event_loop_finalizer", None):  # of later versions
            finalizer.detach()
        return _end_loop(loop)

    def _await_scripts(self, magics: Any, loop: Any) -> bool:
        """Wait for what is ending, where a cell was interrupted say; tell whether `loop` has nothing left to do."""
        import asyncio

        deadline = time.monotonic() + (_PATIENCE if loop is not self._waited_for else 0)
        while (
            pids := [script.pid for script in magics.bg_processes if script.returncode is None]
        ) or asyncio.all_tasks(loop):
            if any(map(_is_running, pids)):
                return False
            if time.monotonic() > deadline:
                self._waited_for = (
                    loop  # a process of a script's holds its output open: not before each cell anew
                )
                return False
            time.sleep(0.001)
        return True

    def _needs(self, loop: object) -> bool:
        """Tell whether a variable speaks to a background script through `loop`: one of ``--out``, ``--err`` or ``--proc``."""
        from IPython.core.async_helpers import _AsyncIOProxy

        proxies = [value for value in self.variables.values() if type(value) is _AsyncIOProxy]
        return any(vars(proxy).get("_event_loop") is loop for proxy in proxies)


def _make(owner: Shell) -> Any:
    """Give an IPython shell without terminal, colours, history file and threads, whose displays go to `owner.publish`."""
    import warnings

    import IPython
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    os.environ.setdefault("MPLBACKEND", _INLINE)
    warnings.filterwarnings("ignore", message="To exit: use")
    warnings.filterwarnings("ignore", message="Output cache limit")
    shell = _class(owner).instance(config=config)
    shell.colors = "nocolor" if IPython.version_info[0] >= 9 else "NoColor"
    shell.system = shell.system_raw  # straight to the streams, in order with everything else
    # They end the cell, as they end a program: a session ends from outside.
    for name in ("exit", "quit"):
        shell.user_ns[name] = shell.user_ns_hidden[name] = _exit_call()
    shell.builtin_trap.__enter__()  # `get_ipython`, `display`: for good, and not anew for each cell
    return shell


def _class(owner: Shell) -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    class CellShell(InteractiveShell):
        displayhook_class = _hook(owner)
        display_pub_class = _publisher(owner)

        def _showtraceback(self, etype: object, evalue: BaseException, stb: list[str]) -> None:
            if isinstance(evalue, SystemExit) or (
                owner.interrupted and isinstance(evalue, KeyboardInterrupt)
            ):
                return
            _flush(sys.stdout)
            sys.stderr.write("\n".join(stb) + "\n")

        def showtraceback(self, *args: Any, **options: Any) -> None:
            if not isinstance(sys.exc_info()[1], SystemExit):
                super().showtraceback(*args, **options)

        def enable_gui(self, gui: object = None) -> None:
            """There is no screen."""

    return CellShell


def _exit_call() -> Any:
    from IPython.core.autocall import IPyAutocall

    class Exit(IPyAutocall):
        rewrite = False

        def __call__(self, code: object = None) -> None:
            raise SystemExit(code)

    return Exit()


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _end_loop(loop: Any) -> bool:
    """Stop `loop` and close it, and wait for its threads; tell whether that could be done."""
    import threading

    # Besides the one that runs it there is one for each script that it waits for, up to Python 3.11; both end by themselves.
    threads = [thread for thread in threading.enumerate() if _is_of(thread, loop)]
    loop.call_soon_threadsafe(loop.stop)
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
        # Python counts it as ended a moment before the kernel does.
        while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < deadline:
            time.sleep(0.0002)
    if loop.is_running():
        return False
    loop.close()
    return True


def _is_of(thread: Any, loop: Any) -> bool:
    if "_target" not in vars(thread):  # it is about to end
        return True
    return thread._target == loop.run_forever or getattr(thread, "_args", ())[:1] == (loop,)


def _publisher(owner: Shell) -> Any:
    from IPython.core.displaypub import DisplayPublisher

    class Publisher(DisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, *others: Any, **more: Any) -> None:
            _show_text(data)
            owner.publish(data, metadata or {})

        def clear_output(self, wait: bool = False) -> None:
            """What was shown stays shown: output is a record here, not a screen."""

    return Publisher


def _hook(owner: Shell) -> Any:
    from IPython.core.displayhook import DisplayHook

    class Hook(DisplayHook):
        def write_output_prompt(self) -> None:
            """Without a prompt."""

        def write_format_data(
            self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None
        ) -> None:
            _show_text(format_dict)
            owner.publish(format_dict, md_dict or {})

        def finish_displayhook(self) -> None:
            _flush(sys.stdout)

    return Hook


def _mend_streams() -> None:
    """Put working streams in the place of those that a cell has closed, removed or broken; others may stay."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        try:
            getattr(sys, name).flush()
        except Exception:
            setattr(sys, name, text_stream(descriptor, f"<{name}>"))


def _show_text(data: Mapping[str, Any]) -> None:
    text = data.get("text/plain")
    if isinstance(text, str):
        # A value of several lines begins in a line of its own, as in a notebook it stands in a box of its own.
        sys.stdout.write(text + "\n")


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    _flush(sys.stderr)
    return 1


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:
        return  # whatever a cell has put there, it is no reason to end the session
