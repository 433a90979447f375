"""A real container engine for tests: the one that answers, or one of our own; and the images that they run."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest

_PATIENCE = 60.0
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_LEFT_OUT = (
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/locale",
    "/usr/share/lintian",
    "/usr/share/info",
)
_SHELL = (
    "base-files",
    "libc6",
    "dash",
    "coreutils",
    "libacl1",
    "libattr1",
    "libselinux1",
    "libgmp10",
    "libpcre2-8-0",
)
# What Python's own modules need is found by following their shared libraries.
_PYTHON = (
    *_SHELL,
    "bash",
    "libtinfo6",
    "sed",
    "grep",
    "procps",
    "libproc2-0",
    "libstdc++6",
    "libgcc-s1",
)
_NO_ENGINE = "no container engine answers, and there is no dockerd to start (Debian: docker.io)"


class Engine:
    """An engine at `host`, in the words of DOCKER_HOST; `process` and `folder`, for all it has, when it is ours."""

    def __init__(
        self, host: str, process: subprocess.Popen[bytes] | None = None, folder: Path = Path()
    ) -> None:
        self.host, self.process, self.folder = host, process, folder

    def docker(self, *arguments: str, data: bytes | None = None) -> str:
        """Run the engine's own command line, and give what it prints."""
        environment = {**os.environ, "DOCKER_HOST": self.host}
        done = subprocess.run(
            ["docker", *arguments], input=data, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def answers(self) -> bool:
        """Tell whether it answers."""
        environment = {**os.environ, "DOCKER_HOST": self.host}
        argv = ["docker", "version", "--format", "{{.Server.Version}}"]
        return (
            subprocess.run(argv, env=environment, capture_output=True, check=False).returncode == 0
        )

    def image(self, name: str) -> str:
        """Give the reference of a test image, "python" or "shell", which is built when it is not there."""
        make = {"python": _python_files, "shell": _shell_files}[name]
        reference = f"cellblock-test-{name}:{_recipe(name)}"
        if not self.docker("images", "--quiet", reference):
            self.docker("import", "-", reference, data=_archive(make()))
        return reference

    def take_image(self, other: Engine, reference: str) -> None:
        """Copy an image of `other` into this one."""
        self.docker("load", data=other.save(reference))

    def save(self, reference: str) -> bytes:
        """Give an image as an archive."""
        environment = {**os.environ, "DOCKER_HOST": self.host}
        return subprocess.run(
            ["docker", "save", reference], env=environment, capture_output=True, check=True
        ).stdout

    def kill(self) -> None:
        """End it as a crash does; what it runs goes on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it, if it is ours."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def start(folder: Path, *options: str, begin: Sequence[str] = ()) -> Engine:
    """Start an engine that keeps all it has in `folder`. `begin`: what its command begins with, ending in its own start."""
    program = shutil.which("dockerd", path=_PATH)
    if program is None or os.geteuid() != 0:
        pytest.skip(_NO_ENGINE)
    folder.mkdir(parents=True, exist_ok=True)
    host = f"unix://{folder}/docker.sock"
    argv = [
        *begin,
        program,
        "--host",
        host,
        "--data-root",
        f"{folder}/data",
        "--exec-root",
        f"{folder}/exec",
    ]
    argv += ["--pidfile", f"{folder}/pid", *options]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    engine = Engine(host, process, folder)
    deadline = time.monotonic() + _PATIENCE
    while not engine.answers():
        if process.poll() is not None or time.monotonic() > deadline:
            engine.stop()
            raise AssertionError(f"dockerd did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.1)
    return engine


@contextlib.contextmanager
def own(
    *options: str,
    room: int | None = None,
    begin: Callable[[Path], Sequence[str]] = lambda folder: (),
) -> Generator[Engine]:
    """Give an engine that a test may kill, started with `options` too, and `room` bytes for all it has; nothing is left.

    `begin` is given its folder; see `start`.
    """
    folder = Path(tempfile.mkdtemp(prefix="cellblock-test-own-engine-"))
    folder.chmod(0o711)  # whoever may use its socket has to come there
    if room is not None:
        (folder / "data").mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", folder / "data"], check=True
        )
    # Not --bridge=none: that would remove the bridge of the machine's engine.
    alone = ("--iptables=false", f"--add-runtime=other={shutil.which('runc', path=_PATH)}")
    engine = start(folder, *alone, *options, begin=begin(folder))
    try:
        yield engine
    finally:
        engine.stop()
        _end_what_is_left(folder)
        for line in Path("/proc/mounts").read_text().splitlines()[::-1]:
            if (mounted := line.split()[1]).startswith(f"{folder}/"):
                subprocess.run(["umount", "--lazy", mounted], capture_output=True, check=False)
        shutil.rmtree(folder)


def _end_what_is_left(folder: Path) -> None:
    """End what an engine in `folder` left running: the keepers of its containers name it, and their children are these."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{folder}/".encode() in (entry / "cmdline").read_bytes():
                children = (entry / "task" / entry.name / "children").read_text().split()
                for pid in (*children, entry.name):
                    os.kill(int(pid), signal.SIGKILL)


@functools.cache
def running() -> Engine:
    """Give the engine for all tests: what DOCKER_HOST names, the machine's, or one of ours, which ends with the tests."""
    if shutil.which("docker") is None:
        pytest.skip(_NO_ENGINE)
    # The folder stays, and the images in it: an engine that a killed run left behind is found again by its socket.
    own = Path(tempfile.gettempdir(), f"cellblock-test-engine-{os.geteuid()}")
    for host in (
        os.environ.get("DOCKER_HOST"),
        "unix:///var/run/docker.sock",
        f"unix://{own}/docker.sock",
    ):
        if host and Engine(host).answers():
            return Engine(host)
    engine = start(own)
    atexit.register(engine.stop)
    return engine


def prepare(monkeypatch: pytest.MonkeyPatch, image: str) -> str:
    """Have executors use the engine for all tests; give the reference of a test image."""
    monkeypatch.setenv("DOCKER_HOST", running().host)
    return running().image(image)


# images


def _recipe(name: str) -> str:
    """Give a key that changes when what is in the image does."""
    installed = subprocess.run(
        ["dpkg-query", "-W", *_PYTHON, "python3-minimal"], capture_output=True, check=False
    ).stdout
    return hashlib.sha256(Path(__file__).read_bytes() + installed + name.encode()).hexdigest()[:12]


def _shell_files() -> Iterator[str]:
    yield from _of_packages(*_SHELL)
    yield from _libraries("/usr/bin/dash", "/usr/bin/ls")


def _python_files() -> Iterator[str]:
    yield from _of_packages(*_PYTHON)
    program = os.path.realpath("/usr/bin/python3")
    yield from ("/usr/bin/python3", program)
    modules = Path("/usr/lib", Path(program).name)
    for path in (modules, *sorted(modules.rglob("*"))):
        if "__pycache__" not in path.parts and "dist-packages" not in path.parts:
            yield str(path)
    yield from _libraries(
        program, *map(str, modules.glob("lib-dynload/*.so")), "/usr/bin/bash", "/usr/bin/ps"
    )


def _of_packages(*packages: str) -> Iterator[str]:
    listed = subprocess.run(
        ["dpkg", "-L", *packages], capture_output=True, text=True, check=False
    ).stdout
    for path in listed.splitlines():
        if path.startswith("/") and path != "/." and not path.startswith(_LEFT_OUT):
            yield path


def _libraries(*programs: str) -> Iterator[str]:
    for line in subprocess.run(
        ["ldd", *programs], capture_output=True, text=True, check=False
    ).stdout.splitlines():
        for word in line.split():
            if word.startswith("/") and not word.endswith(":"):
                yield from (word, os.path.realpath(word))


def _archive(paths: Iterator[str]) -> bytes:
    """Pack files of this machine under the names that they have where /bin and its like are links."""
    data, seen = io.BytesIO(), set[str]()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in filter(os.path.islink, (f"/{link}" for link in _LINKS)):
            archive.add(name, recursive=False)
            seen.add(name)
        for path in paths:
            real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if not os.path.lexists(real):
                continue
            # Its folders as well: engines make what is missing of them in their own way, not always for everybody.
            for found in (*map(str, reversed(Path(real).parents)), real):
                if found not in seen:
                    seen.add(found)
                    archive.add(found, recursive=False)
    return data.getvalue()


if __name__ == "__main__":  # by hand: have the images in the engine that DOCKER_HOST names
    sys.stdout.write("\n".join(running().image(name) for name in ("python", "shell")) + "\n")
