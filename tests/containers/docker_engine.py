"""A container engine for tests: a running one, or one started for the tests; and its images."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import io
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from cellblock.containers.orphans import OWNER_LABEL, owner_labels

_START_SECONDS = 60.0
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
_ROOT_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_EXCLUDED = tuple(f"/usr/share/{name}" for name in ("doc", "man", "locale", "lintian", "info"))
_SHELL_PACKAGES = (
    *("base-files", "libc6", "dash", "coreutils", "libacl1", "libattr1"),
    *("libselinux1", "libgmp10", "libpcre2-8-0"),
)
# The libraries that Python's extension modules need are found by `ldd`.
_PYTHON_PACKAGES = (
    *(*_SHELL_PACKAGES, "bash", "libtinfo6", "sed", "grep"),
    *("procps", "libproc2-0", "libstdc++6", "libgcc-s1"),
)
FileLister = Callable[[], Mapping[str, Path]]
_NO_ENGINE = "no container engine responds, and no dockerd can be started (Debian: docker.io)"


class Engine:
    """An engine at `host`, a value of DOCKER_HOST.

    process   the engine's process, if the tests have started it
    folder    the folder with its data, if the tests have started it
    """

    def __init__(
        self, host: str, process: subprocess.Popen[bytes] | None = None, folder: Path = Path()
    ) -> None:
        self.host, self.process, self.folder = host, process, folder
        self._images = dict[str, str]()  # by what they are made of, for those that exist

    def docker(self, *arguments: str, data: bytes | None = None) -> str:
        """Run the `docker` command, and return its output."""
        environment = {**os.environ, "DOCKER_HOST": self.host}
        done = subprocess.run(
            ["docker", *arguments], input=data, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def container_names(self) -> set[str]:
        """Return the names of the containers that this process owns."""
        owner = owner_labels(kept=False)[OWNER_LABEL]
        label = f"label={OWNER_LABEL}={owner}"
        return set(self.docker("ps", "--all", "--filter", label, "--format", "{{.Names}}").split())

    def responds(self) -> bool:
        """Return True if the engine responds."""
        environment = {**os.environ, "DOCKER_HOST": self.host}
        argv = ["docker", "version", "--format", "{{.Server.Version}}"]
        return (
            subprocess.run(argv, env=environment, capture_output=True, check=False).returncode == 0
        )

    def test_image(self, name: str) -> str:
        """Return the reference of a test image, "python" or "shell"; build it if it is missing."""

        def build(reference: str) -> None:
            list_files = {"python": _python_files, "shell": _shell_files}[name]
            self.docker("import", "-", reference, data=_archive(list_files()))

        return self._build_once(name, lambda: _content_key(name), build)

    def image_with_files(self, name: str, base: str, list_files: FileLister) -> str:
        """Return the reference of a test image: `base` with files by their paths in it."""
        files = dict[str, Path]()

        def key() -> str:
            files.update(list_files())
            return hashlib.sha256("\n".join((base, *sorted(files))).encode()).hexdigest()[:12]

        def build(reference: str) -> None:
            self.docker("build", "--tag", reference, "-", data=_build_context(base, files))

        return self._build_once(name, key, build)

    def _build_once(self, name: str, key: Callable[[], str], build: Callable[[str], None]) -> str:
        """Return the reference of an image, after `build` if no process of this machine built it.

        Both functions are called at most once in this process.
        """
        if name not in self._images:
            reference = f"cellblock-test-{name}:{key()}"
            with self.locked("images"):
                if not self.docker("images", "--quiet", reference):
                    build(reference)
            self._images[name] = reference
        return self._images[name]

    @contextlib.contextmanager
    def locked(self, name: str) -> Generator[None]:
        """Hold a lock of this engine: other processes of this machine that run tests wait."""
        key = hashlib.sha256(self.host.encode()).hexdigest()[:12]
        with open(Path(tempfile.gettempdir(), f"cellblock-{name}-{key}"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def copy_image_from(self, other: Engine, reference: str) -> None:
        """Copy an image of the engine `other` into this one."""
        self.docker("load", data=other.export_image(reference))

    def export_image(self, reference: str) -> bytes:
        """Return an image as a tar archive."""
        environment = {**os.environ, "DOCKER_HOST": self.host}
        return subprocess.run(
            ["docker", "save", reference], env=environment, capture_output=True, check=True
        ).stdout

    def kill(self) -> None:
        """Kill the engine's process; its containers keep running."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop the engine, if the tests have started it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_START_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def start_engine(folder: Path, *options: str, command_prefix: Sequence[str] = ()) -> Engine:
    """Start an engine that keeps its data in `folder`, with `command_prefix` before its command."""
    program = shutil.which("dockerd", path=_PATH)
    if program is None or os.geteuid() != 0:
        pytest.skip(_NO_ENGINE)
    folder.mkdir(parents=True, exist_ok=True)
    host = f"unix://{folder}/docker.sock"
    argv = [*command_prefix, program, "--host", host, "--data-root", f"{folder}/data"]
    argv += ["--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid", *options]
    engine = launch_engine(argv, host, folder)
    await_engine(engine)
    return engine


