"""The short way for cells in which there is nothing of IPython's: plain statements, and perhaps a value to show.

The shell's own way takes such a cell through transformers, event handlers and formatters that have nothing to do for it. That
costs little time, but touches hundreds of pages of memory, each of which must be copied when the session is frozen before the
next cell. What is left here is what can be seen: the numbered input, the cell's source in tracebacks, and these themselves.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Callable
from operator import is_
from types import CodeType
from typing import Any

from .shell_hooks import SHOWN_BY_REPR, Additions

_REMEMBERED = 1000  # inputs that are kept
_AT_ONCE = 50  # that are forgotten at one time
_READ = ("execution_count", "history_manager")
_READ_OF_HISTORY = ("input_hist_parsed", "input_hist_raw", "output_hist_reprs")
_SHOWN = ("_", "__", "___")  # variables with the last values that were shown
_BUILTINS = vars(builtins)  # where a `_` is a matter of its own: gettext's
_LONG = 1000  # bits, from which on an integer may be refused as text


# A cell, compiled: its statements, and the expression at its end whose value is to be shown, if there is one.
Program = tuple[CodeType, CodeType | None]


class PlainCells:
    """Whether a cell of `shell` can go the short way, and that way. `show` is given the forms of a value to be shown."""

    def __init__(self, shell: Any, show: Callable[[dict[str, Any]], None]) -> None:
        self._shell, self._show_forms = shell, show
        for name in _READ:
            getattr(shell, name)  # which makes what is made when it is first asked for
        for name in _READ_OF_HISTORY:
            getattr(shell.history_manager, name)
        self._additions = Additions(shell)
        self._values: dict[str, Any] = (
            shell._trait_values
        )  # its attributes, without two calls for each look at one
        self._shown: tuple[int, dict[str, Any]] | None = None  # and not noted yet
        history = sys.modules[type(shell.history_manager).__module__]
        self._output_record: Any = getattr(history, "HistoryOutput", None)  # since IPython 9
        self._counts_first = (
            shell.displayhook.prompt_count != shell.execution_count
        )  # since IPython 9.13
        self._notes_later = (
            self._counts_first and self._output_record is not None
        )  # else under the number of the next cell

    def compiled(self, code: str) -> Program | None:
        """Give `code` compiled; None when it is a matter for the shell: its syntax, a semicolon at its end, handlers."""
        if "__future__" in code or self._additions.handle_cells():
            return None
        try:
            tree: Any = compile(code, "<cell>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
            if not tree.body:
                return None
            last: Any = tree.body[-1] if isinstance(tree.body[-1], ast.Expr) else None
            if last is not None and (code.rstrip().endswith(";") or "#" in code):
                return None
            name, value = self._name(code), None
            if last is not None:
                value = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
                del tree.body[-1]
            return compile(tree, name, "exec", dont_inherit=True), value
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None  # the shell knows what it means, or says what is wrong with it

    def _name(self, code: str) -> str:
        """Have tracebacks know the cell by the name that is given here."""
        number = self._values["execution_count"]
        name = f"<ipython-input-{number}>"
        self._shell.compile._filename_map[name] = number
        lines = ("\n".join(code.splitlines()) + "\n").splitlines(keepends=True)
        linecache.cache[name] = len(code), None, lines, name
        return name

    def run(self, code: str, program: Program) -> BaseException | None:
        """Run one cell; give the exception that ended it, which has been shown."""
        shell, names, variables = self._shell, self._shell.user_global_ns, self._shell.user_ns
        variables.pop("__warningregistry__", None)  # each cell warns anew
        number = self._remember(code, variables)
        failure: BaseException | None = None
        try:
            statements, value = program
            exec(statements, names, variables)
            if value is not None:
                self._show(number, eval(value, names, variables))
        except SystemExit as error:
            failure = error
        except BaseException as error:
            failure = error
            trace = error.__traceback__
            shown = (
                type(error),
                error,
                trace and trace.tb_next,
            )  # without this function, which is no part of the cell
            shell.showtraceback(shown, tb_offset=0, running_compiled_code=True)
        if self._additions.handle_cells():
            shell.events.trigger(
                "post_execute"
            )  # a handler that this very cell has brought: matplotlib's draws its figures
        self._values["execution_count"] = number + 1
        return failure

    def _show(self, number: int, value: object) -> None:
        """Show the value of the cell, as the shell's display hook does, which is asked for anything that is not simple."""
        hook = self._shell.displayhook
        is_long = isinstance(value, int) and value.bit_length() > _LONG
        if is_long or type(value) not in SHOWN_BY_REPR or not self._additions.leave_simple_values():
            hook(value)
            return
        data = {"text/plain": repr(value)}
        if not self._keep_value(hook, number, value):
            hook.check_for_underscore()
            hook.update_user_ns(value)
        self._show_forms(data)
        if self._notes_later:
            self._shown = number, data
        else:
            hook.log_output(data)

    def tidy(self) -> None:
        """Note the value that was shown last: do what the hook's `log_output` does where nothing is written to a log file."""
        if self._shown is None:
            return
        (number, data), self._shown = self._shown, None
        manager: Any = self._values["history_manager"]
        if self._shell.logger.log_output:
            self._shell.displayhook.log_output(data)
        else:
            manager.outputs[number].append(self._output_record("execute_result", data))
            manager._trait_values["output_hist_reprs"][number] = data["text/plain"]

    def _keep_value(self, hook: Any, number: int, value: object) -> bool:
        """Do what the hook's `update_user_ns` does where code has left its variables alone; tell whether it has."""
        variables: dict[str, object] = self._shell.user_ns
        hidden, outputs = self._shell.user_ns_hidden, self._shell.user_ns["_oh"]
        shown = hook._, hook.__, hook.___
        if (
            not all(map(is_, map(variables.get, _SHOWN), shown))
            or "_" in _BUILTINS
            or len(outputs) >= hook.cache_size
        ):
            return False
        hook._, hook.__, hook.___ = value, *shown[:2]
        new = {"_": value, "__": shown[0], "___": shown[1], f"_{number}": value}
        variables.update(new)
        hidden.update(new)
        outputs[number] = value
        return True

    def _remember(self, code: str, variables: dict[str, Any]) -> int:
        """Number the input, as `HistoryManager.store_inputs` does, without the bookkeeping of its attributes."""
        number, manager = self._values["execution_count"], self._values["history_manager"]
        last: dict[str, Any] = manager._trait_values
        last["input_hist_parsed"].append(code)
        last["input_hist_raw"].append(code)
        last["_iii"], last["_ii"], last["_i"] = last["_ii"], last["_i"], last["_i00"]
        last["_i00"] = variables[f"_i{number}"] = code
        variables["_i"], variables["_ii"], variables["_iii"] = last["_i"], last["_ii"], last["_iii"]
        if self._counts_first:
            self._values["execution_count"] = number + 1
        return number


def forget_old_inputs(shell: Any) -> None:
    """Keep what a session remembers of its inputs from growing for ever."""
    newest = shell._trait_values["execution_count"]
    if newest % _AT_ONCE == 0:
        for old in range(max(1, newest - _REMEMBERED - _AT_ONCE), newest - _REMEMBERED):
            _forget_input(shell, old)
        shell.history_manager.db_input_cache.clear()  # for a database that there is none of
    names = shell.compile._filename_map
    while len(names) > _REMEMBERED:
        oldest = next(iter(names))
        del names[oldest]
        linecache.cache.pop(oldest, None)


def _forget_input(shell: Any, old: int) -> None:
    manager = shell.history_manager
    shell.user_ns.pop(f"_i{old}", None)
    for name in (f"_i{old}", f"_{old}"):
        shell.user_ns_hidden.pop(name, None)
    manager.output_hist_reprs.pop(old, None)
    for outputs in ("outputs", "exceptions"):  # of later versions
        getattr(manager, outputs, {}).pop(old, None)
    for history in (manager.input_hist_parsed, manager.input_hist_raw):
        if old < len(history):
            history[old] = ""
