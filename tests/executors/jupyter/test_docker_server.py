"""Jupyter servers in containers: their lifetime, images and saved configurations."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
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
)
from cellblock.containers.client import open_client
from cellblock.containers.gateway.image import gateway_image
from cellblock.testing.liveness import wait_until
from tests.containers import docker_engine as engines
from tests.executors.blocks import area
from tests.executors.jupyter.kernels import run
from tests.executors.jupyter.server_inspection import build_image, container_names, kernels_status
from tests.executors.programs import start_python

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.kernel]


async def test_kernels_use_a_temporary_folder_without_a_bind_dir(base: str) -> None:
    async with (
        DockerJupyterServer(
            base_image=base, work_dir="/there", docker_env={"GREETING": "hi"}
        ) as server,
        JupyterServerCodeExecutor(server) as executor,
    ):
        code = (
            "import os\nopen('x', 'w').close()\n"
            "print(os.getcwd(), os.environ['GREETING'], 'TOKEN' in os.environ)"
        )
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.output == "/there hi False\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a folder")
def test_kernels_run_as_the_owner_of_the_bind_dir_if_the_caller_is_root(
    base: str, tmp_path: Path
) -> None:
    os.chown(tmp_path, 4242, 4243)
    with (
        DockerJupyterServer(base_image=base, bind_dir=tmp_path) as server,
        sync.DockerJupyterCodeExecutor(server) as executor,
    ):
        code = (
            "import os\nopen('made', 'w').close()\n"
            "open(os.path.expanduser('~/x'), 'w').close()\nos.getuid()"
        )
        assert run(executor, code).output == "4242\n"
        status = (tmp_path / "made").stat()
        assert (status.st_uid, status.st_gid) == (4242, 4243)


def test_a_stopped_server_removes_its_container_unless_told_to_keep_it(
    engine: engines.Engine, base: str
) -> None:
    server = DockerJupyterServer(base_image=base)
    with server:
        name = server.container_name
        assert name in container_names(engine)
    assert name not in container_names(engine)
    own = f"cellblock-test-{uuid.uuid4()}"
    kept = DockerJupyterServer(base_image=base, container_name=own, auto_remove=False)
    try:
        with kept, pytest.raises(BackendError, match=f"already a container named {own}"):
            DockerJupyterServer(base_image=base, container_name=own).start()
        assert engine.docker("inspect", "--format", "{{.State.Running}}", own) == "false"
        assert engine.docker("logs", own) is not None
    finally:
        engine.docker("rm", "--force", own)


def test_a_server_that_was_not_stopped_is_found_by_its_name(
    engine: engines.Engine, base: str
) -> None:
    own = f"cellblock-test-{uuid.uuid4()}"

    def make() -> DockerJupyterServer:
        return DockerJupyterServer(
            base_image=base, container_name=own, stop_container=False, token="t" * 20
        )

    async def main() -> None:
        async with make() as server, server.get_client() as client:
            kernel = await client.start_kernel()
        async with make() as server, server.get_client() as client:
            assert [found["id"] for found in await client.list_kernels()] == [kernel]

    try:
        asyncio.run(main())
    finally:
        engine.docker("rm", "--force", own)


def test_the_container_is_removed_when_its_owner_process_is_killed(
    engine: engines.Engine, base: str
) -> None:
    code = (
        "import sys, time\nfrom cellblock import DockerJupyterServer\n"
        "server = DockerJupyterServer(base_image=sys.argv[1])\nserver.start()\n"
        "print(server.container_name, flush=True)\ntime.sleep(60)"
    )
    with start_python("-c", code, base) as owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().strip()
        assert name in container_names(engine)
        owner.kill()
    asyncio.run(wait_until(lambda: name not in container_names(engine), "the container is gone"))


def test_a_killed_container_is_reported_at_once_and_replaced(
    engine: engines.Engine, base: str
) -> None:
    with (
        DockerJupyterServer(base_image=base) as server,
        sync.DockerJupyterCodeExecutor(server) as executor,
    ):
        before, last = server.container_name, None
        for event in executor.execute_stream(
            [CodeBlock("import time\nprint('x', flush=True)\ntime.sleep(40)", "python")]
        ):
            if getattr(event, "text", ""):
                engine.docker("kill", str(before))
            last: Any = event
        assert (last.exit_code, last.outcome) == (137, "killed")
        assert "cannot be reached" in last.message
        assert run(executor, "1").stdout == "1\n"
        assert server.container_name != before


# images


async def over(base: str) -> str:
    async with open_client() as client:
        return await gateway_image(client, base)


def test_a_custom_image_is_used_unchanged(engine: engines.Engine, base: str) -> None:
    image = asyncio.run(over(base))
    name = build_image(
        engine,
        "cellblock-test-custom",
        f"FROM {image}\nENV PYTHONPATH=/opt/cellblock/packages\nEXPOSE 8899\n"
        "CMD python3 -m kernel_gateway --ip=0.0.0.0 --port=8899 "
        '--KernelGatewayApp.auth_token="$TOKEN"\n',
    )
    with (
        DockerJupyterServer(custom_image_name=name, expose_port=8899) as custom,
        sync.DockerJupyterCodeExecutor(custom) as executor,
    ):
        assert kernels_status(custom.connection_info, None) == 401
        assert run(executor, "6 * 7").output == "42\n"


def test_the_error_for_a_missing_image_names_it(engine: engines.Engine) -> None:
    with pytest.raises(ImageUnavailable, match="Custom image nothing:1 does not exist"):
        DockerJupyterServer(custom_image_name="nothing:1").start()
    with pytest.raises(ImageUnavailable, match="nothing:2"):
        DockerJupyterServer(base_image="nothing:2").start()


def test_an_image_without_python_raises_an_error(engine: engines.Engine) -> None:
    with pytest.raises(PackageError, match="has no python3"):
        DockerJupyterServer(base_image=engine.test_image("shell")).start()


@pytest.mark.slow
def test_the_error_for_a_failed_build_quotes_its_output(engine: engines.Engine, base: str) -> None:
    name = build_image(
        engine, "cellblock-test-trap", f"FROM {base}\nONBUILD RUN echo no luck today; exit 3\n"
    )
    with pytest.raises(BackendError, match="cannot be built(?s:.*)no luck today"):
        DockerJupyterServer(base_image=name).start()
    assert not [name for name in engine.container_names() if name.startswith("cellblock-probe-")]


def test_the_error_for_a_command_that_exits_quotes_its_output(
    engine: engines.Engine, base: str
) -> None:
    name = build_image(
        engine,
        "cellblock-test-ends",
        f'FROM {base}\nCMD echo "no gateway with $TOKEN here"; exit 1\n',
    )
    with pytest.raises(BackendError, match=r"(?s)no gateway with \*\*\* here"):
        DockerJupyterServer(custom_image_name=name, token="s3cret").start()


def test_the_error_for_a_missing_engine_names_its_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    begun = time.monotonic()
    with pytest.raises(ContainerEngineUnavailable, match="nothing.sock"):
        DockerJupyterServer().start()
    assert time.monotonic() - begun < 10


# saved configurations


def test_a_configuration_contains_everything_except_secrets(base: str, tmp_path: Path) -> None:
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


def test_a_configuration_of_autogen_can_be_loaded() -> None:
    server = {"host": "127.0.0.1", "use_https": False, "port": 1, "token": None}
    config = {
        "jupyter_server": server,
        "kernel_name": "python3",
        "timeout": 9,
        "output_dir": "shown",
    }
    provider = "autogen_ext.code_executors.docker_jupyter.DockerJupyterCodeExecutor"
    loaded = DockerJupyterCodeExecutor.load_component({"provider": provider, "config": config})
    assert (loaded.timeout, loaded.output_dir) == (9, Path("shown"))


def test_executors_loaded_from_one_configuration_use_separate_servers(
    engine: engines.Engine, base: str
) -> None:
    saved = DockerJupyterCodeExecutor(DockerJupyterServer(base_image=base)).dump_component()
    before = engine.container_names()
    with (
        sync.DockerJupyterCodeExecutor.load_component(saved) as one,
        sync.DockerJupyterCodeExecutor.load_component(saved) as other,
    ):
        assert len(engine.container_names() - before) == 2
        run(one, "open('mark', 'w').close()")
        assert run(other, "import os; os.path.exists('mark')").output == "False\n"
    assert engine.container_names() == before


def test_invalid_arguments_raise_value_errors() -> None:
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"token": ""}, "empty"),
        ({"work_dir": "workspace"}, "absolute path"),
        ({"network": "host"}, "'host'"),
        ({"expose_port": 0}, "port"),
        ({"auto_remove": 1}, "True or False"),
    ]
    for arguments, words in wrongs:
        with pytest.raises(ValueError, match=words):
            DockerJupyterServer(**arguments)
