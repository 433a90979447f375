"""A Podman engine for tests, reached over Docker's API."""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.containers import docker_engine
from tests.containers.docker_engine import Engine

_FOLDERS = {"root": "root", "runroot": "run", "tmpdir": "tmp"}


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
    folders = [f"--{name}={folder}/{path}" for name, path in _FOLDERS.items()]
    argv = ["podman", *folders, "--runtime=runc", "--cgroup-manager=cgroupfs"]
    argv += ["--events-backend=file", "system", "service", "--time=0", _host(folder)]
    environment = {**os.environ, "CONTAINERS_CONF": str(config)}
    engine = docker_engine.launch_engine(argv, _host(folder), folder, environment)
    assert engine.process is not None
    (folder / "pid").write_text(str(engine.process.pid))
    docker_engine.await_engine(engine)
    return engine


def use_shared_engine(monkeypatch: pytest.MonkeyPatch, image: str) -> str:
    """Make executors use Podman, and return the reference of a test image."""
    monkeypatch.setenv("DOCKER_HOST", shared_engine().host)
    return shared_engine().test_image(image)
