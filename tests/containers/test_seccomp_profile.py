"""The system call filter of containers: made from the sandbox's tables, and tried in engines."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    DockerCommandLineCodeExecutor,
    DockerJupyterCodeExecutor,
    DockerJupyterServer,
)
from cellblock.containers.client import open_client
from cellblock.containers.container import Container
from cellblock.containers.gateway.image import gateway_image
from cellblock.containers.seccomp_profile import profile
from cellblock.executors.base import CodeExecutor
from cellblock.sandbox import seccomp
from tests.containers import docker_engine, podman_engine
from tests.sandbox.test_seccomp import AUDIT_ARCHITECTURES, OTHERS, evaluate

ENGINES_OWN: dict[str, Any] = {"HostConfig": {"SecurityOpt": ["no-new-privileges"]}}
HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
# What Docker's own profile refuses to a container without capabilities.
REFUSED_BY_DOCKER = """
    acct add_key bpf clock_settime create_module delete_module fanotify_init finit_module fsconfig
    fsmount fsopen fspick get_kernel_syms get_mempolicy init_module io_uring_enter
    io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl
    lookup_dcookie mbind migrate_pages mount mount_setattr move_mount move_pages nfsservctl
    open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise
    query_module quotactl quotactl_fd reboot request_key set_mempolicy set_mempolicy_home_node
    setdomainname sethostname setns settimeofday stime swapoff swapon sysfs syslog _sysctl umount
    umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old chroot clone3
""".split()
# Prints the names of those that succeed.
PROBE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    assert libc.syscall(ctypes.c_long(number), *words) >= 0
arm = os.uname().machine == "aarch64"
def make(mode, opens=False):
    if opens:
        os.close(os.open("opened", os.O_CREAT | os.O_WRONLY, mode))
        assert os.stat("opened").st_mode & 0o6000
    else:
        open("program", "w").close()
        os.chmod("program", mode)
        assert os.stat("program").st_mode & 0o6000
PROBES = {
    "io_uring": lambda: call(425, 1, ctypes.create_string_buffer(120)),
    "AF_VSOCK": lambda: call(198 if arm else 41, 40, 1, 0),
    "AF_VSOCK with upper bits": lambda: call(198 if arm else 41, 40 | 1 << 32, 1, 0),
    "netlink": lambda: call(198 if arm else 41, 16, 3, 6),
    "ptrace": lambda: call(117 if arm else 101, 0, 0, 0, 0),
    "set-user-id": lambda: make(0o4755),
    "set-group-id": lambda: make(0o2755),
    "set-user-id by open": lambda: make(0o4755, opens=True),
}
for name, probe in PROBES.items():
    try:
        probe()
    except (OSError, AssertionError):
        pass
    else:
        print(name)
"""
ALWAYS_OPEN = {"io_uring", "netlink", "ptrace", "set-user-id", "set-group-id"}


def holds(condition: dict[str, int], values: tuple[int, ...]) -> bool:
    return values[condition["index"]] & condition["value"] == condition["valueTwo"]


def allows(name: str, *arguments: int) -> bool:
    """Return whether the profile allows a call."""
    values = (*arguments, *[0] * (6 - len(arguments)))
    rules: list[dict[str, Any]] = profile()["syscalls"]
    return any(
        name in rule["names"]
        and rule["action"] == "SCMP_ACT_ALLOW"
        and all(holds(condition, values) for condition in rule["args"])
        for rule in rules
    )


# the profile


def test_no_call_is_allowed_that_the_sandbox_or_docker_refuses() -> None:
    for name in (*seccomp.REFUSED, *seccomp.NOT_IMPLEMENTED, *REFUSED_BY_DOCKER):
        assert not allows(name), name


