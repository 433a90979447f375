"""Containers: what blocks in them may do, who owns their files, and which options callers have."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import cellblock
from cellblock import (
    BackendError,
    CodeResult,
    CommandLineCodeResult,
    DockerCommandLineCodeExecutor,
    Limits,
    PackageError,
)
from cellblock.limits import MIB
from cellblock.testing.liveness import wait_until
from tests.containers import docker_engine
from tests.executors.blocks import run
from tests.suite.tiers import exhaustive

pytestmark = [pytest.mark.depends_on_user, pytest.mark.engine, pytest.mark.usefixtures("image")]


def result_of(code: str, language: str = "python", **options: Any) -> CodeResult:
    async def main() -> CodeResult:
        async with DockerCommandLineCodeExecutor(**options) as executor:
            return await run(executor, code, language)

    return asyncio.run(main())


def facts(executor: DockerCommandLineCodeExecutor, template: str) -> str:
    assert executor.container is not None
    return docker_engine.shared_engine().docker("inspect", "--format", template, executor.container)


def test_a_code_file_in_a_relative_work_dir_has_a_relative_path(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coding").mkdir()
    code = "# filename: a.py\nprint(1)"
    result = result_of(code, image=image, work_dir="coding")
    assert isinstance(result, CommandLineCodeResult)
    assert (result.output, result.code_file) == ("1\n", "coding/a.py")
    result = result_of("<!-- filename: a.html -->", "html", image=image, work_dir="coding")
    assert result.output == "Code saved to coding/a.html\n"


# what blocks may do


def test_blocks_have_only_the_rights_of_an_ordinary_process(image: str) -> None:
    result = result_of("print(open('/proc/self/status').read())", image=image)
    status = dict(line.split(":\t") for line in result.output.strip().splitlines())
    rights = {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert rights == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [True, False])
def test_the_image_is_read_only_unless_requested_otherwise(image: str, read_only: bool) -> None:
    code = (
        "import os\nfor folder in ('/etc', '/tmp', os.environ['HOME'], '/workspace'):\n"
        "    open(folder + '/new', 'w')"
    )
    result = result_of(code, image=image, read_only=read_only)
    assert result.exit_code == (1 if read_only else 0), result.output
    assert ("Read-only file system" in result.output) is read_only
    writable = code.replace("'/etc', ", "")
    assert result_of(writable, image=image).exit_code == 0


def test_there_is_no_network_unless_requested(image: str) -> None:
    code = "import os; print(sorted(os.listdir('/sys/class/net')))"
    assert result_of(code, image=image).output == "['lo']\n"
    assert "eth0" in result_of(code, image=image, network="bridge").output


def test_files_belong_to_the_owner_of_the_work_folder(image: str, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 54321, 54322)
    result = result_of("open('made', 'w').write('x')", image=image, work_dir=tmp_path)
    assert result.exit_code == 0, result.output
    folder, made = tmp_path.stat(), (tmp_path / "made").stat()
    assert (made.st_uid, made.st_gid) == (folder.st_uid, folder.st_gid)
    assert folder.st_mode & 0o002 == 0, "the folder is writable for everyone"


async def test_limits_apply_to_the_container(image: str) -> None:
    limits = Limits(memory_bytes=200 * MIB, processes=40)
    async with DockerCommandLineCodeExecutor(image, limits=limits) as executor:
        memory, swap, processes = facts(
            executor, "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}}"
        ).split()
        assert 200 * MIB <= int(memory) == int(swap) <= 300 * MIB
        assert 40 <= int(processes) <= 80


@pytest.mark.slow
def test_out_of_memory_in_a_child_of_a_shell_is_reported(image: str) -> None:
    code = "python3 -c \"b'x' * (400 << 20)\"\necho $?"
    limits = Limits(memory_bytes=100 * MIB)
    result = result_of(f"exec {code}", "sh", image=image, limits=limits)
    assert (result.exit_code, result.outcome) == (137, "out_of_memory"), result.output
    assert "104857600" in result.output


@pytest.mark.slow
async def test_only_the_block_that_was_killed_reports_out_of_memory(image: str) -> None:
    async with DockerCommandLineCodeExecutor(
        image, limits=Limits(memory_bytes=150 * MIB)
    ) as executor:
        code = (
            "open('begun', 'w').close(); import os, time\n"
            "while not os.path.exists('over'): time.sleep(0.01)\nprint('fine')"
        )
        waiting = asyncio.create_task(run(executor, code))
        await wait_until((executor.work_dir / "begun").exists, "the other block runs")
        ended = await run(executor, "b'x' * (900 << 20)")
        (executor.work_dir / "over").touch()
        modest = await waiting
        assert (modest.output, modest.outcome) == ("fine\n", "ok")
        assert ended.outcome == "out_of_memory", ended


# options


@pytest.mark.slow
async def test_user_environment_hosts_volumes_and_create_kwargs_reach_the_container(
    image: str, tmp_path: Path
) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("from outside")
    executor = DockerCommandLineCodeExecutor(
        image,
        user="77:88",
        environment={"COLOUR": "blue"},
        extra_hosts={"elsewhere": "10.1.2.3"},
        extra_volumes={str(tmp_path / "given"): {"bind": "/given", "mode": "ro"}},
        create_kwargs={"HostConfig": {"NanoCpus": 500_000_000}, "Hostname": "named"},
    )
    async with executor:
        code = (
            "import os, socket; print(os.environ['COLOUR'], socket.gethostname(), "
            "open('/given/file').read(), os.getuid(), os.getgid())"
        )
        assert (await run(executor, code)).output == "blue named from outside 77 88\n"
        assert "10.1.2.3" in (await run(executor, "cat /etc/hosts", "sh")).output
        assert (await run(executor, "echo x > /given/file", "sh")).exit_code != 0
        assert (
            facts(executor, "{{.HostConfig.NanoCpus}} {{.HostConfig.CapDrop}}") == "500000000 [ALL]"
        )


@pytest.mark.slow
async def test_a_published_port_is_only_reachable_from_this_machine(image: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with DockerCommandLineCodeExecutor(
        image, network="bridge", ports={8000: port}
    ) as executor:
        assert "127.0.0.1" in facts(executor, "{{.NetworkSettings.Ports}}")
        served = asyncio.create_task(run(executor, "python3 -m http.server 8000", "sh"))
        for _ in range(600):
            try:
                status = (
                    await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/")
                ).status
                break
            except OSError:
                await asyncio.sleep(0.05)
        else:
            raise AssertionError("nobody answers")
        assert status == 200
        served.cancel()


@pytest.mark.slow
def test_an_unavailable_device_or_runtime_raises_a_clear_error(image: str) -> None:
    for count, capabilities in (("count", "capabilities"), ("Count", "Capabilities")):
        request = {count: -1, capabilities: [["gpu"]]}
        with pytest.raises(BackendError, match=r"device.*GPU"):
            result_of("print(1)", image=image, device_requests=[request])
    with pytest.raises(BackendError, match="no-such-runtime"):
        result_of("print(1)", image=image, runtime="no-such-runtime")


def test_device_requests_of_the_docker_package_are_accepted() -> None:
    from docker.types import DeviceRequest  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    executor = DockerCommandLineCodeExecutor(
        device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])]
    )
    wanted = executor.dump_component().config["device_requests"]
    assert wanted == [
        {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}
    ]
    with pytest.raises(ValueError, match="device_requests"):
        DockerCommandLineCodeExecutor(device_requests=["gpu"])


@pytest.mark.slow
def test_the_init_command_runs_first_and_its_failure_is_reported(image: str) -> None:
    assert (
        result_of("cat ready", "sh", image=image, init_command="echo yes > ready").output == "yes\n"
    )
    with pytest.raises(BackendError, match=r"init_command.*7.*no luck"):
        result_of("print(1)", image=image, init_command="echo no luck; exit 7")


@pytest.mark.slow
def test_preloaded_modules_are_imported_and_threads_start(image: str) -> None:
    code = (
        "import sys; print('decimal' in sys.modules); import decimal; print(decimal.Decimal(1) / 4)"
    )
    assert result_of(code, image=image, preload=["decimal"]).output == "True\n0.25\n"
    with pytest.raises(PackageError, match="preload names 'nonsense'"):
        result_of(code, image=image, preload=["nonsense"])


@pytest.mark.slow
@pytest.mark.parametrize("user", exhaustive(["77:88", None]))
async def test_files_are_copied_in_and_out_if_the_engine_cannot_mount_the_folder(
    image: str, tmp_path: Path, user: str | None
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "given.py").write_text("value = 7")
    (tmp_path / "gone").write_text("x")

    def double(value: int) -> int:
        return 2 * value

    executor = DockerCommandLineCodeExecutor(
        image,
        work_dir=tmp_path,
        transfer="copy",
        user=user,
        save_output=True,
        functions=[double],
    )
    async with executor:
        assert facts(executor, "{{range .Mounts}}{{.Type}} {{end}}").strip() == "volume"
        code = (
            "import sys, os; sys.path.insert(0, 'in'); import functions, given; "
            "os.makedirs('out/deep'); os.remove('gone')\n"
        )
        code += (
            "open('out/deep/made', 'w').write(str(functions.double(given.value))); "
            "os.symlink('/etc/passwd', 'link'); print('said')"
        )
        result = await run(executor, code)
        assert result.exit_code == 0, result.output
        assert (tmp_path / "out" / "deep" / "made").read_text() == "14"
        assert not (tmp_path / "gone").exists()
        assert not os.path.lexists(tmp_path / "link")
        assert "out/deep/made" in result.blocks[0].files
        (tmp_path / "in" / "given.py").write_text("value = 8")
        assert (await run(executor, "cat in/given.py out/deep/made", "sh")).output == "value = 814"
        assert sorted(path.read_text() for path in tmp_path.glob("output_*.txt")) == [
            "said\n",
            "value = 814",
        ]


INNER = """
import asyncio, sys
from cellblock import CodeBlock, DockerCommandLineCodeExecutor
async def main():
    async with DockerCommandLineCodeExecutor(
        sys.argv[1], work_dir="/inner", bind_dir=sys.argv[2]
    ) as executor:
        block = CodeBlock("open('made', 'w').write('x'); print('out of it')", "python")
        print((await executor.execute_code_blocks([block])).output)
