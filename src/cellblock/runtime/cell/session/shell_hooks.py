"""What code has added to a session's shell: handlers of cells, transformers of code, printers of values.

To look through all of it before each cell is dear. So the lists that code adds to are put aside for ones that note changes
(`noted`), and only after one is it looked whether the shell still does what it does by itself.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from .tracked import NotedDict, NotedList

SHOWN_BY_REPR = (int, float, complex, bool, str, bytes)
_READ = ("input_transformer_manager", "input_transformers_post", "ast_transformers")
_TRANSFORMS = ("cleanup_transforms", "line_transforms", "token_transformers")
_MORE_TRANSFORMS = ("input_transformers_post", "ast_transformers")


class Additions:
    """What there is of it in `shell`."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        for name in _READ:
            getattr(shell, name)  # which makes what is made when it is first asked for
        self._values: dict[str, Any] = (
            shell._trait_values
        )  # its attributes, without two calls for each look at one
        self._extension_changes, self._printer_changes = set[str](), set[str]()
        self._note_extensions(self._extension_changes)
        self._note_printers(self._printer_changes)
        self._as_made, self._formats = self._extensions(), self._printers()
        self._is_extended, self._is_shown_by_repr = False, True  # as far as is known

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
        transformers, callbacks = (
            self._values["input_transformer_manager"],
            self._shell.events.callbacks,
        )
        for event, handlers in callbacks.items():
            callbacks[event] = NotedList(handlers, changes)
        self._shell.events.callbacks = NotedDict(callbacks, changes)
        for name in _TRANSFORMS:
            setattr(transformers, name, NotedList(getattr(transformers, name), changes))
        for name in _MORE_TRANSFORMS:
            self._values[name] = NotedList(
                self._values[name], changes
            )  # an assignment would make a plain list of it
        self._places, self._flags = self._extension_places(), self._shell.compile.flags

    def _extension_places(self) -> list[object]:
        """Give the very lists that are noted, in whose place code may put others."""
        transformers, events, values = (
            self._values["input_transformer_manager"],
            self._shell.events,
            self._values,
        )
        return [
            events.callbacks,
            transformers.cleanup_transforms,
            transformers.line_transforms,
            transformers.token_transformers,
            values["input_transformers_post"],
            values["ast_transformers"],
        ]

    def handle_cells(self) -> bool:
        """Tell whether there are other handlers than the shell's own."""
        if self._shell.compile.flags != self._flags or not all(
            map(is_, self._extension_places(), self._places)
        ):
            return self._extensions() != self._as_made
        if self._extension_changes:
            self._extension_changes.clear()
            self._is_extended = self._extensions() != self._as_made
        return self._is_extended

    def _printers(self) -> list[object]:
        """Give what changes when code has values of the simplest kinds shown in another way than by `repr`."""
        formatters = self._shell.display_formatter.formatters.values()
        printers: list[object] = [
            formatter.type_printers.get(kind) for formatter in formatters for kind in SHOWN_BY_REPR
        ]
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

    def leave_simple_values(self) -> bool:
        """Tell whether nobody has other wishes for values of the simplest kinds."""
        if self._printer_changes:
            self._printer_changes.clear()
            self._is_shown_by_repr = self._printers() == self._formats
        return self._is_shown_by_repr
