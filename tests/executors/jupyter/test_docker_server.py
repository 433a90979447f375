"""Servers in containers: what they leave, whose they are, what they are built from, and their configurations."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    ComponentError,
    ContainerEngineUnavailable,
    DockerJupyterCodeExecutor,
    DockerJupyterServer,
    ImageUnavailable,
    JupyterConnectionInfo,
    JupyterServerCodeExecutor,
    Limits,
    PackageError,
    sync,
    with_requirements,
)
from cellblock.containers.client import connected
from cellblock.containers.gateway.image import gateway_image
from cellblock.testing.subject import until
from tests.containers import docker_engine as engines
from tests.executors.jupyter.gateways import ask, build, names
from tests.executors.jupyter.kernels import run

pytestmark = pytest.mark.timeout(
    120
)  # the image is built when it is not there, and a gateway takes some seconds to start


@pytest.fixture(scope="module")
def engine() -> Iterator[engines.Engine]:
    engine = engines.running()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)
        yield engine


@pytest.fixture(scope="module")
def base(engine: engines.Engine) -> str:
    return engine.image("python")


def test_a_folder_inside_serves_where_none_is_bound(base: str) -> None:
    async def main() -> None:
        async with (
            DockerJupyterServer(
                base_image=base, work_dir="/there", docker_env={"GREETING": "hi"}
            ) as server,
            JupyterServerCodeExecutor(server) as executor,
        ):
            code = "import os\nopen('x', 'w').close()\nprint(os.getcwd(), os.environ['GREETING'], 'TOKEN' in os.environ)"
            result = await executor.execute_code_blocks([CodeBlock(code, "python")])
            assert result.output == "/there hi False\n"

    asyncio.run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="a folder that is another user's needs root")
def test_root_serves_the_owner_of_the_folder(base: str, tmp_path: Path) -> None:
    os.chown(tmp_path, 4242, 4243)
    with (
        DockerJupyterServer(base_image=base, bind_dir=tmp_path) as server,
        sync.DockerJupyterCodeExecutor(server) as executor,
    ):
        code = "import os\nopen('made', 'w').close()\nopen(os.path.expanduser('~/x'), 'w').close()\nos.getuid()"
        assert run(executor, code).output == "4242\n"
        status = (tmp_path / "made").stat()
        assert (status.st_uid, status.st_gid) == (4242, 4243)


def test_stopped_servers_leave_nothing_or_their_container(
    engine: engines.Engine, base: str
) -> None:
    server = DockerJupyterServer(base_image=base)
    with server:
        name = server.container_name
        assert name in names(engine)
    assert name not in names(engine)
    kept = DockerJupyterServer(
        base_image=base, container_name="cellblock-test-kept", auto_remove=False
    )
    try:
        with kept, pytest.raises(BackendError, match="cellblock-test-kept already"):
            DockerJupyterServer(base_image=base, container_name="cellblock-test-kept").start()
        assert (
            engine.docker("inspect", "--format", "{{.State.Running}}", "cellblock-test-kept")
            == "false"
        )
        assert engine.docker("logs", "cellblock-test-kept") is not None
    finally:
        engine.docker("rm", "--force", "cellblock-test-kept")


def test_a_server_that_is_not_stopped_is_found_again(engine: engines.Engine, base: str) -> None:
    def make() -> DockerJupyterServer:
        return DockerJupyterServer(
            base_image=base,
            container_name="cellblock-test-stays",
            stop_container=False,
            token="t" * 20,
        )

    async def main() -> None:
        async with make() as server, server.get_client() as client:
            kernel = await client.start_kernel()
        async with make() as server, server.get_client() as client:
            assert [found["id"] for found in await client.list_kernels()] == [kernel]

    try:
        asyncio.run(main())
    finally:
        engine.docker("rm", "--force", "cellblock-test-stays")


def test_a_container_ends_with_its_owner(engine: engines.Engine, base: str) -> None:
    code = (
        "import sys, time\nfrom cellblock import DockerJupyterServer\nserver = DockerJupyterServer(base_image=sys.argv[1])\n"
        "server.start()\nprint(server.container_name, flush=True)\ntime.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    owner = subprocess.Popen(
        [sys.executable, "-c", code, base], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner.stdout:
        name = owner.stdout.readline().strip()
    assert name in names(engine)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    asyncio.run(until(lambda: name not in names(engine), "the container is gone"))


def test_a_container_that_is_killed_is_told_at_once_and_made_again(
    engine: engines.Engine, base: str
) -> None:
    with (
        DockerJupyterServer(base_image=base) as server,
        sync.DockerJupyterCodeExecutor(server) as executor,
    ):
        before, last, killed = server.container_name, None, 0.0
        for event in executor.execute_stream(
            [CodeBlock("import time\nprint('x', flush=True)\ntime.sleep(40)", "python")]
        ):
            if getattr(event, "text", ""):
                engine.docker("kill", str(before))
                killed = time.monotonic()
            last: Any = event
        assert (last.exit_code, last.outcome) == (137, "killed")
        assert "cannot be reached" in last.message
        assert time.monotonic() - killed < 10  # a new container included
        assert run(executor, "1").stdout == "1\n"
        assert server.container_name != before


# images


async def over(base: str) -> str:
    async with connected() as client:
        return await gateway_image(client, base)


def test_an_image_of_ones_own_is_used_as_it_is(engine: engines.Engine, base: str) -> None:
    image = asyncio.run(over(base))
    name = build(
        engine,
        "cellblock-test-custom",
        f"FROM {image}\nENV PYTHONPATH=/opt/cellblock/packages\nEXPOSE 8899\n"
        'CMD python3 -m kernel_gateway --ip=0.0.0.0 --port=8899 --KernelGatewayApp.auth_token="$TOKEN"\n',
    )
    with (
        DockerJupyterServer(custom_image_name=name, expose_port=8899) as custom,
        sync.DockerJupyterCodeExecutor(custom) as executor,
    ):
        assert ask(custom.connection_info, None) == 401
        assert run(executor, "6 * 7").output == "42\n"


def test_an_image_that_is_not_there_is_named(engine: engines.Engine) -> None:
    with pytest.raises(ImageUnavailable, match="Custom image nothing:1 does not exist"):
        DockerJupyterServer(custom_image_name="nothing:1").start()
    with pytest.raises(ImageUnavailable, match="nothing:2"):
        DockerJupyterServer(base_image="nothing:2").start()


def test_an_image_without_python_says_so(engine: engines.Engine) -> None:
    with pytest.raises(PackageError, match="has no python3"):
        DockerJupyterServer(base_image=engine.image("shell")).start()


def test_a_build_that_fails_says_what_it_said(engine: engines.Engine, base: str) -> None:
    name = build(
        engine, "cellblock-test-trap", f"FROM {base}\nONBUILD RUN echo no luck today; exit 3\n"
    )
    with pytest.raises(BackendError, match="cannot be built(?s:.*)no luck today"):
        DockerJupyterServer(base_image=name).start()
    assert not engine.docker("ps", "--all", "--quiet", "--filter", "name=cellblock-look")


def test_an_image_whose_command_ends_says_what_it_said(engine: engines.Engine, base: str) -> None:
    name = build(
        engine,
        "cellblock-test-ends",
        f'FROM {base}\nCMD echo "no gateway with $TOKEN here"; exit 1\n',
    )
    with pytest.raises(BackendError, match=r"(?s)no gateway with \*\*\* here"):
        DockerJupyterServer(custom_image_name=name, token="s3cret").start()


def test_an_engine_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    begun = time.monotonic()
    with pytest.raises(ContainerEngineUnavailable, match="nothing.sock"):
        DockerJupyterServer().start()
    assert time.monotonic() - begun < 10


# saved configurations


@with_requirements(global_imports=["math"])
def area(radius: float) -> int:
    """Give the area of a circle, rounded."""
    return round(math.pi * radius**2)  # type: ignore[name-defined]  # noqa: F821


def test_configurations_come_back_with_everything_in_them(base: str, tmp_path: Path) -> None:
    server = DockerJupyterServer(
        base_image=base, bind_dir=tmp_path, docker_env={"A": "b"}, token="s3cret", network="bridge"
    )
    executor = DockerJupyterCodeExecutor(
        server, timeout=7, functions=[area], limits=Limits(output_bytes=100)
    )
    saved = executor.dump_component()
    assert "s3cret" not in saved.to_json()
    loaded = DockerJupyterCodeExecutor.load_component(saved.to_json())
    assert loaded.dump_component() == saved
    assert saved.provider == "cellblock.DockerJupyterCodeExecutor"
    with pytest.raises(ComponentError, match="secrets are not saved"):
        DockerJupyterCodeExecutor(
            JupyterConnectionInfo("127.0.0.1", False, 1, "t")
        ).dump_component()


def test_autogens_configurations_are_loaded() -> None:
    where = {"host": "127.0.0.1", "use_https": False, "port": 1, "token": None}
    config = {
        "jupyter_server": where,
        "kernel_name": "python3",
        "timeout": 9,
        "output_dir": "shown",
    }
    provider = "autogen_ext.code_executors.docker_jupyter.DockerJupyterCodeExecutor"
    loaded = DockerJupyterCodeExecutor.load_component({"provider": provider, "config": config})
    assert (loaded.timeout, loaded.output_dir) == (9, Path("shown"))


def test_executors_of_one_configuration_have_servers_of_their_own(
    engine: engines.Engine, base: str
) -> None:
    saved = DockerJupyterCodeExecutor(DockerJupyterServer(base_image=base)).dump_component()
    before = names(engine)
    with (
        sync.DockerJupyterCodeExecutor.load_component(saved) as one,
        sync.DockerJupyterCodeExecutor.load_component(saved) as other,
    ):
        assert len(names(engine)) == len(before) + 2
        run(one, "open('mark', 'w').close()")
        assert run(other, "import os; os.path.exists('mark')").output == "False\n"
    assert sorted(names(engine)) == sorted(before)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"token": ""}, "empty"),
        ({"work_dir": "workspace"}, "absolute path"),
        ({"network": "host"}, "'host'"),
        ({"expose_port": 0}, "port"),
        ({"auto_remove": 1}, "True or False"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DockerJupyterServer(**arguments)
