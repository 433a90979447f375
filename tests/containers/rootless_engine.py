"""Rootless engines for tests, each in its own folder, and the entries in /etc that they need."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.containers import docker_engine as docker_engines
from tests.containers.docker_engine import Engine
from tests.plain_user import SWITCH_USER, USER

USER_NAME = "cellblock-test"
FIRST_SUBORDINATE_ID = 0x60000000  # the first of 65536 unused user IDs
_HOST_NETWORK = {
    "DOCKERD_ROOTLESS_ROOTLESSKIT_NET": "host",
    "DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER": "none",
}
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def subordinate_ids_prefix(folder: Path) -> list[str]:
    """Return a command prefix that adds a user with subordinate IDs to /etc, for one command."""
    ids = f"{USER_NAME}:{FIRST_SUBORDINATE_ID}:65536\n"
    entries = {
        "passwd": Path("/etc/passwd").read_text()
        + f"{USER_NAME}:x:{USER}:{USER}::{folder}:/bin/sh\n",
        "group": f"{Path('/etc/group').read_text()}{USER_NAME}:x:{USER}:\n",
        "subuid": ids,
        "subgid": ids,
    }
    for name, text in entries.items():
        (folder / name).write_text(text)
    mounts = "".join(f'mount --bind "$0/{name}" /etc/{name} && ' for name in entries)
    unshare = ["unshare", "--mount", "--propagation", "slave"]
    return [*unshare, "sh", "-c", f'{mounts}exec "$@"', str(folder)]


@contextlib.contextmanager
def podman_engine() -> Generator[Engine]:
    """Yield a Podman engine that an unprivileged user runs."""
    _require("podman", "runc", "newuidmap")
    with _user_folder("podman") as folder:
        options = [f"--{name}={folder}/{name}" for name in ("root", "runroot", "tmpdir")]
        options += ["--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file"]
        service = ["system", "service", "--time=0", f"unix://{folder}/podman.sock"]
        argv = [*SWITCH_USER, "podman", *options, "--storage-driver=overlay", *service]
        with _started_engine(
            folder, [*subordinate_ids_prefix(folder), *argv], "podman.sock"
        ) as engine:
            yield engine


@contextlib.contextmanager
def docker_engine() -> Generator[Engine]:
    """Yield a Docker engine that an unprivileged user runs."""
    script = Path("/usr/share/docker.io/contrib/dockerd-rootless.sh")
    _require("rootlesskit", "newuidmap", "dockerd", str(script))
    with _user_folder("docker") as folder:
        options = [
            f"--data-root={folder}/root",
            f"--exec-root={folder}/exec",
            f"--pidfile={folder}/pid",
        ]
        options += [f"--host=unix://{folder}/docker.sock", "--iptables=false", "--bridge=none"]
        argv = [*subordinate_ids_prefix(folder), *SWITCH_USER, "sh", str(script), *options]
        with _started_engine(folder, argv, "docker.sock", **_HOST_NETWORK) as engine:
            yield engine


def _require(*programs: str) -> None:
    missing = [
        name for name in programs if not shutil.which(name, path=_PATH) and not os.path.exists(name)
    ]
    if os.geteuid() != 0 or missing:
        pytest.skip(
            f"a rootless engine needs {', '.join(missing) or 'root, to become another user'}"
        )


@contextlib.contextmanager
def _user_folder(name: str) -> Generator[Path]:
    """Yield a folder of the unprivileged user, with a home and a runtime folder."""
    folder = Path(tempfile.mkdtemp(prefix="cellblock-own-"))
    folder.chmod(0o711)
    for path in (folder / "home", folder / "run", folder):
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, USER, USER)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _started_engine(
    folder: Path, argv: Sequence[str], socket: str, **variables: str
) -> Generator[Engine]:
    environment = {
        "HOME": f"{folder}/home",
        "XDG_RUNTIME_DIR": f"{folder}/run",
        "PATH": _PATH,
        "TMPDIR": f"{folder}/run",
    }
    host = f"unix://{folder}/{socket}"
    engine = docker_engines.launch_engine(argv, host, folder, {**environment, **variables})
    try:
        docker_engines.await_engine(engine)
        yield engine
    finally:
        engine.stop()
        _kill_leftovers(folder)


def _kill_leftovers(folder: Path) -> None:
    """Kill the processes that the engine left running; their environment names the folder.

    Podman restarts itself in a child process, and leaves a process that keeps the user's
    namespaces.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                entry.stat().st_uid == USER
                and f"={folder}/".encode() in (entry / "environ").read_bytes()
            ):
                os.kill(int(entry.name), signal.SIGKILL)
