"""Kernels in containers of a real engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    DockerJupyterServer,
    JupyterConnectable,
    JupyterConnectionInfo,
    Limits,
    sync,
)
from cellblock.aio.background_loop import background_loop as background
from cellblock.limits import MIB
from cellblock.testing.liveness import assert_dead, heartbeat, wait_until
from tests.containers import docker_engine as engines
from tests.executors.blocks import area
from tests.executors.jupyter.kernels import run
from tests.executors.jupyter.server_inspection import inspect_container, kernels_status

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.kernel]


LIMITS = Limits(memory_bytes=500 * MIB, processes=200, processors=8, open_files=2000)


@pytest.fixture(scope="module")
def server(base: str, work: Path) -> Iterator[DockerJupyterServer]:
    with DockerJupyterServer(base_image=base, bind_dir=work, limits=LIMITS) as server:
        yield server


@pytest.fixture(scope="module")
def python(server: DockerJupyterServer) -> Iterator[sync.DockerJupyterCodeExecutor]:
    with sync.DockerJupyterCodeExecutor(server, timeout=3) as executor:
        yield executor


# blocks


def test_files_in_the_bind_dir_belong_to_the_caller_and_are_in_the_result(
    python: sync.DockerJupyterCodeExecutor, work: Path
) -> None:
    work.chmod(0o755)
    result = run(python, "# filename: first.py\nopen('made.txt', 'w').write('x')\nnumber = 1")
    assert result.files == ["made.txt"]
    assert result.blocks[0].code_file == str(work / "first.py")
    code = "import first, os; print(os.getcwd()); first.number + number"
    assert run(python, code).output == "/workspace\n2\n"
    assert (work / "made.txt").stat().st_uid == os.getuid()
    assert work.stat().st_mode & 0o777 == 0o755
    assert run(python, "# filename: ../out.py\n1").output == "Filename is not in the workspace"


def test_images_are_saved_in_the_bind_dir(
    python: sync.DockerJupyterCodeExecutor, work: Path
) -> None:
    result = run(
        python, "from IPython.display import display\ndisplay({'image/png': 'aGVsbG8='}, raw=True)"
    )
    (path,) = result.output_files
    assert (path.parent, path.read_bytes()) == (work, b"hello")


def test_code_that_ignores_interrupts_is_killed_with_its_kernel(
    server: DockerJupyterServer, work: Path
) -> None:
    with sync.DockerJupyterCodeExecutor(server, timeout=1) as executor:
        # A process that would outlive the kernel is killed too.
        run(
            executor,
            f"import subprocess, sys\nprogram = [sys.executable, '-c', {heartbeat('daemon')!r}]",
        )
        run(executor, "subprocess.Popen(program, start_new_session=True)")
        asyncio.run(wait_until((work / "daemon").exists, "the daemon runs"))
        code = (
            "import time\nwhile True:\n"
            "  try:\n    open('stubborn', 'a').write('x'); time.sleep(0.02)\n"
            "  except BaseException: pass"
        )
        result = run(executor, code)
        assert (result.exit_code, result.outcome) == (124, "timeout")
        assert "variables are gone" in result.notice
        asyncio.run(assert_dead(work / "stubborn"))
        asyncio.run(assert_dead(work / "daemon"))
        assert run(executor, "1").output == "1\n"


def test_out_of_memory_names_the_limit_and_kills_only_the_kernel(
    server: DockerJupyterServer,
) -> None:
    with (
        sync.DockerJupyterCodeExecutor(server, timeout=20) as executor,
        sync.DockerJupyterCodeExecutor(server) as other,
    ):
        run(other, "kept = 1")
        result = run(executor, "print('x', flush=True)\nhoard = bytearray(1 << 30)")
        assert (result.exit_code, result.outcome, result.limit) == (
            137,
            "out_of_memory",
            "memory_bytes",
        )
        assert f"Out of memory: the limit of {500 * MIB} bytes (memory_bytes)." in result.output
        assert "variables are gone" in result.notice
        assert run(executor, "1").output == "1\n"
        died = run(executor, "import os; os._exit(9)")
        assert (died.exit_code, died.outcome) == (137, "killed")
        assert run(other, "kept").output == "1\n"


def test_blocks_in_other_languages_are_not_run(python: sync.DockerJupyterCodeExecutor) -> None:
    assert run(python, "echo x", "sh").output == "x\n"
    assert run(python, "x", "javascript").output == "unknown language javascript"
    assert run(python, "{}", "json").exit_code == 0


def test_functions_can_be_imported(server: DockerJupyterServer) -> None:
    with sync.DockerJupyterCodeExecutor(server, functions=[area]) as executor:
        assert run(executor, "from functions import area\narea(2)").output == "13\n"


def test_a_lost_connection_is_restored(
    python: sync.DockerJupyterCodeExecutor, server: DockerJupyterServer
) -> None:
    async def cut() -> None:
        assert server._port_forward is not None
        for connection in server._port_forward._connections:
            connection.cancel()

    run(python, "kept = 3")
    seen, notice = "", ""
    code = (
        "import time\nfor number in range(10):\n    print(number, flush=True)\n    time.sleep(0.1)"
    )
    for event in python.execute_stream([CodeBlock(code, "python")]):
        if (text := getattr(event, "text", "")) and not seen:
            background().run(cut())
        seen += text
        notice = getattr(event, "notice", notice)
    assert seen == "".join(f"{number}\n" for number in range(10))
    assert "was lost during the block and restored" in notice
    assert run(python, "kept").output == "3\n"


def test_large_output_arrives_complete(server: DockerJupyterServer) -> None:
    with sync.DockerJupyterCodeExecutor(server, limits=Limits(output_bytes=None)) as executor:
        result = run(executor, "for number in range(200): print(str(number % 10) * 50_000)")
        assert result.output == "".join(f"{str(number % 10) * 50_000}\n" for number in range(200))


# confinement

STATUS = (
    "import os\nlines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
    "print(*(int(lines[name], 16) for name in ('CapEff', 'CapBnd', 'NoNewPrivs')), end=' ')\n"
    "print(sorted(os.listdir('/sys/class/net')))\n"
    "try:\n    open('/usr/probe', 'w').close(); print('written')\n"
    "except OSError as error: print(error.strerror)"
)


def test_kernels_have_no_capabilities_no_network_and_a_read_only_root(
    python: sync.DockerJupyterCodeExecutor, base: str
) -> None:
    assert run(python, STATUS).output == "0 0 1 ['lo']\nRead-only file system\n"
    # Without the protection, the same probe succeeds.
    open_kwargs: dict[str, Any] = {
        "HostConfig": {"CapDrop": [], "SecurityOpt": [], "ReadonlyRootfs": False}
    }
    with (
        DockerJupyterServer(
            base_image=base, network="bridge", create_kwargs=open_kwargs, user="0:0"
        ) as server,
        sync.DockerJupyterCodeExecutor(server) as executor,
    ):
        capabilities, _, new, *rest = run(executor, STATUS).output.split(maxsplit=3)
        assert (int(capabilities) > 0, new, rest) == (True, "0", ["['eth0', 'lo']\nwritten\n"])


def test_the_gateway_can_be_reached_only_from_this_machine_with_the_token(
    engine: engines.Engine, server: DockerJupyterServer
) -> None:
    info = server.connection_info
    assert isinstance(server, JupyterConnectable)
    assert info.host == "127.0.0.1"
    assert (
        kernels_status(info, info.token),
        kernels_status(info, None),
        kernels_status(info, "wrong"),
    ) == (200, 401, 401)
    ports: dict[str, Any] = inspect_container(engine, server)["NetworkSettings"]["Ports"] or {}
    assert not any(ports.values())
    port = f":{info.port:04X}"
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()
        if line.split()[3] == "0A"
    ]
    assert [address for address in listening if address.endswith(port)] == [f"0100007F{port}"]
    with pytest.raises(BackendError, match="Check the token"):
        sync.JupyterServerCodeExecutor(
            JupyterConnectionInfo("127.0.0.1", False, info.port, "wrong")
        ).start()


def test_limits_apply_to_the_container(
    engine: engines.Engine, server: DockerJupyterServer, python: sync.DockerJupyterCodeExecutor
) -> None:
    host = inspect_container(engine, server)["HostConfig"]
    assert host["PidsLimit"] >= 200
    assert host["CpuQuota"] == 8 * host["CpuPeriod"]
    assert (
        run(python, "import resource; resource.getrlimit(resource.RLIMIT_NOFILE)").output
        == "(2000, 2000)\n"
    )
    assert 500 * MIB <= host["Memory"] == host["MemorySwap"] < 700 * MIB
    with pytest.raises(ValueError, match="cannot enforce wall_seconds"):
        DockerJupyterServer(limits=Limits(wall_seconds=1))


async def test_a_client_lists_the_kernels(
    server: DockerJupyterServer, python: sync.DockerJupyterCodeExecutor
) -> None:
    run(python, "1")
    async with server.get_client() as client:
        before = {kernel["id"] for kernel in await client.list_kernels()}
        assert before
        kernel = await client.start_kernel()
        assert {found["id"] for found in await client.list_kernels()} == before | {kernel}
        await client.delete_kernel(kernel)
