"""Podman's engine for tests, which speaks as Docker's does: one of our own, ended by its process id."""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.containers.docker_engine import Engine

_PATIENCE = 30.0


@functools.cache
def running() -> Engine:
    """Give an engine of ours, which ends with the tests. Its folder stays, and the images in it."""
    programs = [
        shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        for name in ("podman", "runc", "docker")
    ]
    if None in programs or os.geteuid() != 0:
        pytest.skip(
            "there is no podman, or no runc, to start (Debian: podman, runc), or no `docker` command, or not for this user"
        )
    folder = Path(tempfile.gettempdir(), "cellblock-test-podman")
    folder.mkdir(mode=0o700, exist_ok=True)
    engine = Engine(f"unix://{folder}/podman.sock")
    if not engine.answers():  # else a killed run left it behind
        engine.process = _start(folder, engine.host)
        atexit.register(engine.stop)
        deadline = time.monotonic() + _PATIENCE
        while not engine.answers():
            if engine.process.poll() is not None or time.monotonic() > deadline:
                engine.stop()
                raise AssertionError(
                    f"podman did not start: {(folder / 'log').read_text()[-2000:]}"
                )
            time.sleep(0.1)
    return engine


def _start(folder: Path, host: str) -> subprocess.Popen[bytes]:
    # Podman gives root's containers a million of each, which it may not where the machine allows root less; and lowers its
    # own number of processes to what the kernel has numbers for.
    files, processes = (
        resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
    )
    numbers = int(Path("/proc/sys/kernel/pid_max").read_text())
    processes = numbers if processes == resource.RLIM_INFINITY else min(processes, numbers)
    limits = [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]
    settings = folder / "containers.conf"
    settings.write_text(f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n")
    # Not Debian's default runtime: crun 1.8 refuses machines that have both versions of control groups.
    argv = [
        "podman",
        "--root",
        f"{folder}/root",
        "--runroot",
        f"{folder}/run",
        "--tmpdir",
        f"{folder}/tmp",
        "--runtime",
        "runc",
    ]
    argv += [
        "--cgroup-manager",
        "cgroupfs",
        "--events-backend",
        "file",
        "system",
        "service",
        "--time",
        "0",
        host,
    ]
    environment = {**os.environ, "CONTAINERS_CONF": str(settings)}
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def prepare(monkeypatch: pytest.MonkeyPatch, image: str) -> str:
    """Have executors use Podman; give the reference of a test image."""
    monkeypatch.setenv("DOCKER_HOST", running().host)
    return running().image(image)
