"""Environments built by the real uv, from small local wheels; marked tests use the registry."""

import asyncio
import contextlib
import fcntl
import functools
import logging
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from textwrap import dedent

import pytest
from uv import find_uv_bin

from cellblock.environments.virtualenv import (
    create_virtual_env,
    environment_for,
    python_of,
    site_packages,
)
from cellblock.errors import BackendError, PackageError

pytestmark = pytest.mark.pythons
_WHEEL = "tiny-1.0-py3-none-any.whl"
_WHEEL_FILES = {
    "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
    "RECORD": "",
}
_BUILDER = """\
import shutil, socket, sys

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with socket.create_connection(("127.0.0.1", {port})) as test:
        if test.recv(1) != b"g":
            sys.exit("told to fail")
    shutil.copy("{wheel}", folder)
    return "{wheel}"
"""
_PROJECT = '[build-system]\nrequires = []\nbuild-backend = "builder"\nbackend-path = ["."]\n'
_REQUEST_SCRIPT = """\
import asyncio, sys
from pathlib import Path
from cellblock.environments.virtualenv import environment_for
print(asyncio.run(environment_for([sys.argv[1]], cache_dir=Path(sys.argv[2]), progress=print)))
"""


@pytest.fixture(autouse=True)
def _own_uv_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("UV_OFFLINE", "1")


def wheel(folder: Path, *, answer: int = 42) -> str:
    """Create a wheel in `folder` and return its requirement. Its command prints `answer`."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / _WHEEL, "w") as archive:
        archive.writestr("tiny.py", f"answer = {answer}\ndef main():\n    print(answer)\n")
        for name, text in _WHEEL_FILES.items():
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
    return f"tiny @ {(folder / _WHEEL).as_uri()}"


def slow_source(folder: Path, listener: socket.socket) -> str:
    """Create a source package and return its requirement.

    Its build connects to `listener` and waits for a byte.
    """
    source = folder / "tiny-1.0"
    wheel(source)
    port = listener.getsockname()[1]
    (source / "builder.py").write_text(_BUILDER.format(port=port, wheel=_WHEEL))
    (source / "pyproject.toml").write_text(_PROJECT)
    (source / "PKG-INFO").write_text(_WHEEL_FILES["METADATA"])
    with tarfile.open(folder / "tiny-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    return f"tiny @ {(folder / 'tiny-1.0.tar.gz').as_uri()}"


def build(*packages: str, cache: Path, progress: Callable[[str], None] | None = None) -> Path:
    return asyncio.run(environment_for(packages, cache_dir=cache, progress=progress))


def run(*argv: str | Path) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start_requesting_process(requirement: str, cache: Path) -> subprocess.Popen[str]:
    """Start a separate process that requests an environment."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", _REQUEST_SCRIPT, requirement, str(cache)], stdout=-1, text=True
    )


def let_build_continue(builder: socket.socket) -> None:
    with builder:
        builder.sendall(b"g")


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


@pytest.fixture
def listener() -> Generator[socket.socket, None, None]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(15)
        yield found


@pytest.mark.network
def test_environment_has_the_requirement_and_nothing_else(tmp_path: Path) -> None:
    environment = build("iniconfig>=2", cache=tmp_path / "cache")
    list_all = (
        "from importlib.metadata import distributions as d; "
        "print(*(x.metadata['Name'] for x in d()))"
    )
    assert run(python_of(environment), "-c", list_all) == "iniconfig"
    assert (site_packages(environment) / "iniconfig").is_dir()


@pytest.mark.network
def test_unknown_package_is_refused_with_the_message_of_uv(tmp_path: Path) -> None:
    with pytest.raises(
        PackageError, match="no-such-package-of-us was not found in the package registry"
    ):
        build("no-such-package-of-us", cache=tmp_path / "cache")
    assert folders(tmp_path / "cache") == []


_NOT_REQUIREMENTS = [
    *("-r secrets.txt", "--index-url=x", "./here", "/etc", "a b", "", " ", "a\n--x", "a\0"),
    *("a (>=1", "a @ ./b", "git+https://x/y"),
]


def test_what_is_not_a_requirement_is_refused_by_name(tmp_path: Path) -> None:
    for package in _NOT_REQUIREMENTS:
        with pytest.raises(PackageError) as caught:
            build("iniconfig", package, cache=tmp_path)
        assert repr(package) in str(caught.value)
    with pytest.raises(PackageError, match="'pandas'"):
        asyncio.run(environment_for("pandas"))


def test_malformed_version_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="iniconfig>=>2"):
        build("iniconfig >=> 2", cache=tmp_path / "cache")


