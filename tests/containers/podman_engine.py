"""A Podman engine for tests, reached over Docker's API."""

from __future__ import annotations

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

from tests.containers import docker_engine
from tests.containers.docker_engine import Engine

_START_SECONDS = 60.0  # a hang guard


@functools.cache
def shared_engine() -> Engine:
    """Return a Podman engine that stops with the tests. Its images are kept for the next run."""
    programs = [
        shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        for name in ("podman", "runc", "docker")
    ]
    if None in programs or os.geteuid() != 0:
        pytest.skip(
            "podman, runc or the `docker` command is missing (Debian: podman, runc, docker.io), "
            "or the user is not root"
        )
    folder = Path(tempfile.gettempdir(), "cellblock-test-podman")
    return docker_engine.share_engine(folder, _host(folder), _start)


def _host(folder: Path) -> str:
    return f"unix://{folder}/podman.sock"


def _start(folder: Path) -> Engine:
    # By default, Podman sets the rlimits of root's containers to a million, which fails on machines
    # with lower hard limits. It also lowers its own process limit to pid_max.
    files, processes = (
        resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
    )
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    processes = pid_max if processes == resource.RLIM_INFINITY else min(processes, pid_max)
    limits = [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]
    config = folder / "containers.conf"
    config.write_text(f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n")
    # Not Debian's default runtime: crun 1.8 refuses machines with both versions of control groups.
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
        _host(folder),
    ]
    environment = {**os.environ, "CONTAINERS_CONF": str(config)}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,  # outlives the checkout of a killed run, whose engine others find
            start_new_session=True,
        )
    (folder / "pid").write_text(str(process.pid))
    engine = Engine(_host(folder), process)
    deadline = time.monotonic() + _START_SECONDS
    while not engine.responds():
        if process.poll() is not None or time.monotonic() > deadline:
            engine.stop()
            raise AssertionError(f"podman did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.1)
    return engine


def use_shared_engine(monkeypatch: pytest.MonkeyPatch, image: str) -> str:
    """Make executors use Podman, and return the reference of a test image."""
    monkeypatch.setenv("DOCKER_HOST", shared_engine().host)
    return shared_engine().test_image(image)
