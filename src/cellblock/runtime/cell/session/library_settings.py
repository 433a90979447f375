"""Settings of libraries that detect a notebook by its kernel. They get those of one when imported.

A session has no kernel: pandas takes it for a terminal, and plotly for a page that has plotly.js.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

_NOTEBOOK_COLUMNS = 20
_RENDERER = "page"  # the name of a renderer for plotly's figures


def _set_pandas(pandas: Any) -> None:
    """Show as many columns as in a notebook."""
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


_SETTINGS: dict[str, Callable[[Any], None]] = {"pandas": _set_pandas, "plotly.io": _set_plotly}


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