def test_error_does_not_show_the_password_of_a_url(tmp_path: Path) -> None:
    with pytest.raises(PackageError) as caught:
        build(
            "tiny @ https://user:hunter2@127.0.0.1:9/tiny-1.0-py3-none-any.whl",
            cache=tmp_path / "cache",
        )
    assert "tiny" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_second_call_returns_the_same_folder_without_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirement = wheel(tmp_path / "wheels")
    first = build(requirement, cache=tmp_path / "cache")
    inode = first.stat().st_ino

    def refuse() -> str:
        raise AssertionError("uv was searched")

    monkeypatch.setattr("uv.find_uv_bin", refuse)
    lines: list[str] = []
    assert build(requirement, cache=tmp_path / "cache", progress=lines.append) == first
    assert (first.stat().st_ino, lines) == (inode, [])
    with pytest.raises(AssertionError, match="searched"):
        build(cache=tmp_path / "cache")


def test_spelling_and_order_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "wheels")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    first = build("tiny>=1,<2", cache=tmp_path / "cache")
    for same in ("Tiny >= 1, <2", " tiny<2,>=1 ", "tiny (<2, >=1)", "TINY[]<2,>=1"):
        assert build(same, "tiny>=1,<2", cache=tmp_path / "cache") == first
    assert build("tiny==1.*; python_version > '3'", cache=tmp_path / "cache") != first


def test_other_index_settings_create_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraints = tmp_path / "constraints.txt"
    found = [build(cache=tmp_path / "cache")]
    monkeypatch.setenv("UV_CONSTRAINT", str(constraints))
    for text in ("iniconfig<3\n", "iniconfig<4\n"):
        constraints.write_text(text)
        found.append(build(cache=tmp_path / "cache"))
    assert len(set(found)) == 3


def test_settings_of_a_project_around_the_cache_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("this is not TOML")
    (tmp_path / "pyproject.toml").write_text("nor is this")
    assert python_of(build(cache=tmp_path / "cache")).exists()


def test_changed_local_wheel_creates_another_environment(tmp_path: Path) -> None:
    for answer in (1, 22):
        environment = build(wheel(tmp_path / "wheels", answer=answer), cache=tmp_path / "cache")
        assert run(environment / "bin" / "tiny") == str(answer)


def test_local_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="is a folder"):
        build(f"tiny @ {tmp_path.as_uri()}", cache=tmp_path / "cache")


def test_named_interpreter_is_used(tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(sys.executable)
    environment = asyncio.run(
        environment_for([], python=tmp_path / "other", cache_dir=tmp_path / "cache")
    )
    ask = "import sys; print(sys.prefix, sys.version_info[:2])"
    assert run(python_of(environment), "-c", ask) == f"{environment} {sys.version_info[:2]}"


def test_error_for_unwritable_cache_names_the_variable_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="XDG_CACHE_HOME") as caught:
        build(cache=tmp_path / "file" / "cache")
    assert str(tmp_path / "file" / "cache") in str(caught.value)


@pytest.mark.parametrize(("setting", "parent"), [("caches", "."), ("relative", "home/.cache")])
def test_default_cache_is_the_users(
    setting: str, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path) if setting == "caches" else setting)
    environment = asyncio.run(environment_for([]))
    assert environment.parent == tmp_path / parent / "cellblock" / "environments"


def test_lines_of_uv_go_to_progress_or_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cellblock.environments.uv")
    lines: list[str] = []
    build(wheel(tmp_path / "wheels"), cache=tmp_path / "cache", progress=lines.append)
    assert [line for line in lines if line.startswith(" + tiny==1.0")]
    assert caplog.text == ""
    build(wheel(tmp_path / "wheels", answer=1000), cache=tmp_path / "cache")
    assert "uv:  + tiny==1.0" in caplog.text


def test_error_in_progress_ends_the_build_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(line: str) -> None:
        raise ZeroDivisionError(line)

    with pytest.raises(ZeroDivisionError):
        build(cache=tmp_path / "cache", progress=fail)
    assert folders(tmp_path / "cache") == []


def test_concurrent_processes_build_once(tmp_path: Path, listener: socket.socket) -> None:
    requirement = slow_source(tmp_path, listener)
    processes = [start_requesting_process(requirement, tmp_path / "cache")]
    builder, _ = listener.accept()
    processes.append(start_requesting_process(requirement, tmp_path / "cache"))
    output = next(iter(processes[1].stdout or ()))
    let_build_continue(builder)
    first, second = (process.communicate()[0] for process in processes)
    assert output.startswith("Waiting for another process")
    assert "Installed 1 package" in first
    assert second == first.splitlines(keepends=True)[-1]


def test_concurrent_tasks_build_once(tmp_path: Path) -> None:
    lines: list[str] = []
    requirement, cache = wheel(tmp_path / "wheels"), tmp_path / "cache"

    async def ask() -> list[Path]:
        ask_once = functools.partial(
            environment_for, [requirement], cache_dir=cache, progress=lines.append
        )
        return await asyncio.gather(*(ask_once() for _ in range(4)))

    assert len(set(asyncio.run(ask()))) == 1
    assert sum(line.startswith("Installed") for line in lines) == 1


