"""What a root file system of one's own changes in the orders to a box."""

from __future__ import annotations

import os

from ..runtime.box_orders import (
    BoxOrder,
    EndCommands,
    HoldOutput,
    ListCommands,
    RunCommand,
    SignalCommand,
)
from ..sandbox.images.root_file_system import RootFileSystem

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def with_root_defaults(order: BoxOrder, root: RootFileSystem) -> BoxOrder:
    """Return `order` with the variables of `root`, and relative paths that begin where it says."""
    if isinstance(order, RunCommand):
        variables = [("PATH", _PATH), *(_variable(text) for text in root.environment)]
        return order._replace(env=(*variables, *order.env), cwd=_path(order.cwd, root))
    if isinstance(order, SignalCommand | HoldOutput | ListCommands | EndCommands):
        return order
    return order._replace(path=_path(order.path, root))


def _path(path: str, root: RootFileSystem) -> str:
    return os.path.join(root.work_dir, path) if path else root.work_dir


def _variable(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