def samples() -> Iterator[tuple[str, tuple[int, ...]]]:
    for flags in (17, 0x3D0F00, 0x10000000 | 17, 0x20000, 0x40000000):
        yield "clone", (flags,)
    for family in range(48):
        yield "socketpair", (family, 1, 0)
        for protocol in (0, 1, 4, 6, 12, 16, 17, 58, 132, 262):
            yield "socket", (family, 1, protocol)
            yield "socket", (family | 1 << 32, 1, protocol | 1 << 32)
    for value in (0, 8, 0x20000, 0x20008, 0x0040000, 0xFFFFFFFF):
        yield "personality", (value,)
    for process in (0, 1, 77):
        yield "prlimit64", (process, 7, 0, 0)
    for mode in (0o644, 0o755, 0o1777, 0o2755, 0o4755, 0o6755):
        for name, (_, argument) in seccomp.FILE_MODES.items():
            yield name, (*[0] * argument, mode)
        for name, (_, argument) in seccomp.OPENS.items():
            for flags in (0, 1, 0o100, 0o102, 0o20200000):
                yield name, (*[0] * argument, flags, mode)


@pytest.mark.parametrize("machine", sorted(AUDIT_ARCHITECTURES))
def test_arguments_are_checked_as_in_the_sandbox(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    column = ("x86_64", "aarch64").index(machine)
    program, audit = seccomp.program(), AUDIT_ARCHITECTURES[machine]
    with_modes = {**seccomp.FILE_MODES, **seccomp.OPENS}
    tables = {**OTHERS, **{name: numbers for name, (numbers, _) in with_modes.items()}}
    for name, arguments in samples():
        if (number := tables[name][column]) is not None:
            expected = evaluate(program, audit, number, *arguments) == 0
            assert allows(name, *arguments) == expected, (name, arguments)


def test_every_reviewed_call_is_decided() -> None:
    if not HEADER.exists():
        pytest.skip(f"{HEADER} is missing (Debian: linux-libc-dev)")
    found = re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text())
    reviewed = {name for name, number in found if int(number) <= 450}
    not_implemented_by_kernels = {"afs_syscall", "getpmsg", "putpmsg", "security", "tuxcall"}
    undecided = {
        name
        for name in reviewed - {"vserver"} - not_implemented_by_kernels
        if not any(name in rule["names"] for rule in profile()["syscalls"])
    }
    assert undecided <= {*seccomp.REFUSED, *REFUSED_BY_DOCKER}


# engines


def open_probes(executor: CodeExecutor) -> set[str]:
    async def main() -> str:
        async with executor:
            result = await executor.execute_code_blocks([CodeBlock(PROBE, "python")])
            return result.check().output

    return set(asyncio.run(main()).splitlines())


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.use_shared_engine(monkeypatch, "python")


def command_line(image: str, **options: Any) -> CodeExecutor:
    return DockerCommandLineCodeExecutor(image, **options)


def kernel(image: str, work_dir: Path, **options: Any) -> CodeExecutor:
    server = DockerJupyterServer(base_image=image, bind_dir=work_dir, **options)
    executor = DockerJupyterCodeExecutor(server)
    executor._owns_server = True
    return executor


@pytest.mark.engine
@pytest.mark.parametrize("make", [command_line, kernel])
def test_blocks_in_containers_are_filtered(
    make: Callable[..., CodeExecutor], image: str, tmp_path: Path
) -> None:
    filtered, unfiltered = tmp_path / "filtered", tmp_path / "unfiltered"
    for folder in (filtered, unfiltered):
        folder.mkdir()
        os.chown(folder, 1000, 1000)
    executor = make(image, work_dir=filtered)
    assert open_probes(executor) == set()
    assert not [path for path in filtered.iterdir() if path.stat().st_mode & 0o6000]
    # With the engine's own filter, the same probes succeed.
    executor = make(image, work_dir=unfiltered, create_kwargs=ENGINES_OWN)
    assert open_probes(executor) >= ALWAYS_OPEN
    assert [path.name for path in unfiltered.iterdir() if path.stat().st_mode & 0o6000]


