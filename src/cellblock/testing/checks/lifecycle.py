"""The life of an executor, from creation to stop, and of its work folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from ...blocks import CodeBlock
from ...errors import CellblockError, SessionError
from ..registry import check, check_fresh
from ..target import CheckSkipped, ConformanceTarget

_HI = CodeBlock("print('hi')", "python")


@check
async def executor_starts_on_first_use_and_can_stop_twice(target: ConformanceTarget) -> None:
    with tempfile.TemporaryDirectory(prefix="cellblock-check-") as folder:
        executor = target.create(work_dir=folder)
        await executor.stop()
        assert (await executor.execute_code_blocks([_HI])).output == "hi\n"
        await executor.start()
        await executor.stop()
        await executor.stop()
        assert (await executor.execute_code_blocks([_HI])).output == "hi\n"
        await executor.stop()


@check
async def restart_keeps_the_work_folder(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        await executor.execute_code_blocks([CodeBlock("open('kept', 'w').write('kept')", "python")])
        await executor.restart()
        await executor.restart()
        result = await executor.execute_code_blocks(
            [CodeBlock("print(open('kept').read())", "python")]
        )
        assert result.output == "kept\n"


@check
async def temporary_work_folder_is_removed_on_stop(target: ConformanceTarget) -> None:
    executor = target.create(work_dir=None)
    async with executor:
        await executor.execute_code_blocks([CodeBlock("open('file', 'w').write('x')", "python")])
        await executor.restart()
        result = await executor.execute_code_blocks(
            [CodeBlock("print(open('file').read())", "python")]
        )
        assert result.output == "x\n", "restart lost the files"
        folder = Path(getattr(executor, "work_dir"))  # noqa: B009 - not every executor has one
        assert folder.exists()
    assert not folder.exists(), "the temporary work folder is still there"
    try:
        result = await executor.execute_code_blocks([_HI])
    except SessionError:  # a session starts again only when asked to; fresh processes on use
        await executor.start()
        result = await executor.execute_code_blocks([_HI])
    assert result.output == "hi\n"
    await executor.stop()


@check
async def missing_work_folder_raises_cellblock_error(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        assert (await executor.execute_code_blocks([_HI])).output == "hi\n"
        shutil.rmtree(folder)
        try:
            await executor.execute_code_blocks([_HI])
        except CellblockError as error:
            assert str(folder) in str(error), str(error)
        else:
            raise AssertionError("a missing work folder raised no error")
        folder.mkdir()
        await executor.restart()
        assert (await executor.execute_code_blocks([_HI])).output == "hi\n"


@check_fresh
async def full_disk_raises_an_error_and_is_recoverable(target: ConformanceTarget) -> None:
    with _small_disk() as folder:
        async with target.create(work_dir=str(folder), timeout=30) as executor:
            fill = "print('filling', flush=True)\n"
            fill += "with open('big', 'wb') as file:\n    while True: file.write(b'x' * 65536)"
            result = await executor.execute_code_blocks([CodeBlock(fill, "python")])
            assert result.exit_code == 1, result
            assert result.output.startswith("filling\n")
            assert "No space left on device" in result.stderr, result.stderr
            with contextlib.suppress(OSError), open(folder / "rest", "wb", buffering=0) as rest:
                while True:
                    rest.write(b"x" * 512)
            try:
                await executor.execute_code_blocks(
                    [CodeBlock("print('x')  " + "#" * 100_000, "python")]
                )
            except CellblockError as error:
                assert "No space left" in str(error), str(error)
            else:
                raise AssertionError("a full disk raised no error")
            (folder / "big").unlink()
            (folder / "rest").unlink(missing_ok=True)
            assert (await executor.execute_code_blocks([_HI])).output == "hi\n"


@contextlib.contextmanager
def _small_disk() -> Generator[Path]:
    """Yield a folder on a filesystem of 512 KiB."""
    from ...runtime.linux import syscalls

    with tempfile.TemporaryDirectory(prefix="cellblock-disk-") as folder:
        try:
            syscalls.mount("tmpfs", folder, "tmpfs", 0, "size=512k,mode=777")
        except PermissionError as error:
            raise CheckSkipped("only root can mount a small filesystem") from error
        try:
            yield Path(folder)
        finally:
            syscalls.unmount(folder, syscalls.MNT_DETACH)