def test_cancellation_leaves_no_process_and_no_folder(
    tmp_path: Path, listener: socket.socket
) -> None:
    async def cancel() -> None:
        requirement = slow_source(tmp_path, listener)
        call = asyncio.ensure_future(environment_for([requirement], cache_dir=tmp_path / "cache"))
        builder, _ = await asyncio.to_thread(listener.accept)
        assert len(folders(tmp_path / "cache")) == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert folders(tmp_path / "cache") == []
        with builder:
            builder.settimeout(5)
            # The child of uv held the other end.
            with contextlib.suppress(ConnectionResetError):
                assert builder.recv(1) == b""

    asyncio.run(cancel())
    (path,) = (tmp_path / "cache").glob("*.lock")
    with path.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a living uv would hold it


def test_cancellation_while_another_process_builds_stops_the_wait(
    tmp_path: Path, listener: socket.socket
) -> None:
    requirement = slow_source(tmp_path, listener)
    other = start_requesting_process(requirement, tmp_path / "cache")
    builder, _ = listener.accept()
    with pytest.raises(TimeoutError):
        asyncio.run(
            asyncio.wait_for(environment_for([requirement], cache_dir=tmp_path / "cache"), 0.5)
        )
    let_build_continue(builder)
    assert other.communicate()[0]
    assert other.returncode == 0
    assert len(folders(tmp_path / "cache")) == 1


def test_killed_builder_leaves_no_environment_that_looks_complete(
    tmp_path: Path, listener: socket.socket
) -> None:
    cache = tmp_path / "cache"
    requirement = slow_source(tmp_path, listener)
    killed = start_requesting_process(requirement, cache)
    builder, _ = listener.accept()
    killed.kill()
    killed.communicate()
    assert [name.endswith(".partial") for name in folders(cache)] == [True]
    next_one = start_requesting_process(requirement, cache)
    # The uv of the killed process still writes there.
    assert next(iter(next_one.stdout or ())).startswith("Waiting for another process")
    builder.close()
    builder, _ = listener.accept()
    let_build_continue(builder)
    output = next_one.communicate()[0]
    (name,) = folders(cache)
    assert output.splitlines()[-1] == str(cache / name)
    assert run(cache / name / "bin" / "tiny") == "42"


def test_environment_is_readable_by_all_users_whatever_the_umask(tmp_path: Path) -> None:
    requirement = wheel(tmp_path / "wheels")
    # Fill uv's cache with files that only their owner can read. uv copies files with their modes.
    for arguments in (["venv", "private"], ["pip", "install", "--python", "private", requirement]):
        argv = [find_uv_bin(), "--quiet", *arguments]
        subprocess.run(argv, cwd=tmp_path, umask=0o077, check=True)
    before = os.umask(0o077)
    try:
        environment = build(requirement, cache=tmp_path / "cache")
    finally:
        os.umask(before)
    for path in [environment, *environment.rglob("*")]:
        wanted = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & wanted == wanted, path


def test_environment_works_read_only_and_without_the_cache_of_uv(tmp_path: Path) -> None:
    environment = build(wheel(tmp_path / "wheels"), cache=tmp_path / "cache")
    shutil.rmtree(tmp_path / "uv")
    script = dedent("""\
        set -e
        mount --bind "$1" "$1"
        mount -o remount,bind,ro "$1"
        if touch "$1/x" 2>/dev/null; then echo can be written; fi
        "$1/bin/python" -c 'import os, tiny; print(os.path.exists(tiny.__cached__))'
        exec "$1/bin/tiny"
        """)
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs unshare and user namespaces")
    assert run(*unshare, "sh", "-c", script, "sh", environment) == "True\n42"


@pytest.mark.slow
def test_create_virtual_env_returns_a_context_with_pip(tmp_path: Path) -> None:
    context = create_virtual_env(tmp_path / "env")
    assert Path(context.bin_path) == tmp_path / "env" / "bin"
    assert run(context.env_exe, "-m", "pip", "--version").startswith("pip ")


def test_create_virtual_env_returns_absolute_paths_and_forwards_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    context = create_virtual_env("env", with_pip=False, prompt="blue", symlinks=True)
    program = Path(context.env_exe)
    assert (Path(context.env_dir), program.parent) == (tmp_path / "env", tmp_path / "env" / "bin")
    assert program.is_symlink()
    assert "blue" in context.prompt
    assert not (site_packages(tmp_path / "env") / "pip").exists()


def test_error_names_what_is_not_an_environment(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="file/env"):
        create_virtual_env(tmp_path / "file" / "env", with_pip=False)
    with pytest.raises(BackendError, match="not a virtual environment"):
        site_packages(tmp_path)
