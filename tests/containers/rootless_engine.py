"""Engines that a plain user runs, each in a folder of its own and ended by its process id, and what /etc has for them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.containers.docker_engine import Engine
from tests.plain_user import BECOME, USER

_PATIENCE = 60.0
NAME = "cellblock-test"
FIRST_NUMBER = 0x60000000  # of 65536 that are nobody's
_NO_NETWORK = {
    "DOCKERD_ROOTLESS_ROOTLESSKIT_NET": "host",
    "DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER": "none",
}
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def with_users(folder: Path) -> list[str]:
    """Give what a command begins with that is to find a user in /etc, and numbers of users for it; nobody else finds them."""
    numbers = f"{NAME}:{FIRST_NUMBER}:65536\n"
    entries = {
        "passwd": f"{Path('/etc/passwd').read_text()}{NAME}:x:{USER}:{USER}::{folder}:/bin/sh\n",
        "group": f"{Path('/etc/group').read_text()}{NAME}:x:{USER}:\n",
        "subuid": numbers,
        "subgid": numbers,
    }
    for name, text in entries.items():
        (folder / name).write_text(text)
    mounts = "".join(f'mount --bind "$0/{name}" /etc/{name} && ' for name in entries)
    return [
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "sh",
        "-c",
        f'{mounts}exec "$@"',
        str(folder),
    ]


@contextlib.contextmanager
def podman() -> Generator[Engine]:
    """Give Podman's engine, run by the plain user."""
    _need("podman", "runc", "newuidmap")
    with _folder("podman") as folder:
        options = [f"--{name}={folder}/{name}" for name in ("root", "runroot", "tmpdir")]
        options += [
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--events-backend=file",
            "--storage-driver=overlay",
        ]
        argv = [
            *BECOME,
            "podman",
            *options,
            "system",
            "service",
            "--time=0",
            f"unix://{folder}/podman.sock",
        ]
        with _started(folder, [*with_users(folder), *argv], "podman.sock") as engine:
            yield engine


@contextlib.contextmanager
def docker() -> Generator[Engine]:
    """Give Docker's engine, run by the plain user."""
    script = Path("/usr/share/docker.io/contrib/dockerd-rootless.sh")
    _need("rootlesskit", "newuidmap", "dockerd", str(script))
    with _folder("docker") as folder:
        options = [
            f"--data-root={folder}/root",
            f"--exec-root={folder}/exec",
            f"--pidfile={folder}/pid",
        ]
        options += [f"--host=unix://{folder}/docker.sock", "--iptables=false", "--bridge=none"]
        argv = [*with_users(folder), *BECOME, "sh", str(script), *options]
        with _started(folder, argv, "docker.sock", **_NO_NETWORK) as engine:
            yield engine


def _need(*programs: str) -> None:
    missing = [
        name for name in programs if not shutil.which(name, path=_PATH) and not os.path.exists(name)
    ]
    if os.geteuid() != 0 or missing:
        pytest.skip(
            f"a rootless engine needs {', '.join(missing) or 'root, to become a plain user'}"
        )


@contextlib.contextmanager
def _folder(name: str) -> Generator[Path]:
    """Give a folder of the plain user's, with what a home has."""
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
def _started(folder: Path, argv: Sequence[str], socket: str, **variables: str) -> Generator[Engine]:
    own = {
        "HOME": f"{folder}/home",
        "XDG_RUNTIME_DIR": f"{folder}/run",
        "PATH": _PATH,
        "TMPDIR": f"{folder}/run",
    }
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**own, **variables},
            cwd=folder,
            start_new_session=True,
        )
    engine = Engine(f"unix://{folder}/{socket}", process)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not engine.answers():
            said = (folder / "log").read_text(errors="replace")[-2000:]
            assert process.poll() is None, f"the engine ended: {said}"
            assert time.monotonic() < deadline, f"the engine did not start: {said}"
            time.sleep(0.1)
        yield engine
    finally:
        engine.stop()
        _end_what_is_left(folder)


def _end_what_is_left(folder: Path) -> None:
    """End what the engine left running; who it was started by is in its environment.

    Podman starts itself again, below its first process, and leaves a process that holds the user's namespaces.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                entry.stat().st_uid == USER
                and f"={folder}/".encode() in (entry / "environ").read_bytes()
            ):
                os.kill(int(entry.name), signal.SIGKILL)
