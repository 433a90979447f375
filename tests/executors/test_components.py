"""Executors as saved configurations: a loaded executor behaves like the saved one."""

import asyncio
import json
import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeExecutor,
    CodeResult,
    ComponentError,
    FunctionError,
    JupyterCodeExecutor,
    Limits,
    LocalCommandLineCodeExecutor,
    Mount,
    Policy,
    SandboxCommandLineCodeExecutor,
    load_component,
    sync,
)
from tests.executors.blocks import area

# Written by AutoGen 0.7.5.
AUTOGEN: dict[str, Any] = {
    "provider": "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor",
    "component_type": "code_executor",
    "version": 1,
    "component_version": 1,
    "description": (
        "A code executor class that executes code through a local command line environment."
    ),
    "label": "LocalCommandLineCodeExecutor",
    "config": {
        "timeout": 30,
        "work_dir": None,
        "functions_module": "tools",
        "cleanup_temp_files": False,
    },
}
KINDS = [SandboxCommandLineCodeExecutor, LocalCommandLineCodeExecutor]


@pytest.fixture(autouse=True)
def _ignore_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using LocalCommandLineCodeExecutor")
        yield


def run(executor: CodeExecutor, *blocks: CodeBlock) -> CodeResult:
    async def main() -> CodeResult:
        async with executor:
            return await executor.execute_code_blocks(blocks)

    return asyncio.run(main())


def through_json(executor: CodeExecutor) -> CodeExecutor:
    return CodeExecutor.load_component(json.loads(executor.dump_component().to_json()))


@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_saved(kind: type[Any], tmp_path: Path) -> None:
    loaded = through_json(kind(functions=[area], functions_module="shapes", work_dir=tmp_path))
    assert type(loaded) is kind
    assert (
        run(loaded, CodeBlock("from shapes import area\nprint(area(2))", "python")).output == "13\n"
    )


def test_saving_and_loading_twice_changes_nothing(tmp_path: Path) -> None:
    for kind in KINDS:
        executor = kind(
            timeout=7,
            work_dir=tmp_path,
            functions=[area],
            functions_module="shapes",
            cleanup_temp_files=False,
            packages=["six>=1"],
            limits=Limits(output_bytes=10, wall_seconds=3.5, file_bytes=1000),
            execution_policies={"sh": "ignore"},
            save_output=True,
        )
        once = through_json(executor)
        assert once.dump_component() == executor.dump_component()
        assert through_json(once).dump_component() == executor.dump_component()


def test_a_pickled_executor_raises_and_names_dump_component() -> None:
    for kind in (*KINDS, sync.SandboxCommandLineCodeExecutor, JupyterCodeExecutor):
        expected = f"{kind.__name__} cannot be pickled. Use dump_component() and load_component()"
        with pytest.raises(TypeError, match=re.escape(expected)):
            pickle.dumps(kind())


@pytest.mark.parametrize("kind", KINDS)
def test_limits_and_policies_apply_after_loading(kind: type[Any], tmp_path: Path) -> None:
    limits = Limits(output_bytes=10)
    loaded = through_json(
        kind(work_dir=tmp_path, limits=limits, execution_policies={"sh": "ignore"})
    )
    result = run(
        loaded, CodeBlock("echo never", "sh"), CodeBlock("print('x' * 30, end='')", "python")
    )
    assert result.output == "xxxxx\n[... 20 bytes left out ...]\nxxxxx"


@pytest.mark.parametrize("kind", KINDS)
def test_the_time_limit_applies_after_loading(kind: type[Any], tmp_path: Path) -> None:
    loaded = through_json(kind(work_dir=tmp_path, limits=Limits(wall_seconds=0.5)))
    assert run(loaded, CodeBlock("sleep 30", "sh")).exit_code == 124


def test_policy_and_preload_are_saved(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("given")
    policy = Policy(read_only=(Mount(str(data), "/given"),), environment={"NAME": "value"})
    executor = SandboxCommandLineCodeExecutor(
        work_dir=tmp_path / "work", policy=policy, preload=["decimal"]
    )
    code = (
        "import os, sys\nprint('decimal' in sys.modules, open('/given/file').read(), "
        "os.environ['NAME'])"
    )
    assert run(through_json(executor), CodeBlock(code, "python")).output == "True given value\n"


def test_env_of_the_local_executor_is_saved(tmp_path: Path) -> None:
    executor = LocalCommandLineCodeExecutor(
        work_dir=tmp_path, env={"PATH": "/usr/bin:/bin", "NAME": "value"}
    )
    assert run(through_json(executor), CodeBlock("echo $NAME", "sh")).output == "value\n"


def test_a_temporary_work_dir_is_not_saved() -> None:
    executor = SandboxCommandLineCodeExecutor()
    folder = executor.work_dir
    assert executor.dump_component().config["work_dir"] is None
    loaded = through_json(executor)
    assert isinstance(loaded, SandboxCommandLineCodeExecutor)
    assert loaded.work_dir != folder


def test_a_configuration_of_autogens_local_executor_loads_and_runs(tmp_path: Path) -> None:
    values = {**AUTOGEN, "config": {**AUTOGEN["config"], "work_dir": str(tmp_path)}}
    loaded = load_component(json.dumps(values))
    assert isinstance(loaded, LocalCommandLineCodeExecutor)
    assert (loaded.timeout, loaded.functions_module, loaded.cleanup_temp_files) == (
        30,
        "tools",
        False,
    )
    result = run(loaded, CodeBlock("print('hi')", "python"))
    assert result.output == "hi\n"
    assert loaded.dump_component().provider == "cellblock.LocalCommandLineCodeExecutor"


def test_invalid_configurations_are_refused() -> None:
    of_all: list[dict[str, Any]] = [
        {"timeout": 0},
        {"timeout": "60"},
        {"unknown": 1},
        {"limits": {"memory": 1}},
        {"limits": {"memory_bytes": -1}},
        {"limits": "none"},
        {"functions_module": "a b"},
        {"functions_module": 3},
        {"packages": "six"},
        {"packages": [1]},
        {"execution_policies": {"sh": "maybe"}},
        {"execution_policies": ["sh"]},
        {"functions": "f"},
        {"work_dir": 3},
        {"cleanup_temp_files": "no"},
    ]
    of_sandbox: list[dict[str, Any]] = [
        {"policy": {"network": "all"}},
        {"policy": {"writable": []}},
        {"policy": {"read_only": [["data", None]]}},
        {"policy": {"read_only": "/data"}},
        {"policy": {"environment": {"A": 1}}},
        {"policy": []},
        {"preload": "numpy"},
        {"preload": [1]},
        {"isolation": "none"},
    ]
    accepted = [
        (kind.__name__, config)
        for kind, configs in zip(KINDS, ([*of_all, *of_sandbox], of_all), strict=True)
        for config in configs
        if is_accepted({"provider": f"cellblock.{kind.__name__}", "config": config})
    ]
    assert accepted == []


def is_accepted(configuration: dict[str, Any]) -> bool:
    try:
        load_component(configuration)
    except (ComponentError, FunctionError):
        return False
    return True


def test_loading_runs_no_code_from_the_configuration(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    source = f"def f(a=open({str(marker)!r}, 'w')):\n    return a\n"
    function: dict[str, object] = {"source": source, "python_packages": [], "global_imports": []}
    load_component(
        {
            "provider": "cellblock.SandboxCommandLineCodeExecutor",
            "config": {"functions": [function]},
        }
    )
    assert not marker.exists()
