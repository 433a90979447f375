"""Saved configurations of Docker executors, and packages that blocks install."""

from __future__ import annotations

import asyncio
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cellblock import CodeBlock, DockerCommandLineCodeExecutor, Limits, load_component
from tests.suite.tiers import exhaustive

OPTIONS: dict[str, Any] = {
    "image": "some:1",
    "timeout": 7,
    "bind_dir": "/elsewhere",
    "auto_remove": False,
    "stop_container": False,
    "device_requests": [{"Driver": "x", "Count": -1}],
    "extra_volumes": {"name": {"bind": "/x", "mode": "ro"}},
    "extra_hosts": {"a": "10.0.0.1"},
    "init_command": "true",
    "delete_tmp_files": True,
    "preload": ["json"],
    "user": "1:2",
    "network": "bridge",
    "environment": {"A": "b"},
    "ports": {"80": 8080},
    "runtime": "runsc",
    "read_only": False,
    "transfer": "copy",
    "create_kwargs": {"Hostname": "h"},
    "packages": ["tiny"],
    "wheels": ["/wheels"],
    "save_output": True,
}


def add(one: int, two: int) -> int:
    return one + two


def test_a_configuration_contains_all_options(tmp_path: Path) -> None:
    executor = DockerCommandLineCodeExecutor(
        **OPTIONS,
        work_dir=tmp_path,
        functions=[add],
        limits=Limits(processes=9),
        container_name="mine",
    )
    saved = executor.dump_component()
    config = dict(saved.config)
    assert {name: config[name] for name in OPTIONS} == {**OPTIONS}
    assert (config["container_name"], config["work_dir"]) == ("mine", str(tmp_path))
    again = load_component(json.loads(saved.to_json()))
    assert isinstance(again, DockerCommandLineCodeExecutor)
    assert again.dump_component() == saved


def test_an_autogen_configuration_loads() -> None:
    config: dict[str, object] = {
        "image": "python:3-slim",
        "container_name": "autogen-code-exec-1",
        "timeout": 60,
        "work_dir": None,
        "bind_dir": None,
        "auto_remove": True,
        "stop_container": True,
        "functions_module": "functions",
        "extra_volumes": {},
        "extra_hosts": {},
        "init_command": None,
        "delete_tmp_files": False,
    }
    provider = "autogen_ext.code_executors.docker.DockerCommandLineCodeExecutor"
    executor = load_component(
        {"provider": provider, "component_type": "code_executor", "version": 1, "config": config}
    )
    assert isinstance(executor, DockerCommandLineCodeExecutor)


@pytest.mark.engine
async def test_two_executors_of_one_configuration_do_not_share_a_container(image: str) -> None:
    saved = DockerCommandLineCodeExecutor(image).dump_component()
    async with DockerCommandLineCodeExecutor.load_component(saved) as one:
        async with DockerCommandLineCodeExecutor.load_component(saved) as two:
            assert one.container != two.container
        assert (
            await one.execute_code_blocks([CodeBlock("print('lives')", "python")])
        ).output == "lives\n"


def test_invalid_arguments_are_refused_when_it_is_created() -> None:
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"timeout": 0}, "Timeout"),
        ({"network": ""}, "network"),
        ({"transfer": "fly"}, "transfer"),
        ({"read_only": "no"}, "read_only"),
        ({"auto_remove": 1}, "auto_remove"),
        ({"device_requests": [{"cuont": 1}]}, "cuont"),
    ]
    for wrong, message in wrongs:
        with pytest.raises(ValueError, match=message):
            DockerCommandLineCodeExecutor(**wrong)
    with pytest.raises(TypeError, match="netwrok"):
        DockerCommandLineCodeExecutor(netwrok="none")  # pyright: ignore[reportCallIssue]


# packages


def offline(folder: Path) -> dict[str, Any]:
    """Return options of a container with pip and one package that installs without a network."""
    import pip

    shutil.copytree(Path(pip.__file__).parent, folder / "pip" / "pip")
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "answer = 42\n")
        wheel.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/offline", "PYTHONPATH": "/offline/pip"}
    return {
        "environment": environment,
        "extra_volumes": {str(folder): {"bind": "/offline", "mode": "ro"}},
    }


@pytest.mark.engine
@pytest.mark.parametrize("user", exhaustive(["77:88", None]))
def test_a_block_can_import_what_an_earlier_block_installed(
    image: str, tmp_path: Path, user: str | None
) -> None:
    async def main() -> str:
        tmp_path.chmod(0o755)
        async with DockerCommandLineCodeExecutor(image, user=user, **offline(tmp_path)) as executor:
            blocks = [
                CodeBlock('pip() { python3 -m pip "$@"; }; pip install tiny', "sh"),
                CodeBlock("import tiny; print(tiny.answer)", "python"),
            ]
            result = await executor.execute_code_blocks(blocks)
            return result.blocks[-1].output

    assert asyncio.run(main()) == "42\n"


def test_the_bound_folder_is_the_work_folder_unless_another_is_given(tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert DockerCommandLineCodeExecutor(work_dir=tmp_path).bind_dir == tmp_path
    assert DockerCommandLineCodeExecutor(work_dir=tmp_path, bind_dir=other).bind_dir == other
