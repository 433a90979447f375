"""Run blocks of plain Python without IPython's machinery.

IPython takes every block through transformers, event handlers and formatters. For a block that uses
none of them that costs little time, but it writes to hundreds of memory pages, and each of them has
to be copied after the checkpoint before the next block. The fast path keeps only the effects that a
user can see: numbered inputs, source lines in tracebacks, and the tracebacks themselves.
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

from .shell_hooks import SIMPLE_TYPES, ShellHooks

_MAX_INPUTS = 1000  # that the history keeps
_FORGET_INTERVAL = 50  # blocks, after which old inputs are dropped
_LAZY_ATTRIBUTES = ("execution_count", "history_manager")
_LAZY_HISTORY_ATTRIBUTES = ("input_hist_parsed", "input_hist_raw", "output_hist_reprs")
_LAST_VALUES = ("_", "__", "___")  # variables that hold the values shown last
_BUILTINS = vars(builtins)  # a `_` in here is something else, such as the function of gettext
_MAX_BITS = 1000  # larger integers may exceed Python's limit for conversion to text


# The statements of a block, and the expression at its end whose value is shown, if any.
CompiledBlock = tuple[CodeType, CodeType | None]


class FastPath:
    """Decides whether a block can take the fast path, and runs it.

    `show` is called with the MIME bundle of a value to show.
    """

    def __init__(self, shell: Any, show: Callable[[dict[str, Any]], None]) -> None:
        self._shell, self._show_data = shell, show
        for name in _LAZY_ATTRIBUTES:
            getattr(shell, name)  # IPython creates the value on first access
        for name in _LAZY_HISTORY_ATTRIBUTES:
            getattr(shell.history_manager, name)
        self._hooks = ShellHooks(shell)
        # The shell's attributes without the two calls that traitlets makes for each access.
        self._attributes: dict[str, Any] = shell._trait_values
        self._unrecorded: tuple[int, dict[str, Any]] | None = None  # for `record_value`
        history = sys.modules[type(shell.history_manager).__module__]
        self._output_record: Any = getattr(history, "HistoryOutput", None)  # since IPython 9
        # Since IPython 9.13 the count is raised before a block runs, and not after it.
        self._counts_first = shell.displayhook.prompt_count != shell.execution_count
        # Otherwise a deferred record would get the number of the next block.
        self._records_later = self._counts_first and self._output_record is not None

    def compile_block(self, code: str) -> CompiledBlock | None:
        """Compile `code`. Return None if IPython has to run it.

        That is the case for syntax that Python does not know, output that a semicolon suppresses,
        and shells with extensions.
        """
        if "__future__" in code or self._hooks.has_extensions():
            return None
        try:
            tree: Any = compile(code, "<block>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
            if not tree.body:
                return None
            last: Any = tree.body[-1] if isinstance(tree.body[-1], ast.Expr) else None
            if last is not None and (code.rstrip().endswith(";") or "#" in code):
                return None
            name, value = self._register_source(code), None
            if last is not None:
                value = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
                del tree.body[-1]
            return compile(tree, name, "exec", dont_inherit=True), value
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None  # IPython can run it, or reports what is wrong

    def _register_source(self, code: str) -> str:
        """Make the source available to tracebacks. Return the file name to compile it with."""
        number = self._attributes["execution_count"]
        name = f"<ipython-input-{number}>"
        self._shell.compile._filename_map[name] = number
        lines = ("\n".join(code.splitlines()) + "\n").splitlines(keepends=True)
        linecache.cache[name] = len(code), None, lines, name
        return name

    def run_block(self, code: str, compiled: CompiledBlock) -> BaseException | None:
        """Run a block. Return the exception that ended it, whose traceback was shown, or None."""
        shell, names, variables = self._shell, self._shell.user_global_ns, self._shell.user_ns
        variables.pop("__warningregistry__", None)  # show each warning again in each block
        number = self._store_input(code, variables)
        failure: BaseException | None = None
        try:
            statements, value = compiled
            exec(statements, names, variables)
            if value is not None:
                self._show_value(number, eval(value, names, variables))
        except SystemExit as error:
            failure = error
        except BaseException as error:
            failure = error
            trace = error.__traceback__
            # Without the frame of this method. A SyntaxError is shown with the error's own frames.
            error.__traceback__ = trace and trace.tb_next
            shown = type(error), error, error.__traceback__
            shell.showtraceback(shown, tb_offset=0, running_compiled_code=True)
        if self._hooks.has_extensions():
            # The block itself added a handler: that of matplotlib shows its figures.
            shell.events.trigger("post_execute")
        self._attributes["execution_count"] = number + 1
        return failure

    def _show_value(self, number: int, value: object) -> None:
        """Show the value of a block. IPython's display hook does it for all but simple values."""
        hook = self._shell.displayhook
        is_long = isinstance(value, int) and value.bit_length() > _MAX_BITS
        if (
            is_long
            or type(value) not in SIMPLE_TYPES
            or not self._hooks.uses_repr_for_simple_values()
        ):
            hook(value)
            return
        data = {"text/plain": repr(value)}
        if not self._store_value(hook, number, value):
            hook.check_for_underscore()
            hook.update_user_ns(value)
        self._show_data(data)
        if self._records_later:
            self._unrecorded = number, data
        else:
            hook.log_output(data)

    def record_value(self) -> None:
        """Add the value shown last to the history, as `DisplayHook.log_output` does.

        Call it after the answer to a block was sent.
        """
        if self._unrecorded is None:
            return
        (number, data), self._unrecorded = self._unrecorded, None
        manager: Any = self._attributes["history_manager"]
        if self._shell.logger.log_output:
            self._shell.displayhook.log_output(data)
        else:
            manager.outputs[number].append(self._output_record("execute_result", data))
            manager._trait_values["output_hist_reprs"][number] = data["text/plain"]

    def _store_value(self, hook: Any, number: int, value: object) -> bool:
        """Update `_` and the like as `DisplayHook.update_user_ns` does.

        Return False and do nothing if user code has assigned to them.
        """
        variables: dict[str, object] = self._shell.user_ns
        hidden, outputs = self._shell.user_ns_hidden, self._shell.user_ns["_oh"]
        shown = hook._, hook.__, hook.___
        if (
            not all(map(is_, map(variables.get, _LAST_VALUES), shown))
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

    def _store_input(self, code: str, variables: dict[str, Any]) -> int:
        """Store the input as `HistoryManager.store_inputs` does, and return its number."""
        number, manager = self._attributes["execution_count"], self._attributes["history_manager"]
        last: dict[str, Any] = manager._trait_values
        last["input_hist_parsed"].append(code)
        last["input_hist_raw"].append(code)
        last["_iii"], last["_ii"], last["_i"] = last["_ii"], last["_i"], last["_i00"]
        last["_i00"] = variables[f"_i{number}"] = code
        variables["_i"], variables["_ii"], variables["_iii"] = last["_i"], last["_ii"], last["_iii"]
        if self._counts_first:
            self._attributes["execution_count"] = number + 1
        return number


def forget_old_inputs(shell: Any) -> None:
    """Drop old inputs and outputs from the history, so that a session's memory stays bounded."""
    newest = shell._trait_values["execution_count"]
    if newest % _FORGET_INTERVAL == 0:
        for old in range(max(1, newest - _MAX_INPUTS - _FORGET_INTERVAL), newest - _MAX_INPUTS):
            _forget_input(shell, old)
        shell.history_manager.db_input_cache.clear()  # meant for a database, which is disabled
    names = shell.compile._filename_map
    while len(names) > _MAX_INPUTS:
        oldest = next(iter(names))
        del names[oldest]
        linecache.cache.pop(oldest, None)


def _forget_input(shell: Any, old: int) -> None:
    manager = shell.history_manager
    shell.user_ns.pop(f"_i{old}", None)
    for name in (f"_i{old}", f"_{old}"):
        shell.user_ns_hidden.pop(name, None)
    manager.output_hist_reprs.pop(old, None)
    for outputs in ("outputs", "exceptions"):  # since IPython 9
        getattr(manager, outputs, {}).pop(old, None)
    for history in (manager.input_hist_parsed, manager.input_hist_raw):
        if old < len(history):
            history[old] = ""
