"""The short way for cells in which there is nothing of IPython's: plain statements, and perhaps a value to show.

The shell's own way takes such a cell through transformers, event handlers and formatters that have nothing to do for it. That
costs little time, but touches hundreds of pages of memory, each of which must be copied when the session is frozen before the
next cell. What is left here is what can be seen: the numbered input, the cell's source in tracebacks, and these themselves.
"""

from __future__ import annotations

import ast
import linecache
from operator import is_
from types import CodeType
from typing import Any, NamedTuple

from .noted import NotedDict, NotedList

_REMEMBERED = 1000  # inputs that are kept
_SHOWN_BY_REPR = (int, float, complex, bool, str, bytes)
_READ = ("input_transformer_manager", "input_transformers_post", "ast_transformers", "execution_count", "history_manager")
_TRANSFORMS = ("cleanup_transforms", "line_transforms", "token_transformers")
_MORE_TRANSFORMS = ("input_transformers_post", "ast_transformers")
_LONG = 1000  # bits, from which on an integer may be refused as text


class Program(NamedTuple):
    """A cell, compiled: its statements, and the expression at its end whose value is to be shown, if there is one."""

    statements: CodeType
    value: CodeType | None


class PlainCells:
    """Whether a cell of `shell` can go the short way, and that way."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        for name in _READ:
            getattr(shell, name)  # which makes what is made when it is first asked for
        self._values: dict[str, Any] = shell._trait_values  # its attributes, without two calls for each look at one
        self._counts_first = shell.displayhook.prompt_count != shell.execution_count  # since IPython 9.13
        self._extension_changes, self._printer_changes = set[str](), set[str]()
        self._note_extensions(self._extension_changes)
        self._note_printers(self._printer_changes)
        self._as_made, self._formats = self._extensions(), self._printers()
        self._is_extended, self._is_shown_by_repr = False, True  # as far as is known

    # what code can have the shell do more, or otherwise, than it does by itself; to look through all of it is dear

    def _extensions(self) -> tuple[object, ...]:
        """Give what changes when magics and libraries add handlers of cells."""
        transformers = self._values["input_transformer_manager"]
        return (
            [list(handlers) for handlers in self._shell.events.callbacks.values()],
            *(list(getattr(transformers, name)) for name in _TRANSFORMS),
            *(list(self._values[name]) for name in _MORE_TRANSFORMS),
            self._shell.compile.flags,
        )

    def _note_extensions(self, changes: set[str]) -> None:
        """Have changes of what `_extensions` gives noted."""
        transformers, callbacks = self._values["input_transformer_manager"], self._shell.events.callbacks
        for event, handlers in callbacks.items():
            callbacks[event] = NotedList(handlers, changes)
        self._shell.events.callbacks = NotedDict(callbacks, changes)
        for name in _TRANSFORMS:
            setattr(transformers, name, NotedList(getattr(transformers, name), changes))
        for name in _MORE_TRANSFORMS:
            self._values[name] = NotedList(self._values[name], changes)  # an assignment would make a plain list of it
        self._places = self._extension_places()

    def _extension_places(self) -> list[object]:
        """Give the very lists that are noted, in whose place code may put others, and what the compiler is told."""
        transformers, events, values = self._values["input_transformer_manager"], self._shell.events, self._values
        return [
            events.callbacks,
            transformers.cleanup_transforms,
            transformers.line_transforms,
            transformers.token_transformers,
            values["input_transformers_post"],
            values["ast_transformers"],
            self._shell.compile.flags,
        ]

    def _has_extensions(self) -> bool:
        """Tell whether there are other handlers than the shell's own."""
        if not all(map(is_, self._extension_places(), self._places)):
            return self._extensions() != self._as_made
        if self._extension_changes:
            self._extension_changes.clear()
            self._is_extended = self._extensions() != self._as_made
        return self._is_extended

    def _printers(self) -> list[object]:
        """Give what changes when code has values of the simplest kinds shown in another way than by `repr`."""
        formatters = self._shell.display_formatter.formatters.values()
        printers: list[object] = [formatter.type_printers.get(kind) for formatter in formatters for kind in _SHOWN_BY_REPR]
        return [*printers, self._shell.display_formatter.formatters["text/plain"].float_precision]

    def _note_printers(self, changes: set[str]) -> None:
        """Have changes of what `_printers` gives noted."""
        shown = self._shell.display_formatter

        def note(change: Any) -> None:
            changes.add(change["name"])

        shown.formatters = NotedDict(shown.formatters, changes)
        shown.observe(note, "formatters")
        for formatter in shown.formatters.values():
            formatter.type_printers = NotedDict(formatter.type_printers, changes)
            formatter.observe(note, "type_printers")
        shown.formatters["text/plain"].observe(note, "float_precision")

    def _shows_by_repr(self) -> bool:
        """Tell whether nobody has other wishes for values of the simplest kinds."""
        if self._printer_changes:
            self._printer_changes.clear()
            self._is_shown_by_repr = self._printers() == self._formats
        return self._is_shown_by_repr

    def compiled(self, code: str) -> Program | None:
        """Give `code` compiled; None when it is a matter for the shell: its syntax, a semicolon at its end, handlers."""
        if "__future__" in code or self._has_extensions():
            return None
        try:
            tree = ast.parse(code)
            if not tree.body:
                return None
            last = tree.body[-1] if isinstance(tree.body[-1], ast.Expr) else None
            if last is not None and (code.rstrip().endswith(";") or "#" in code):
                return None
            name, value = self._name(code), None
            if last is not None:
                value = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
                del tree.body[-1]
            return Program(compile(tree, name, "exec", dont_inherit=True), value)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None  # the shell knows what it means, or says what is wrong with it

    def _name(self, code: str) -> str:
        """Have tracebacks know the cell by the name that is given here."""
        number = self._values["execution_count"]
        name = f"<ipython-input-{number}>"
        self._shell.compile._filename_map[name] = number
        linecache.cache[name] = len(code), None, [f"{line}\n" for line in code.splitlines()], name
        return name

    def run(self, code: str, program: Program) -> BaseException | None:
        """Run one cell; give the exception that ended it, which has been shown."""
        shell = self._shell
        shell.user_ns.pop("__warningregistry__", None)  # each cell warns anew
        number = self._remember(code)
        failure: BaseException | None = None
        try:
            exec(program.statements, shell.user_global_ns, shell.user_ns)
            if program.value is not None:
                self._show(eval(program.value, shell.user_global_ns, shell.user_ns))
        except SystemExit as error:
            failure = error
        except BaseException as error:
            failure = error
            trace = error.__traceback__
            shown = type(error), error, trace and trace.tb_next  # without this function, which is no part of the cell
            shell.showtraceback(shown, tb_offset=0, running_compiled_code=True)
        if self._has_extensions():
            shell.events.trigger("post_execute")  # a handler that this very cell has brought: matplotlib's draws its figures
        self._values["execution_count"] = number + 1
        return failure

    def _show(self, value: object) -> None:
        """Show the value of the cell, as the shell's display hook does, which is asked for anything that is not simple."""
        hook = self._shell.displayhook
        is_long = isinstance(value, int) and value.bit_length() > _LONG
        if is_long or type(value) not in _SHOWN_BY_REPR or not self._shows_by_repr():
            hook(value)
            return
        data = {"text/plain": repr(value)}
        hook.check_for_underscore()
        hook.update_user_ns(value)
        hook.write_format_data(data, {})
        hook.log_output(data)
        hook.finish_displayhook()

    def _remember(self, code: str) -> int:
        """Number the input, as `HistoryManager.store_inputs` does, without the bookkeeping of its attributes."""
        variables, number, manager = self._shell.user_ns, self._values["execution_count"], self._values["history_manager"]
        manager.input_hist_parsed.append(code)
        manager.input_hist_raw.append(code)
        last = manager._trait_values
        last["_iii"], last["_ii"], last["_i"] = last["_ii"], last["_i"], last["_i00"]
        last["_i00"] = variables[f"_i{number}"] = code
        variables["_i"], variables["_ii"], variables["_iii"] = last["_i"], last["_ii"], last["_iii"]
        if self._counts_first:
            self._values["execution_count"] = number + 1
        return number


def forget_old_inputs(shell: Any) -> None:
    """Keep what a session remembers of its inputs from growing for ever."""
    manager = shell.history_manager
    manager.db_input_cache.clear()  # for a database that there is none of
    old = shell.execution_count - _REMEMBERED
    if old > 0:
        shell.user_ns.pop(f"_i{old}", None)
        for name in (f"_i{old}", f"_{old}"):
            shell.user_ns_hidden.pop(name, None)
        manager.output_hist_reprs.pop(old, None)
        for outputs in ("outputs", "exceptions"):  # of later versions
            getattr(manager, outputs, {}).pop(old, None)
        for history in (manager.input_hist_parsed, manager.input_hist_raw):
            if old < len(history):
                history[old] = ""
        names = shell.compile._filename_map
        if len(names) > _REMEMBERED:
            oldest = next(iter(names))
            del names[oldest]
            linecache.cache.pop(oldest, None)
