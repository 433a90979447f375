"""The error for a module in `preload` that cannot be imported names the module and the cause."""

from __future__ import annotations

import asyncio
import venv
from types import SimpleNamespace
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeExecutor,
    PackageError,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
)
from cellblock.environments.virtualenv import site_packages
from cellblock.sandbox.probe import unavailable_reason
from tests.suite.tiers import exhaustive

KINDS: dict[str, type[CodeExecutor]] = {
    "sandbox": SandboxCommandLineCodeExecutor,
    "session": SandboxSessionCodeExecutor,
}
# Maps a module name to its code and Python's error message.
MODULES = {
    "fails": ("1 / 0", "ZeroDivisionError: division by zero"),
    "ends": ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
    "lacks": ("import nunpy", "ModuleNotFoundError: No module named 'nunpy'"),
    "wordy": ("raise ValueError('x' * 300_000)", "ValueError: xxx"),
    "broken": ("x = = 1", "SyntaxError: invalid syntax"),
    "quits": ("import os; os._exit(0)", "The import ended the process."),
}


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("venv") / "env"
    builder = venv.EnvBuilder(with_pip=False)
    builder.create(folder)
    (site_packages(folder) / "hangs.py").write_text("import signal; signal.pause()")
    for name, (code, _) in MODULES.items():
        (site_packages(folder) / f"{name}.py").write_text(code)
    return builder.ensure_directories(folder)


def refused(cls: type[CodeExecutor], **options: Any) -> str:
    """Return the message of the error that starting an executor raises."""
    with pytest.raises(PackageError) as caught:
        asyncio.run(cls(**options).start())
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def check(message: str, name: str, words: str) -> None:
    assert message.startswith(
        f"preload names '{name}', which the Python that runs the blocks cannot import"
    )
    assert words in message
    assert "packages" in message
    assert not [
        word for word in ("isolation", "sandbox", "landlock", "doctor") if word in message.lower()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_module_is_reported(kind: str) -> None:
    check(
        refused(KINDS[kind], preload=["json", "nunpy"]),
        "nunpy",
        "ModuleNotFoundError: No module named 'nunpy'",
    )


@pytest.mark.pythons
@pytest.mark.parametrize("name", exhaustive(MODULES, keep=2))
def test_a_module_that_fails_to_import_is_reported(name: str, context: SimpleNamespace) -> None:
    options = {"preload": [name], "virtual_env_context": context}
    message = refused(SandboxCommandLineCodeExecutor, **options)
    check(message, name, MODULES[name][1])
    assert len(message) < 3000


@pytest.mark.pythons
@pytest.mark.slow
@pytest.mark.timeout(180)  # 50 seconds is what an import may take
def test_a_module_that_never_ends_is_reported(context: SimpleNamespace) -> None:
    options = {"preload": ["json", "hangs"], "virtual_env_context": context}
    message = refused(SandboxCommandLineCodeExecutor, **options)
    check(message, "hangs", "The import did not end within 50 s.")


@pytest.mark.pythons
def test_a_start_that_waits_for_an_import_can_be_cancelled(context: SimpleNamespace) -> None:
    async def main() -> None:
        executor = SandboxCommandLineCodeExecutor(preload=["hangs"], virtual_env_context=context)
        async with asyncio.timeout(2):
            await executor.start()

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_concurrent_start_with_another_preload_succeeds() -> None:
    async def main() -> tuple[list[type], str]:
        executors = [
            SandboxCommandLineCodeExecutor(preload=[name]) for name in ("nunpy", "decimal", "nunpy")
        ]
        started = await asyncio.gather(
            *(executor.start() for executor in executors), return_exceptions=True
        )
        result = await executors[1].execute_code_blocks(
            [CodeBlock("import sys; print('decimal' in sys.modules)", "python")]
        )
        await executors[1].stop()
        return [type(one) for one in started], result.output

    assert asyncio.run(main()) == ([PackageError, type(None), PackageError], "True\n")