def launch_engine(
    argv: Sequence[str], host: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Engine:
    """Start the process of an engine. It writes to the file `log` in `folder`."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,  # outlives the checkout of a killed run, whose engine others find
            start_new_session=True,
        )
    return Engine(host, process, folder)


def await_engine(engine: Engine) -> None:
    """Wait until an engine that `launch_engine` has started responds. Stop it if it does not."""
    deadline = time.monotonic() + _START_SECONDS  # a hang guard
    while not engine.responds():
        if (engine.process and engine.process.poll() is not None) or time.monotonic() > deadline:
            engine.stop()
            log = (engine.folder / "log").read_text(errors="replace")[-2000:]
            raise AssertionError(f"the engine at {engine.host} did not start: {log}")
        time.sleep(0.1)


@contextlib.contextmanager
def private_engine(
    *options: str,
    size: int | None = None,
    command_prefix: Callable[[Path], Sequence[str]] = lambda folder: (),
) -> Generator[Engine]:
    """Yield an engine that a test may kill. Remove everything afterwards.

    options          additional options of dockerd
    size             bytes for the engine's data; None: not limited
    command_prefix   returns the prefix of the command for the engine's folder; see `start_engine`
    """
    folder = Path(tempfile.mkdtemp(prefix="cellblock-test-own-engine-"))
    folder.chmod(0o711)  # users of the socket must be able to enter the folder
    if size is not None:
        (folder / "data").mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder / "data"], check=True
        )
    # Not --bridge=none, which would remove the bridge of the machine's engine.
    isolation = ("--iptables=false", f"--add-runtime=other={shutil.which('runc', path=_PATH)}")
    engine = start_engine(folder, *isolation, *options, command_prefix=command_prefix(folder))
    try:
        yield engine
    finally:
        engine.kill()  # it would unmount and write what is removed below
        _kill_leftovers(folder)
        for line in Path("/proc/mounts").read_text().splitlines()[::-1]:
            if (mount_point := line.split()[1]).startswith(f"{folder}/"):
                subprocess.run(["umount", "--lazy", mount_point], capture_output=True, check=False)
        shutil.rmtree(folder)


def _kill_leftovers(folder: Path) -> None:
    """Kill the containers that an engine in `folder` left running, and their shim processes.

    The command line of a shim names the folder, and its children are the container's processes.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{folder}/".encode() in (entry / "cmdline").read_bytes():
                children = (entry / "task" / entry.name / "children").read_text().split()
                for pid in (*children, entry.name):
                    os.kill(int(pid), signal.SIGKILL)


@functools.cache
def shared_engine() -> Engine:
    """Return the engine for all tests: that of DOCKER_HOST, the machine's, or one started here."""
    if shutil.which("docker") is None:
        pytest.skip(_NO_ENGINE)
    folder = Path(tempfile.gettempdir(), f"cellblock-test-engine-{os.geteuid()}")
    hosts = (os.environ.get("DOCKER_HOST"), "unix:///var/run/docker.sock")
    return share_engine(folder, f"unix://{folder}/docker.sock", start_engine, hosts)


def share_engine(
    folder: Path, host: str, start: Callable[[Path], Engine], others: Sequence[str | None] = ()
) -> Engine:
    """Return the first engine of `others` that responds, or the one in `folder`, at `host`.

    All processes of this machine that run tests share the one in `folder`. The first one starts it
    by `start`, and the last one stops it by the process ID in the file `pid`. The folder and its
    images are kept for the next run. An engine that a killed run has left behind is found.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    users = os.open(folder / "users.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_SH)  # until this process ends
    with open(folder / "start.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for known in (*others, host):
            if known and (engine := Engine(known)).responds():
                break
        else:
            engine = start(folder)
    if engine.host == host:
        atexit.register(_stop_after_last_user, folder, engine, users)
    return engine


def _stop_after_last_user(folder: Path, engine: Engine, users: int) -> None:
    """Stop the engine in `folder`, unless another process still runs tests with it."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if engine.process is not None:
            engine.process.returncode = 0  # the last user stops it: no ResourceWarning here
        return
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if engine.process is None:  # another process has started it
            process = os.pidfd_open(int((folder / "pid").read_text()))
            signal.pidfd_send_signal(process, signal.SIGTERM)
            select.select([process], [], [], _START_SECONDS)
            os.close(process)
        engine.stop()


def use_shared_engine(monkeypatch: pytest.MonkeyPatch, image: str) -> str:
    """Make executors use the shared engine, and return the reference of a test image."""
    monkeypatch.setenv("DOCKER_HOST", shared_engine().host)
    return shared_engine().test_image(image)


# images


def _content_key(name: str) -> str:
    """Return a key that changes with the content of the image."""
    installed = subprocess.run(
        ["dpkg-query", "-W", *_PYTHON_PACKAGES, "python3-minimal"], capture_output=True, check=False
    ).stdout
    return hashlib.sha256(Path(__file__).read_bytes() + installed + name.encode()).hexdigest()[:12]


def _shell_files() -> Iterator[str]:
    yield from _package_files(*_SHELL_PACKAGES)
    yield from _shared_libraries("/usr/bin/dash", "/usr/bin/ls")


def _python_files() -> Iterator[str]:
    yield from _package_files(*_PYTHON_PACKAGES)
    program = os.path.realpath("/usr/bin/python3")
    yield from ("/usr/bin/python3", program)
    modules = Path("/usr/lib", Path(program).name)
    for path in (modules, *sorted(modules.rglob("*"))):
        if "__pycache__" not in path.parts and "dist-packages" not in path.parts:
            yield str(path)
    yield from _shared_libraries(
        program, *map(str, modules.glob("lib-dynload/*.so")), "/usr/bin/bash", "/usr/bin/ps"
    )


def _package_files(*packages: str) -> Iterator[str]:
    listed = subprocess.run(
        ["dpkg", "-L", *packages], capture_output=True, text=True, check=False
    ).stdout
    for path in listed.splitlines():
        if path.startswith("/") and path != "/." and not path.startswith(_EXCLUDED):
            yield path


def _shared_libraries(*programs: str) -> Iterator[str]:
    for line in subprocess.run(
        ["ldd", *programs], capture_output=True, text=True, check=False
    ).stdout.splitlines():
        for word in line.split():
            if word.startswith("/") and not word.endswith(":"):
                yield from (word, os.path.realpath(word))


def _archive(paths: Iterator[str]) -> bytes:
    """Return a tar archive of files of this machine; /bin and the like stay links."""
    data, added = io.BytesIO(), set[str]()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in filter(os.path.islink, (f"/{link}" for link in _ROOT_LINKS)):
            archive.add(name, recursive=False)
            added.add(name)
        for path in paths:
            real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if not os.path.lexists(real):
                continue
            # Include the parent folders. Engines create missing ones, but not always readable by
            # all.
            for item in (*map(str, reversed(Path(real).parents)), real):
                if item not in added:
                    added.add(item)
                    archive.add(item, recursive=False)
    return data.getvalue()


def _build_context(base: str, files: Mapping[str, Path]) -> bytes:
    """Return a tar archive of `files` and of the recipe that adds them to the image `base`."""
    recipe = f"FROM {base}\nCOPY files /\n".encode()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(recipe)
        archive.addfile(entry, io.BytesIO(recipe))
        for path, source in sorted(files.items()):
            archive.add(source, f"files/{path}", recursive=False)
    return data.getvalue()


if __name__ == "__main__":  # by hand: have the images in the engine that DOCKER_HOST names
    sys.stdout.write(
        "\n".join(shared_engine().test_image(name) for name in ("python", "shell")) + "\n"
    )
