"""Settings of libraries that detect a notebook by its kernel, or the width of a terminal.

A session has neither: pandas takes it for a terminal, and plotly for a page that has plotly.js.
Libraries get the settings of a notebook, and the width of the user's terminal, when imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

_NOTEBOOK_COLUMNS = 20
_RENDERER = "page"  # the name of a renderer for plotly's figures

_columns = 0  # of the terminal that shows the output; 0 if there is none
_WIDTHS = {"IPython": 79, "pandas": 80, "numpy": 75}  # of libraries, until they are set


def _new_width(library: str, width: int) -> int:
    """Return the width of a library whose current one is `width`: the same if a block set it."""
    if not _columns or width != _WIDTHS[library]:
        return width
    _WIDTHS[library] = _columns
    return _columns


def fit_to_terminal(columns: int, ipython: Any) -> None:
    """Let what blocks print fit into a terminal of so many `columns`; 0 changes nothing."""
    global _columns
    if columns in (0, _columns):
        return
    _columns = columns
    for name in ("COLUMNS", "POLARS_TABLE_WIDTH"):
        os.environ[name] = str(columns)
    formatter = ipython.display_formatter.formatters["text/plain"]
    formatter.max_width = _new_width("IPython", formatter.max_width)
    for name in _WIDTHS:
        if name in sys.modules and name in _SETTINGS:
            _try(_SETTINGS[name], sys.modules[name])


def _set_numpy(numpy: Any) -> None:
    """Break the lines of arrays at the width of the terminal."""
    if _columns:
        width = _new_width("numpy", numpy.get_printoptions()["linewidth"])
        numpy.set_printoptions(linewidth=width)


def _set_pandas(pandas: Any) -> None:
    """Show as many columns as in a notebook, at the width of the terminal."""
    width = pandas.get_option("display.width")
    pandas.set_option("display.width", _new_width("pandas", width))
    if pandas.get_option("display.max_columns") == 0:  # as many as fit into a terminal
        pandas.set_option("display.max_columns", _NOTEBOOK_COLUMNS)


def _set_plotly(io: Any) -> None:
    """Show figures as whole pages with plotly.js: each is saved as a separate file."""
    if "PLOTLY_RENDERER" in os.environ:
        return
    renderer = io.base_renderers.HtmlRenderer(full_html=True)
    if hasattr(renderer, "requirejs"):  # before plotly 6
        renderer.requirejs = False
    io.renderers[_RENDERER] = renderer
    io.renderers.default = f"plotly_mimetype+{_RENDERER}"


_SETTINGS: dict[str, Callable[[Any], None]] = {
    "numpy": _set_numpy,
    "pandas": _set_pandas,
    "plotly.io": _set_plotly,
}


class _Finder:
    """A finder for `sys.meta_path` that changes the settings of a library after its import."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in _SETTINGS:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                _call_after_import(spec, _SETTINGS[name])
                return spec
        return None


def _call_after_import(spec: ModuleSpec, change: Callable[[Any], None]) -> None:
    loader: Any = spec.loader
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        _try(change, module)

    loader.exec_module = exec_module


def _try(change: Callable[[Any], None], module: Any) -> None:
    try:
        change(module)
    except Exception:
        return  # another version of the library, which has its own defaults


def use_in_session() -> None:
    """Change the settings of each library now, or once it is imported."""
    for name, change in _SETTINGS.items():
        if name in sys.modules:
            _try(change, sys.modules[name])
    sys.meta_path.insert(0, _Finder())
