"""The shell of a session: IPython's own, without a terminal.

This module needs IPython in the Python that runs the blocks. It imports it inside functions, so
that servers without sessions do not need it.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..stdio import text_stream
from .event_loop import BlockLoop
from .fast_path import FastPath, forget_old_inputs
from .helper_threads import join_threads
from .interrupted_script import kill_script

Publish = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
Ask = Callable[[str, bool], str]

_NO_INPUT = "input() is not available."
_MATPLOTLIB_BACKEND = "module://matplotlib_inline.backend_inline"
_INTERACTIVE_BACKEND = re.compile(
    r"notebook|nbagg|widget|ipympl|osx|macosx|(?:qt|gtk|tk|wx)\w*|webagg"
)
_RUNTIME = f"{__name__.rsplit('.', 3)[0]}."  # all modules of the runtime
_SHELL_PACKAGES = ("IPython", "matplotlib_inline", __name__.partition(".")[0])
_MAX_COMPLETIONS = 500
_TRACEBACK_MODE = "Context"  # IPython's default
_LAST_WORD = re.compile(r"(?:\.\w*|\b\w+)\Z")  # an attribute has its dot
_SCRIPT_GRACE = 0.5  # seconds for scripts and threads that are about to end


class Shell:
    """One namespace, and how blocks run in it.

    `ask` answers `input()`; without it, `no_input` is the error. `publish` receives each display;
    `publish_last` receives a display after which the block has nothing left to do.
    """

    def __init__(self) -> None:
        self.publish: Publish = lambda _data, _metadata: None
        self.publish_last: Callable[[dict[str, Any]], None] = lambda _data: None
        self.ask: Ask | None = None
        self.no_input = _NO_INPUT
        self.interrupted = False  # by the server
        self.show_interrupts = False  # show a traceback if the server interrupted the block
        self.shown_error: BaseException | None = None  # that IPython has shown and not passed on
        self.stderr = sys.stderr  # at the beginning of the block: `%%capture` replaces it
        self.event_loop = BlockLoop()
        self._has_colours = False
        self.terminal_mode: str | None = None  # see `imitate_terminal`
        self._shell = _create_ipython(self)
        self._input_function: Callable[..., str] | None = None
        self._slow_loop: object = None  # the event loop for whose scripts we have waited in vain
        self._fast_path = FastPath(self._shell, self._show_value)

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of user code, and those of IPython itself."""
        return self._shell.user_ns

    @property
    def ipython(self) -> Any:
        """IPython's shell."""
        return self._shell

    @property
    def hidden(self) -> Mapping[str, Any]:
        """The variables that IPython itself created."""
        return self._shell.user_ns_hidden

    def run(self, code: str, *, silent: bool = False, file: str | None = None) -> int:
        """Run one block and return its exit code.

        Output and tracebacks go to stdout and stderr. A `silent` block shows no value and is not
        part of the history. `file` is the value of `__file__` in the block. Raise
        `KeyboardInterrupt` if the block was interrupted.
        """
        if builtins.input is not self._input_function:
            self._install_input()
        _replace_broken_streams()
        self.shown_error, self.stderr = None, sys.stderr
        if file is not None:
            self.variables["__file__"] = file
        try:
            error = self._run_code(code, silent) if silent else self._run_with_tasks(code)
        finally:
            self.shown_error = None
            if file is not None:
                self.variables.pop("__file__", None)
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
        if isinstance(error, SystemExit):
            return _exit_code(error)
        if isinstance(error, KeyboardInterrupt):
            raise error
        if self.interrupted and _is_cancellation(error):
            raise KeyboardInterrupt
        return 1 if error is not None else 0

    def _run_with_tasks(self, code: str) -> BaseException | None:
        """Let the tasks of earlier blocks continue before the block, and its own ones after it."""
        with contextlib.suppress(SystemExit):  # of a task, which must not end another block
            self.event_loop.turn()
        error = self._run_code(code, silent=False)
        try:
            self.event_loop.turn()
        except SystemExit as exit_of_task:
            error = exit_of_task if error is None else error
        return error if error is not None else self.shown_error

    def _run_code(self, code: str, silent: bool) -> BaseException | None:
        compiled = None if silent else self._fast_path.compile_block(code)
        if compiled is not None:
            return self._fast_path.run_block(code, compiled)
        result = self._shell.run_cell(code, store_history=not silent, silent=silent)
        return result.error_before_exec or result.error_in_exec

    def _show_value(self, data: dict[str, Any]) -> None:
        self.write_value(data)
        self.publish_last(data)

    def write_value(self, data: dict[str, Any]) -> None:
        """Write the text of a block's value to stdout."""
        text = data.get("text/plain")
        if self.terminal_mode is not None and isinstance(text, str):
            newline = "\n" if "\n" in text else ""
            sys.stdout.write(f"Out[{self._shell.displayhook.prompt_count}]: {newline}")
        _show_text(data)

    def set_colours(self, has_colours: bool) -> None:
        """Show tracebacks with or without colours."""
        if has_colours != self._has_colours:
            self._has_colours = has_colours
            self._shell.colors = _colour_scheme("Neutral" if has_colours else "NoColor")

    def imitate_terminal(self, mode: str | None) -> None:
        """Show tracebacks and values as IPython does in a terminal, or as usual if `mode` is None.

        Then tracebacks are part of stdout and have the form `mode` of `%xmode`, and values follow a
        prompt.
        """
        if mode is None and self.terminal_mode is None:
            return
        self.terminal_mode = mode
        self._shell.InteractiveTB.set_mode(mode=mode or _TRACEBACK_MODE)
        compiler = self._shell.compile
        if mode is None:
            del compiler.format_code_name
        else:  # tracebacks name the file of a block, and not its number
            compiler.format_code_name = _no_code_name

    def complete(self, code: str, cursor: int) -> tuple[int, list[str]]:
        """Return where the text to complete at `cursor` starts, and its completions."""
        from IPython.core.completer import provisionalcompleter, rectify_completions

        completer = self._shell.Completer
        completer.use_jedi = False  # it is slow, and guesses where the values are known
        with provisionalcompleter():
            found = list(rectify_completions(code, completer.completions(code, cursor)))
        texts = dict.fromkeys(completion.text for completion in found[:_MAX_COMPLETIONS])
        start = found[0].start if found else cursor
        if texts and code[start : start + 1] == "." and all(text[0] == "." for text in texts):
            start, texts = start + 1, [text[1:] for text in texts]  # some versions repeat the dot
        word = _LAST_WORD.search(code, 0, cursor)
        # What stands before it in the block has not run. For attributes, jedi takes long.
        if word and re.search(r"[\n;]", code[:cursor]) and not (texts and word[0][0] == "."):
            names = self._complete_new_code(code[:cursor])
            word_start = cursor - len(word[0].removeprefix("."))
            if names and (not texts or start == word_start):
                return word_start, list(dict.fromkeys([*texts, *names]))
        return start, list(texts)

    def _complete_new_code(self, code: str) -> list[str]:
        """Return the completions that jedi finds in code that has not run."""
        try:
            import jedi  # which IPython brings

            interpreter: Any = jedi.Interpreter(code, [self.variables])
            found = interpreter.complete()[:_MAX_COMPLETIONS]
        except Exception:  # it is missing, or a value of user code raises when it is looked at
            return []
        is_private = re.search(r"\b_\w*\Z", code) is not None
        names = [entry.name for entry in found if entry.name.isidentifier()]  # no keys
        return [name for name in names if is_private or not name.startswith("_")]

    def run_deferred_work(self) -> None:
        """Do what remains to be done after a block, once its answer was sent."""
        self._fast_path.record_value()
        forget_old_inputs(self._shell)

    def start_folder_history(self, folder: str) -> None:
        """Start IPython's history of folders, which was created in another one, with `folder`."""
        self._shell.history_manager.dir_hist[:] = [Path(folder)]

    def rename_in_folder_history(self, old_folder: str, new_folder: str) -> None:
        """In a branch: replace `old_folder` by `new_folder` in the history of folders.

        The current folder, `new_folder`, becomes its last entry.
        """
        with contextlib.suppress(Exception):  # user code may have changed it in any way
            known = self._shell.history_manager.dir_hist
            for index, folder in enumerate(known):
                if (path := Path(folder)).is_relative_to(old_folder):
                    known[index] = Path(new_folder, path.relative_to(old_folder))
            if not known or known[-1] != Path(new_folder):
                known.append(Path(new_folder))

    def _install_input(self) -> None:
        import getpass

        self._input_function = builtins.input = lambda prompt="": self._ask_input(
            str(prompt), hidden=False
        )
        getpass.getpass = lambda prompt="Password: ", stream=None: self._ask_input(
            str(prompt), hidden=True
        )

    def _ask_input(self, prompt: str, *, hidden: bool) -> str:
        if self.ask is None:
            raise EOFError(self.no_input)
        _flush(sys.stdout)
        return self.ask(prompt, hidden)

    def is_script_thread(self, thread: object) -> bool:
        """Return True if `%%bash` or a similar magic has left `thread` behind."""
        magics = self._shell.magics_manager.registry.get("ScriptMagics")
        loop = getattr(magics, "event_loop", None)
        return loop is not None and _belongs_to_loop(thread, loop)

    def end_script_thread(self) -> bool:
        """End the thread that `%%bash` and similar magics leave behind, unless it is still needed.

        Return True if it has ended.
        """
        # `registry` instead of the attribute of the shell, which would load the magics.
        magics = self._shell.magics_manager.registry.get("ScriptMagics")
        loop = getattr(magics, "event_loop", None)
        if loop is None or self._uses_loop(loop) or not self._wait_for_scripts(magics, loop):
            return False
        magics.event_loop = None  # the next such block creates a new one
        if finalizer := getattr(magics, "_event_loop_finalizer", None):  # in later versions
            finalizer.detach()
        return _close_loop(loop)

    def _wait_for_scripts(self, magics: Any, loop: Any) -> bool:
        """Wait for scripts that are ending, for example after an interrupt.

        Return True if `loop` has nothing left to do.
        """
        deadline = time.monotonic() + (_SCRIPT_GRACE if loop is not self._slow_loop else 0)
        while (
            pids := [script.pid for script in magics.bg_processes if script.returncode is None]
        ) or asyncio.all_tasks(loop):
            if any(map(_is_running, pids)):
                return False
            if time.monotonic() > deadline:
                # A process holds a script's output open. Do not wait for it again.
                self._slow_loop = loop
                return False
            time.sleep(0.001)
        return True

    def _uses_loop(self, loop: object) -> bool:
        """Return True if a variable is a stream or process of a background script that uses `loop`.

        The options `--out`, `--err` and `--proc` of the script magics create such variables.
        """
        from IPython.core.async_helpers import _AsyncIOProxy  # pyright: ignore[reportPrivateUsage] - of IPython

        proxies = [value for value in self.variables.values() if type(value) is _AsyncIOProxy]
        return any(vars(proxy).get("_event_loop") is loop for proxy in proxies)


