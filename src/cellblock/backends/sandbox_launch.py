"""Launch the runtime server of a sandbox, which need not wait for it.

It takes as long as the imports that an executor needs: a program that knows early which sandbox it
will use launches it first.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..environments.interpreter import create_environment
from ..runtime.linux.safe_folder import remove_tree
from ..runtime.packets import encode_packet
from .sandbox import ENVIRONMENT, SandboxBackend
from .scratch import create_scratch
from .server_process import SandboxServerProcess


class SandboxLaunch:
    """A runtime server that was launched and has its specification.

    backend   what it was told
    server    its process
    scratch   the folders that its zygote sees instead of those of an executor
    """

    def __init__(
        self, backend: SandboxBackend, work_dir: str, server: SandboxServerProcess
    ) -> None:
        """Send `server` its specification, or end it and raise an error, such as `BackendError`.

        Its own folders are outside of `work_dir`.
        """
        self.backend, self.server = backend, server
        try:
            self.scratch = create_scratch("cellblock-scratch-", work_dir)
            backend.scratch, backend.work_dir = str(self.scratch), str(self.scratch / "work")
            backend.delete, backend.listener = [backend.scratch], server.listener_number
            os.mkdir(backend.work_dir)
            self.populate(self.scratch)
            server.stream.sendall(backend.opening_frame())
        except BaseException:
            server.abandon()
            if backend.scratch:
                remove_tree(backend.scratch)
            raise

    def populate(self, folder: Path) -> None:
        """Create the home and the Python environment of one executor in `folder`."""
        os.makedirs(folder / "home")
        create_environment(
            folder / "env",
            self.backend.interpreter,
            self.backend.packages,
            visible_path=ENVIRONMENT,
        )


def launch_early(backend: SandboxBackend, work_dir: str, server: SandboxServerProcess) -> None:
    """Launch `server` for the executor that will be the first one with these settings.

    Raise `BackendError` or `OSError`. The server ends with this process if no executor takes it.
    """
    launch = SandboxLaunch(backend, work_dir, server)
    _early[sharing_key(backend, [os.path.realpath(work_dir), str(launch.scratch)])] = launch


def take_early(key: str) -> SandboxLaunch | None:
    """Return the server that `launch_early` has launched for executors with this key."""
    return _early.pop(key, None)


_early: dict[str, SandboxLaunch] = {}


def sharing_key(
    backend: SandboxBackend, own_paths: Sequence[str], *, has_tenants: bool = True
) -> str:
    """Return a key that is equal only for backends that may share a server.

    `own_paths` are the paths that only this executor mounts. A server has tenants or live sessions.

    It contains all settings, and the device and inode of each path in them, since another file
    can take a path.
    """
    paths = [mount.source for mount in backend.sandbox.mounts]
    identities = [(status.st_dev, status.st_ino) for status in map(os.stat, paths)]
    counts_apart = (
        backend.limits.processes is None
        or backend.settings.cgroups is not None
        or (has_tenants and backend.settings.zygote.own_users)
    )
    exclusive = 0 if counts_apart else next(_exclusive_numbers)
    others = [identities, _find_mounts(paths, own_paths), exclusive]
    return encode_packet(backend.settings).decode() + json.dumps(others)


def _find_mounts(paths: Iterable[str], own_paths: Sequence[str]) -> list[str]:
    """Return the mounts below the paths, and those that contain `own_paths`.

    They are lines of /proc/self/mountinfo; see proc(5). A server does not see mounts that were made
    after its start.
    """
    with open("/proc/self/mountinfo") as file:
        lines = [(line.split(" ", 5)[4], line) for line in file]
    prefixes = tuple(f"{path}/" for path in (*paths, *own_paths))
    found = {line for target, line in lines if target.startswith(prefixes)}
    for path in own_paths:
        inside = f"{path}/"
        holders = [line for target, line in lines if inside.startswith(f"{target.rstrip('/')}/")]
        found.update(holders[-1:])  # a later mount covers an earlier one
    return sorted(found)


_exclusive_numbers = itertools.count(1)
