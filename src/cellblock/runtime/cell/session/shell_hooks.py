"""Detect what user code has added to IPython: event handlers, code transformers, value printers.

To compare all of them before each block takes too long. So the lists and dictionaries that user
code adds to are replaced by ones that record changes, and they are compared only after a change.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

SIMPLE_TYPES = (int, float, complex, bool, str, bytes)  # shown by `repr` unless a hook is set
_LAZY_ATTRIBUTES = ("input_transformer_manager", "input_transformers_post", "ast_transformers")
_TRANSFORMER_LISTS = ("cleanup_transforms", "line_transforms", "token_transformers")
_SHELL_LISTS = ("input_transformers_post", "ast_transformers")
_MUTATING_METHODS: dict[type, str] = {
    list: "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse"
    " sort",
    dict: "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update",
}


class TrackedList(list[Any]):
    """A list that adds to `changes` whenever it changes."""

    def __init__(self, content: list[Any], changes: set[str]) -> None:
        super().__init__(content)
        self.changes = changes


class TrackedDict(dict[Any, Any]):
    """A dictionary that adds to `changes` whenever it changes."""

    def __init__(self, content: dict[Any, Any], changes: set[str]) -> None:
        super().__init__(content)
        self.changes = changes


def _tracking(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def tracked(self: Any, *arguments: Any, **options: Any) -> Any:
        self.changes.add(name)
        return method(self, *arguments, **options)

    return tracked


for _kind in (TrackedList, TrackedDict):
    for _name in _MUTATING_METHODS[_kind.__base__ or object].split():
        setattr(_kind, _name, _tracking(_name, getattr(_kind, _name)))


class ShellHooks:
    """The hooks of one IPython shell, compared with those that it had at the start."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        for name in _LAZY_ATTRIBUTES:
            getattr(shell, name)  # IPython creates the value on first access
        # The shell's attributes without the two calls that traitlets makes for each access.
        self._attributes: dict[str, Any] = shell._trait_values
        self._extension_changes, self._printer_changes = set[str](), set[str]()
        self._track_extensions(self._extension_changes)
        self._track_printers(self._printer_changes)
        self._original_extensions = self._list_extensions()
        self._original_printers = self._list_printers()
        # The results of the last comparison.
        self._has_extensions, self._uses_repr = False, True

    def _list_extensions(self) -> tuple[object, ...]:
        """Return everything that changes when user code extends the shell."""
        transformers = self._attributes["input_transformer_manager"]
        return (
            [list(handlers) for handlers in self._shell.events.callbacks.values()],
            *(list(getattr(transformers, name)) for name in _TRANSFORMER_LISTS),
            *(list(self._attributes[name]) for name in _SHELL_LISTS),
            self._shell.compile.flags,
        )

    def _track_extensions(self, changes: set[str]) -> None:
        """Track changes of what `_list_extensions` returns."""
        transformers = self._attributes["input_transformer_manager"]
        callbacks = self._shell.events.callbacks
        for event, handlers in callbacks.items():
            callbacks[event] = TrackedList(handlers, changes)
        self._shell.events.callbacks = TrackedDict(callbacks, changes)
        for name in _TRANSFORMER_LISTS:
            setattr(transformers, name, TrackedList(getattr(transformers, name), changes))
        for name in _SHELL_LISTS:
            # Not by an assignment to the shell: traitlets would store a plain list.
            self._attributes[name] = TrackedList(self._attributes[name], changes)
        self._tracked, self._flags = self._list_tracked(), self._shell.compile.flags

    def _list_tracked(self) -> list[object]:
        """Return the tracked objects themselves, which user code may replace by others."""
        transformers = self._attributes["input_transformer_manager"]
        return [
            self._shell.events.callbacks,
            transformers.cleanup_transforms,
            transformers.line_transforms,
            transformers.token_transformers,
            self._attributes["input_transformers_post"],
            self._attributes["ast_transformers"],
        ]

    def has_extensions(self) -> bool:
        """Return True if user code has added or changed event handlers or transformers."""
        if self._shell.compile.flags != self._flags or not all(
            map(is_, self._list_tracked(), self._tracked)
        ):
            return self._list_extensions() != self._original_extensions
        if self._extension_changes:
            self._extension_changes.clear()
            self._has_extensions = self._list_extensions() != self._original_extensions
        return self._has_extensions

    def _list_printers(self) -> list[object]:
        """Return everything that changes when user code changes how simple values are shown."""
        formatters = self._shell.display_formatter.formatters.values()
        printers: list[object] = [
            formatter.type_printers.get(kind) for formatter in formatters for kind in SIMPLE_TYPES
        ]
        return [*printers, self._shell.display_formatter.formatters["text/plain"].float_precision]

    def _track_printers(self, changes: set[str]) -> None:
        """Track changes of what `_list_printers` returns."""
        display = self._shell.display_formatter

        def record(change: Any) -> None:
            changes.add(change["name"])

        display.formatters = TrackedDict(display.formatters, changes)
        display.observe(record, "formatters")
        for formatter in display.formatters.values():
            formatter.type_printers = TrackedDict(formatter.type_printers, changes)
            formatter.observe(record, "type_printers")
        display.formatters["text/plain"].observe(record, "float_precision")

    def uses_repr_for_simple_values(self) -> bool:
        """Return True unless user code has changed how values of `SIMPLE_TYPES` are shown."""
        if self._printer_changes:
            self._printer_changes.clear()
            self._uses_repr = self._list_printers() == self._original_printers
        return self._uses_repr