asyncio.run(main())
"""


@pytest.mark.slow
def test_bind_dir_works_for_a_caller_in_a_container(image: str, tmp_path: Path) -> None:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    inside = docker_engine.shared_engine().docker(
        "run", "--rm", image, "python3", "-c", "import sys; print(sys.version_info[1])"
    )
    host = docker_engine.shared_engine().host
    if not host.startswith("unix://") or int(inside) != sys.version_info[1]:
        pytest.skip(
            "the image's Python cannot import this Python's packages, or the engine has no socket"
        )
    shown = [str(Path(cellblock.__file__).parent.parent), *packages]
    options = [f"--volume={path}:{path}:ro" for path in shown]
    options += [
        f"--volume={tmp_path}:/inner",
        f"--volume={host.removeprefix('unix://')}:/var/run/docker.sock",
    ]
    options += [f"--env=PYTHONPATH={os.pathsep.join(shown)}", "--network=none", "--rm"]
    said = docker_engine.shared_engine().docker(
        "run", *options, image, "python3", "-c", INNER, image, str(tmp_path)
    )
    assert said == "out of it"
    assert (tmp_path / "made").read_text() == "x"


@pytest.mark.slow
def test_a_failed_start_leaves_nothing_behind(image: str) -> None:
    before = docker_engine.shared_engine().container_names()
    wrongs: list[dict[str, Any]] = [
        {"preload": ["none"]},
        {"init_command": "exit 1"},
        {"runtime": "none"},
        {"network": "no-such"},
    ]
    for wrong in wrongs:
        with pytest.raises((BackendError, PackageError)):
            result_of("print(1)", image=image, **wrong)
    assert docker_engine.shared_engine().container_names() - before == set()