def _create_ipython(owner: Shell) -> Any:
    """Create an IPython shell without terminal, colours, history file and threads.

    Its displays go to `owner.publish`.
    """
    import warnings

    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    os.environ.setdefault("MPLBACKEND", _MATPLOTLIB_BACKEND)
    warnings.filterwarnings("ignore", message="To exit: use")
    warnings.filterwarnings("ignore", message="Output cache limit")
    shell = _ipython_class(owner).instance(config=config)
    shell.loop_runner = owner.event_loop.run_block
    shell.colors = _colour_scheme("NoColor")
    shell.system = shell.system_raw  # writes to the streams directly, which keeps the order
    _fall_back_to_inline(shell)
    # `exit` ends the block as it ends a program. Only the server ends a session.
    for name in ("exit", "quit"):
        shell.user_ns[name] = shell.user_ns_hidden[name] = _exit_function()
    # Install `get_ipython` and `display` once instead of for each block.
    shell.builtin_trap.__enter__()
    return shell


def _colour_scheme(name: str) -> str:
    import IPython

    return name.lower() if IPython.version_info[0] >= 9 else name


def _ipython_class(owner: Shell) -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    class SessionShell(InteractiveShell):
        displayhook_class = _display_hook_class(owner)
        display_pub_class = _publisher_class(owner)

        def _showtraceback(self, etype: object, evalue: BaseException, stb: list[str]) -> None:
            if isinstance(evalue, SystemExit) or (
                owner.interrupted
                and not owner.show_interrupts
                and (isinstance(evalue, KeyboardInterrupt) or _is_cancellation(evalue))
            ):
                return
            _flush(sys.stdout)
            stream = owner.stderr if owner.terminal_mode is None else sys.stdout
            stream.write(self.InteractiveTB.stb2text(stb) + "\n")

        def showtraceback(self, *args: Any, **options: Any) -> None:
            """Show the error that is handled now. If IPython shows it, the block has failed."""
            error = sys.exc_info()[1]  # None for `%tb`
            if error is not None:
                _drop_own_frames(error)
                kill_script(error)
                if _is_shell_code(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage] - of CPython
                    owner.shown_error = error
            if not isinstance(error, SystemExit):
                super().showtraceback(*args, **options)

        def run_cell(self, *args: Any, **options: Any) -> Any:
            """Run a cell. User code that calls this gets the error in the result."""
            shown = owner.shown_error
            inner: Any = super()
            result = inner.run_cell(*args, **options)
            if not _is_shell_code(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage] - of CPython
                owner.shown_error = shown
            return result

        def enable_gui(self, gui: object = None) -> None:
            """Do nothing: there is no screen."""

    return SessionShell


