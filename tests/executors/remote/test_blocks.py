"""Blocks in sessions of a pool: in both dialects the results are the same."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from cellblock import (
    ACADynamicSessionsCodeExecutor,
    AzureContainerCodeExecutor,
    CancellationToken,
    CodeBlock,
    CodeExecutor,
    ExecutorStopped,
    FunctionError,
    SessionCodeResult,
    sync,
    with_requirements,
)
from tests.executors.remote.pool import Fault, Pool

VERSIONS = ["2024-02-02-preview", "2025-02-02-preview", "2025-10-02-preview"]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n rest").decode()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run(executor: AzureContainerCodeExecutor, *codes: str) -> list[SessionCodeResult]:
    """Return the result of each block; the executor is stopped at the end."""

    async def main() -> list[SessionCodeResult]:
        async with executor:
            blocks = [CodeBlock(code, "python") for code in codes]
            return [await executor.execute_code_blocks([block]) for block in blocks]

    return asyncio.run(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_keeps_variables_and_reports_values_files_and_failures(
    pool: Pool, version: str
) -> None:
    executor = AzureContainerCodeExecutor(pool.url, "token", api_version=version)
    value, text, nothing, made, failed, exited, printed = run(
        executor,
        "x = 41\nprint('printed')\nx + 1",
        "'two words'",
        "None",
        "open('made.txt', 'w').write('12345')\nimport os; os.getcwd()",
        "print('before')\n1 / 0",
        "import sys; print('so far'); sys.exit(3)",
        "print(x, 'x' * 10_000)",
    )
    assert value.output == "printed\n42\n"
    assert text.output == "two words\n"
    assert (nothing.exit_code, nothing.output) == (0, "")
    assert (made.files, made.output) == (["made.txt"], "/mnt/data\n")
    assert (failed.exit_code, failed.outcome, failed.stdout) == (1, "error", "before\n")
    assert "ZeroDivisionError: division by zero" in failed.stderr
    assert "\x1b" not in failed.output
    assert (exited.exit_code, exited.output) == (3, "so far\n")
    assert printed.output == f"41 {'x' * 10_000}\n"
    assert {seen.query["api-version"] for seen in pool.seen} <= {version, "2025-02-02-preview"}


@pytest.mark.parametrize(
    ("path", "expected"), [("none", "code/execute"), ("code/execute", "executions")]
)
def test_the_dialect_is_chosen_by_what_the_endpoint_answers(
    pool: Pool, path: str, expected: str
) -> None:
    pool.faults.append(Fault(path, 404, times=1000))
    (result,) = run(AzureContainerCodeExecutor(pool.url, "token"), "print(6 * 7)")
    assert result.output == "42\n"
    assert pool.paths(expected)
    assert len(pool.paths("code/execute")) == (2 if path == "none" else 1)


def test_a_picture_is_saved_and_shown(pool: Pool, tmp_path: Path) -> None:
    code = f"from IPython.display import Image\nimport base64\nImage(base64.b64decode({PNG!r}))"
    (result,) = run(AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path), code)
    assert [path.read_bytes() for path in result.output_files] == [base64.b64decode(PNG)]
    assert result.output_files[0].parent == tmp_path
    assert result.displays == [{"image/png": PNG}]


def test_the_last_value_can_be_left_out(pool: Pool) -> None:
    executor = AzureContainerCodeExecutor(pool.url, "token", suppress_result_output=True)
    (result,) = run(executor, "print('printed')\n42")
    assert (result.output, result.displays) == ("printed\n", [])


def test_functions_are_a_module_in_the_session_and_need_no_import(pool: Pool) -> None:
    executor = AzureContainerCodeExecutor(
        pool.url, "token", functions=[add], functions_module="tools"
    )
    (imported, called) = run(executor, "import tools\ntools.add(1, 2)", "add(20, 22)")
    assert (imported.output, called.output) == ("3\n", "42\n")
    assert "from tools import foo" in executor.format_functions_for_prompt()


def test_functions_with_packages_that_the_session_lacks_are_refused(pool: Pool) -> None:
    @with_requirements(python_packages=["IPython>=1", "no-such-package==2"])
    def lacking() -> int:
        """Return 1."""
        return 1

    with pytest.raises(FunctionError, match="unavailable in environment: no-such-package==2"):
        run(AzureContainerCodeExecutor(pool.url, "token", functions=[lacking]), "1")


async def test_shell_blocks_keep_their_output_and_exit_code(pool: Pool) -> None:
    async with AzureContainerCodeExecutor(pool.url, "token", timeout=1) as executor:
        result = await executor.execute_code_blocks([CodeBlock("pwd; echo bad >&2; exit 4", "sh")])
        assert (result.exit_code, result.stdout, result.stderr) == (4, "/mnt/data\n", "bad\n")
        result = await executor.execute_code_blocks([CodeBlock("echo so far; sleep 60", "bash")])
        assert (result.exit_code, result.stdout) == (124, "so far\n")


async def test_a_cancelled_block_ends_in_the_session_too(
    executor: AzureContainerCodeExecutor, pool: Pool
) -> None:
    async with executor:
        await executor.execute_code_blocks([CodeBlock("x = 1", "python")])
        token = CancellationToken()
        code = "import time\nfor n in range(10_000): open('beat', 'a').write('x'); time.sleep(.02)"
        running = asyncio.create_task(
            executor.execute_code_blocks([CodeBlock(code, "python")], token)
        )
        while len(pool.paths("code/execute")) < 3:
            await asyncio.sleep(0.01)
        token.cancel()
        result = await running
        assert (result.exit_code, result.outcome, result.notice) == (125, "cancelled", "")
        result = await executor.execute_code_blocks([CodeBlock("print(x)", "python")])
        assert result.output == "1\n"


async def test_stop_ends_a_running_block_with_an_error(pool: Pool) -> None:
    executor = AzureContainerCodeExecutor(pool.url, "token")
    await executor.start()
    running = asyncio.create_task(
        executor.execute_code_blocks([CodeBlock("import time; time.sleep(60)", "python")])
    )
    while len(pool.paths("code/execute")) < 2:
        await asyncio.sleep(0.01)
    await executor.stop()
    with pytest.raises(ExecutorStopped):
        await running
    assert pool.seen[-1].method == "DELETE"


def test_a_session_of_a_given_identifier_outlives_the_executor(pool: Pool) -> None:
    first = AzureContainerCodeExecutor(pool.url, "token", session_id="kept-session")
    run(first, "kept = 5")
    second = AzureContainerCodeExecutor(pool.url, "token", session_id="kept-session")
    (result,) = run(second, "print(kept)")
    assert result.output == "5\n"
    assert [seen for seen in pool.seen if seen.method == "DELETE"] == []
    assert {seen.query["identifier"] for seen in pool.seen} == {"kept-session"}


async def test_restart_begins_a_new_session(
    executor: AzureContainerCodeExecutor, pool: Pool
) -> None:
    async with executor:
        before = executor.session_id
        await executor.execute_code_blocks([CodeBlock("x = 1", "python")])
        await executor.restart()
        assert executor.session_id != before
        result = await executor.execute_code_blocks(
            [CodeBlock("print('x' in globals())", "python")]
        )
        assert result.output == "False\n"
    deleted = [seen.query["identifier"] for seen in pool.seen if seen.method == "DELETE"]
    assert deleted[0] == before


def test_the_synchronous_executor_has_every_method(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("data")
    with sync.AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path) as executor:
        executor.upload_files(["a.txt"])
        block = CodeBlock("open('b.txt', 'w').write(open('a.txt').read() * 2)", "python")
        assert executor.execute_code_blocks([block]).files == ["b.txt"]
        assert executor.get_file_list() == ["a.txt", "b.txt"]
        assert executor.download_files(["b.txt"]) == [str(tmp_path / "b.txt")]
        assert "ipython" in {name.lower() for name in executor.get_available_packages()}
    assert (tmp_path / "b.txt").read_text() == "datadata"


def test_its_name_in_autogen_is_the_same_class() -> None:
    assert ACADynamicSessionsCodeExecutor is AzureContainerCodeExecutor
    assert sync.ACADynamicSessionsCodeExecutor is sync.AzureContainerCodeExecutor


def test_an_executor_without_a_credential_can_be_saved() -> None:
    executor = AzureContainerCodeExecutor(
        "https://pool.example/p/", None, 30, functions=[add], session_id="named"
    )
    loaded = CodeExecutor.load_component(executor.dump_component().to_json())
    assert isinstance(loaded, AzureContainerCodeExecutor)
    assert (loaded.timeout, loaded.session_id) == (30, "named")
    assert "def add" in loaded.format_functions_for_prompt()
    with_credential = AzureContainerCodeExecutor("https://pool.example/p", "secret-token")
    with pytest.raises(ValueError, match="credential cannot be saved") as caught:
        with_credential.dump_component()
    assert "secret-token" not in f"{caught.value} {with_credential!r}"
