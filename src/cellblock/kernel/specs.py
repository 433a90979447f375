"""Install, list and remove the kernels of `cellblock kernel` in Jupyter's folders."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from ..errors import CellblockError

# `-P`: code in the work folder must not replace modules of the kernel's own process.
_COMMAND = (sys.executable, "-P", "-m", "cellblock", "kernel", "start")
_MARK = "cellblock"  # a key of the metadata of our kernels


class KernelSpecError(CellblockError):
    """A kernel cannot be installed or removed. The message says why."""


@dataclass(frozen=True)
class InstalledKernel:
    """A kernel that `install_kernel` has installed, and the options of its command."""

    name: str
    folder: str
    display_name: str
    options: tuple[str, ...]


def install_kernel(
    name: str, display_name: str, options: Sequence[str], *, prefix: str | None = None
) -> str:
    """Install or replace the kernel `name`, and return its folder.

    It goes to the user's folder, or below `prefix`. Raise `KernelSpecError` if the name is not
    valid, belongs to a kernel of another program, or the folder cannot be written.
    """
    manager, own = _manager(prefix), {kernel.name for kernel in list_kernels(prefix)}
    if name in manager.find_kernel_specs() and name not in own:
        raise KernelSpecError(
            f"There is a kernel {name!r} that Cellblock did not install. Choose another --name."
        )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.json").write_text(json.dumps(_spec(display_name, options), indent=1))
        try:
            return manager.install_kernel_spec(
                folder, name, user=prefix is None, prefix=prefix, replace=True
            )
        except (OSError, ValueError) as error:
            raise KernelSpecError(f"The kernel {name!r} cannot be installed: {error}") from error


def _spec(display_name: str, options: Sequence[str]) -> dict[str, Any]:
    return {
        "argv": [*_COMMAND, "--connection-file", "{connection_file}", *options],
        "display_name": display_name,
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {_MARK: {"options": list(options)}, "debugger": False},
    }


def _manager(prefix: str | None) -> KernelSpecManager:
    """Return the kernels that Jupyter finds; with `prefix`, those below it."""
    if prefix is None:
        return KernelSpecManager()
    folder = str(Path(prefix, "share", "jupyter", "kernels"))
    return KernelSpecManager(kernel_dirs=[folder], ensure_native_kernel=False)


def list_kernels(prefix: str | None = None) -> list[InstalledKernel]:
    """Return the installed kernels of Cellblock, sorted by name; with `prefix`, those below it."""
    manager, found = _manager(prefix), list[InstalledKernel]()
    for name, folder in sorted(manager.find_kernel_specs().items()):
        try:
            spec = manager.get_kernel_spec(name)
        except (NoSuchKernel, OSError, ValueError):
            continue  # another program's, and damaged
        mark: Any = spec.metadata.get(_MARK)
        if mark is not None:
            options = tuple(str(option) for option in mark["options"])
            found.append(InstalledKernel(name, folder, spec.display_name, options))
    return found


def remove_kernel(name: str, *, prefix: str | None = None) -> str:
    """Remove the kernel `name`, which may be below `prefix`, and return its folder.

    Raise `KernelSpecError` if there is none, it is not one of Cellblock's, or cannot be removed.
    """
    if name not in {kernel.name for kernel in list_kernels(prefix)}:
        place = "" if prefix is None else f" below {prefix}"
        raise KernelSpecError(
            f"Cellblock has installed no kernel {name!r}{place}. See `cellblock kernel list`, or "
            "use the --prefix with which it was installed."
        )
    try:
        return _manager(prefix).remove_kernel_spec(name)
    except OSError as error:
        raise KernelSpecError(f"The kernel {name!r} cannot be removed: {error}") from error