def _fall_back_to_inline(shell: Any) -> None:
    """Let `%matplotlib` use inline figures instead of a backend with windows or widgets."""
    enable: Callable[[str | None], Any] = shell.enable_matplotlib

    def enable_matplotlib(gui: str | None = None) -> Any:
        if gui is not None and _INTERACTIVE_BACKEND.fullmatch(gui.lower()):
            sys.stderr.write(f"A session has no screen for {gui!r}: figures are shown inline.\n")
            gui = "inline"
        return enable(gui)

    shell.enable_matplotlib = enable_matplotlib


def _is_shell_code(caller: Any) -> bool:
    """Return True if the frame `caller` is code of the shell, and not a block or a library."""
    return caller.f_globals.get("__name__", "").partition(".")[0] in _SHELL_PACKAGES


def _is_cancellation(error: BaseException | None) -> bool:
    """Return True if `error` says that an interrupt cancelled what the block waited for."""
    return isinstance(error, asyncio.CancelledError)


def _drop_own_frames(error: BaseException) -> None:
    """Remove the frames of this package from the tracebacks of `error` and of its causes.

    The first one stays: IPython leaves it out.
    """
    seen, errors = set[int](), [error]
    while errors:
        error = errors.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        errors += filter(None, (error.__cause__, error.__context__))
        trace = error.__traceback__
        frames = [frame for frame, _ in traceback.walk_tb(trace)][1:]
        if not any(map(_is_own_frame, frames)):
            continue
        while trace is not None and trace.tb_next is not None:
            frame = trace.tb_next.tb_frame
            # Python leaves out the frames of an import, unless ours is among them.
            if _is_own_frame(frame) or frame.f_code.co_filename.startswith("<frozen importlib"):
                trace.tb_next = trace.tb_next.tb_next
            else:
                trace = trace.tb_next