@pytest.mark.slow
@pytest.mark.engine
def test_podman_takes_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    image = podman_engine.use_shared_engine(monkeypatch, "python")
    assert open_probes(command_line(image)) == set()


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["podman_engine", "docker_engine"])
def test_rootless_engines_take_the_filter(
    engine: str,
    rootless_engines: Callable[[str], docker_engine.Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rootless = rootless_engines(engine)
    monkeypatch.setenv("DOCKER_HOST", rootless.host)
    assert open_probes(command_line(rootless.test_image("python"))) == set()


# An OCI runtime that does not filter: it refuses the filter, or starts the container without it.
RUNTIME = """#!{python}
import json, os, sys
if "create" in sys.argv:
    path = os.path.join(sys.argv[sys.argv.index("--bundle") + 1], "config.json")
    with open(path) as file:
        config = json.load(file)
    if config["linux"].pop("seccomp", None) and {refuses}:
        message = {{"level": "error", "msg": "config provided but seccomp not supported"}}
        with open(sys.argv[sys.argv.index("--log") + 1], "a") as file:
            json.dump(message, file)
        sys.exit(1)
    with open(path, "w") as file:
        json.dump(config, file)
os.execv({runc!r}, sys.argv)
"""


async def build_gateway_image(base: str) -> str:
    async with open_client() as client:
        return await gateway_image(client, base)


@pytest.fixture(scope="module")
def engine_without_filters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[docker_engine.Engine]:
    """Yield an engine with the runtimes `refuses` and `ignores`."""
    folder, options = tmp_path_factory.mktemp("runtimes"), list[str]()
    runc = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin")
    for name, refuses in (("refuses", True), ("ignores", False)):
        text = RUNTIME.format(python=sys.executable, runc=runc, refuses=refuses)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
        options.append(f"--add-runtime={name}={folder / name}")
    shared = docker_engine.shared_engine()
    base = shared.test_image("python")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", shared.host)
        gateway = asyncio.run(build_gateway_image(base))
    with docker_engine.private_engine(*options) as engine:
        for image in (base, gateway):
            engine.copy_image_from(shared, image)
        yield engine


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize(
    ("make", "runtime"), [(command_line, "refuses"), (command_line, "ignores"), (kernel, "ignores")]
)
def test_starting_without_the_filter_fails_and_says_what_to_do(
    make: Callable[..., CodeExecutor],
    runtime: str,
    engine_without_filters: docker_engine.Engine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine_without_filters.host)
    image = engine_without_filters.test_image("python")
    text = {"refuses": "does not take", "ignores": "ignores"}[runtime]
    with pytest.raises(BackendError, match=f"{text} Cellblock's system call filter") as failure:
        open_probes(make(image, work_dir=tmp_path, runtime=runtime))
    assert f"create_kwargs={ENGINES_OWN}" in str(failure.value)


@pytest.mark.slow
@pytest.mark.engine
def test_a_kernel_container_that_ends_before_anything_runs_in_it_says_why(
    engine_without_filters: docker_engine.Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = Container.start

    async def start_and_wait(container: Container) -> None:
        await start(container)
        while await container.is_running():
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Container, "start", start_and_wait)
    monkeypatch.setenv("DOCKER_HOST", engine_without_filters.host)
    image = engine_without_filters.test_image("python")
    with pytest.raises(BackendError, match="ignores Cellblock's system call filter"):
        open_probes(kernel(image, work_dir=tmp_path, runtime="ignores"))


@pytest.mark.slow
@pytest.mark.engine
def test_an_engine_that_ignores_filters_works_with_its_own(
    engine_without_filters: docker_engine.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine_without_filters.host)
    image = engine_without_filters.test_image("python")
    executor = command_line(image, runtime="ignores", create_kwargs=ENGINES_OWN)
    assert open_probes(executor) >= ALWAYS_OPEN


def test_profile_is_json() -> None:
    assert json.loads(json.dumps(profile())) == profile()
