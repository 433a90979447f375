"""How the values of a session's variables are pickled: what blocks define goes along by value.

It builds on cloudpickle. Different from it, functions keep the variables of the session as their
globals, closures share their cells, and code objects keep the names of their files.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import marshal
import pickle
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, cast

_namespace: dict[Any, Any] = {}  # the variables of the session that is saved or loaded


def use_namespace(variables: dict[Any, Any]) -> None:
    """Set the variables of the session, which are the globals of the functions of blocks."""
    global _namespace
    _namespace = variables


def is_available() -> bool:
    """Return True if values can be saved with the packages of this Python."""
    return _cloudpickle() is not None


@functools.cache
def _cloudpickle() -> Any:
    for name in ("cloudpickle", "cellblock.cloudpickle"):  # the second one is brought along by us
        with contextlib.suppress(Exception):
            return importlib.import_module(name)
    return None


def dump(value: object, sink: Any, add_buffer: Callable[[Any], object] | None = None) -> None:
    """Pickle `value` to the file `sink`. Raise any exception if that is not possible.

    With `add_buffer`, large arrays are passed to it instead of being copied.
    """
    _pickler_class()(sink, protocol=5, buffer_callback=add_buffer).dump(value)


def try_in_new_process(value: object) -> None:
    """Pickle `value` and load it as a new process does. Raise any exception if that fails.

    Call it in a fork that ends afterwards: cloudpickle does not know its classes any more.
    """
    data, buffers = io.BytesIO(), list[Any]()
    dump(value, data, buffers.append)
    module: Any = sys.modules[_cloudpickle().Pickler.__module__]
    for known in (module._DYNAMIC_CLASS_TRACKER_BY_CLASS, module._DYNAMIC_CLASS_TRACKER_BY_ID):
        known.clear()
    data.seek(0)
    _NewProcessUnpickler(data, buffers=buffers).load()


class _NewProcessUnpickler(pickle.Unpickler):
    """Loads nothing from modules that only this process has."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return the object with that name."""
        if global_name == "subimport":  # of cloudpickle: the module itself
            return _import_new
        _import_new(module_name)
        return super().find_class(module_name, global_name)


def _import_new(name: str) -> types.ModuleType:
    module = importlib.import_module(name)
    if getattr(module, "__spec__", None) is None and name != "__main__":
        raise pickle.UnpicklingError(f"a new process has no module {name!r}")
    return module


@functools.cache
def _pickler_class() -> Any:
    base: Any = _cloudpickle().Pickler

    class Pickler(base):
        """Pickles what blocks define by value, and keeps their functions in one namespace."""

        def reducer_override(self, obj: Any) -> Any:
            kind = cast("type[Any]", type(obj))
            if kind is types.FunctionType and obj.__globals__ is _namespace:
                return _reduce_function(obj)
            if kind is types.CodeType:  # by cloudpickle it would lose the name of its file
                return marshal.loads, (marshal.dumps(obj),)
            if kind is types.CellType:
                return _reduce_cell(obj)
            if isinstance(obj, io.IOBase) and not _is_in_memory(obj):
                raise pickle.PicklingError("an open file cannot be pickled")
            if isinstance(obj, threading.Thread):
                raise pickle.PicklingError("a thread cannot be pickled")
            if (reduce := _reducers().get(kind)) is not None:
                return reduce(obj)
            return base.reducer_override(self, obj)

    return Pickler


def _is_in_memory(file: io.IOBase) -> bool:
    return isinstance(file, io.BytesIO | io.StringIO) or file in (sys.stdout, sys.stderr)


def _reducers() -> dict[type, Callable[[Any], Any]]:
    """Return how to pickle types that cannot be pickled otherwise, or only with threads."""
    # A lock becomes a free one: the thread that may have held it is gone.
    found: dict[type, Callable[[Any], Any]] = {
        type(threading.Lock()): lambda _lock: (threading.Lock, ()),
        type(threading.RLock()): lambda _lock: (threading.RLock, ()),
    }
    polars: Any = sys.modules.get("polars")
    with contextlib.suppress(AttributeError):  # not loaded, or not yet complete
        found[polars.DataFrame] = _reduce_polars_frame
        found[polars.Series] = _reduce_polars_series
    return found


def _reduce_polars_frame(frame: Any) -> Any:
    return type(frame), ([series.rechunk() for series in frame.get_columns()],)


def _reduce_polars_series(series: Any) -> Any:
    return (series.rechunk() if series.n_chunks() > 1 else series).__reduce_ex__(5)


def _reduce_function(function: Any) -> Any:
    """Return how to make a function that a block has defined: its globals are the variables."""
    attributes = ("__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__")
    state = {name: getattr(function, name) for name in (*attributes, "__annotations__")}
    state["__dict__"] = function.__dict__
    if parameters := getattr(function, "__type_params__", ()):
        state["__type_params__"] = parameters
    arguments = function.__code__, function.__name__, function.__closure__
    return _make_function, arguments, state, None, None, _set_function_state


def _make_function(code: types.CodeType, name: str, closure: Any) -> types.FunctionType:
    return types.FunctionType(code, _namespace, name, None, closure)


def _set_function_state(function: types.FunctionType, state: dict[str, Any]) -> None:
    function.__dict__.update(state.pop("__dict__"))
    for name, value in state.items():
        setattr(function, name, value)


def _reduce_cell(cell: types.CellType) -> Any:
    try:
        state = (cell.cell_contents,)
    except ValueError:
        return _make_cell, ()
    return _make_cell, (), state, None, None, _fill_cell


def _make_cell() -> types.CellType:
    return types.CellType()


def _fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    cell.cell_contents = state[0]