def _is_own_frame(frame: Any) -> bool:
    name = frame.f_globals.get("__name__")  # user code may have put anything there
    return isinstance(name, str) and name.startswith(_RUNTIME)


def _exit_function() -> Any:
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


def _close_loop(loop: Any) -> bool:
    """Stop and close `loop` and wait for its threads. Return True on success."""
    import threading

    # One thread runs the loop. Up to Python 3.11 another one waits for each script. All of them end
    # by themselves.
    threads = [thread for thread in threading.enumerate() if _belongs_to_loop(thread, loop)]
    loop.call_soon_threadsafe(loop.stop)
    join_threads(threads, time.monotonic() + _SCRIPT_GRACE)
    if loop.is_running():
        return False
    loop.close()
    return True


def _belongs_to_loop(thread: Any, loop: Any) -> bool:
    if "_target" not in vars(thread):  # Python deletes it at the end of the thread
        return True
    return thread._target == loop.run_forever or getattr(thread, "_args", ())[:1] == (loop,)


def _publisher_class(owner: Shell) -> Any:
    from IPython.core.displaypub import DisplayPublisher

    class Publisher(DisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, *others: Any, **more: Any) -> None:
            _show_text(data)
            owner.publish(data, metadata or {})

        def clear_output(self, wait: bool = False) -> None:
            """Do nothing: output that was sent cannot be taken back."""

    return Publisher


def _display_hook_class(owner: Shell) -> Any:
    from IPython.core.displayhook import DisplayHook

    class Hook(DisplayHook):
        def write_output_prompt(self) -> None:
            """Do nothing: a session has no prompt."""

        def write_format_data(
            self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None
        ) -> None:
            owner.write_value(format_dict)
            owner.publish(format_dict, md_dict or {})

        def finish_displayhook(self) -> None:
            _flush(sys.stdout)

    return Hook


def _replace_broken_streams() -> None:
    """Replace `sys.stdout` and `sys.stderr` if a block has closed, deleted or broken them."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        try:
            getattr(sys, name).flush()
        except Exception:
            setattr(sys, name, text_stream(descriptor, f"<{name}>"))


def _no_code_name(_name: str) -> None:
    """Return no number of a block: see `CachingCompiler.format_code_name` of IPython."""


def _show_text(data: Mapping[str, Any]) -> None:
    text = data.get("text/plain")
    if isinstance(text, str):
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
        return  # a broken stream that a block has installed must not end the session
