"""Files go to a session and come back whole, whatever their names and sizes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from pathlib import Path

import pytest

from cellblock import (
    AzureContainerCodeExecutor,
    CancellationToken,
    CodeBlock,
    ServiceError,
    WorkspaceError,
    WorkspaceFileNotFound,
)
from tests.executors.remote.pool import Fault, Pool
from tests.executors.remote.test_blocks import VERSIONS

NAMES = ["plain.txt", "two words.bin", "größe €.txt", "a+b&c#d;e=f@g$h%,(i)^.csv", "100%.txt"]
MIB = 1024 * 1024


@pytest.mark.parametrize("version", VERSIONS)
def test_names_that_need_quoting_come_back(pool: Pool, tmp_path: Path, version: str) -> None:
    async def main() -> None:
        executor = AzureContainerCodeExecutor(
            pool.url, "token", work_dir=tmp_path, api_version=version
        )
        async with executor:
            for name in NAMES:
                (tmp_path / name).write_text(f"content of {name}")
            await executor.upload_files(NAMES)
            assert sorted(await executor.get_file_list()) == sorted(NAMES)
            result = await executor.execute_code_blocks(
                [CodeBlock("import os; print(sorted(os.listdir()))", "python")]
            )
            assert result.output == f"{sorted(NAMES)}\n"
            assert result.files == [], "an uploaded file was reported as made by the block"
            for name in NAMES:
                (tmp_path / name).unlink()
            assert await executor.download_files(NAMES) == [str(tmp_path / name) for name in NAMES]
            for name in NAMES:
                assert (tmp_path / name).read_text() == f"content of {name}"

    asyncio.run(main())


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def test_large_files_are_not_held_in_memory(pool: Pool, tmp_path: Path) -> None:
    size = 100 * MIB

    async def main() -> None:
        async with AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path) as executor:
            with open(tmp_path / "large", "wb") as file:
                for number in range(100):
                    file.write(bytes([number]) * MIB)
            digest = _digest(tmp_path / "large")
            tracemalloc.start()
            await executor.upload_files(["large"])
            (tmp_path / "large").unlink()
            await executor.download_files(["large"])
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 32 * MIB
            assert _digest(tmp_path / "large") == digest
            assert (tmp_path / "large").stat().st_size == size

    asyncio.run(main())


def test_missing_files_are_named(pool: Pool, tmp_path: Path) -> None:
    async def main() -> None:
        async with AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path) as executor:
            with pytest.raises(WorkspaceFileNotFound, match="nowhere.txt does not exist"):
                await executor.upload_files(["nowhere.txt"])
            with pytest.raises(FileNotFoundError, match="nothing.txt does not exist"):
                await executor.download_files(["nothing.txt"])
        assert list(tmp_path.iterdir()) == []

    asyncio.run(main())


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "a/../../b", "..", "."])
def test_no_file_is_written_outside_the_work_folder(pool: Pool, tmp_path: Path, name: str) -> None:
    async def main() -> None:
        executor = AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path / "work")
        async with executor:
            with pytest.raises(WorkspaceError, match="not in the folder of the session"):
                await executor.download_files([name])

    asyncio.run(main())
    assert os.listdir(tmp_path) == ["work"]


def test_a_download_that_breaks_leaves_no_file(pool: Pool, tmp_path: Path) -> None:
    async def main() -> None:
        async with AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path) as executor:
            code = "n = open('a.txt', 'w').write('x')"
            await executor.execute_code_blocks([CodeBlock(code, "python")])
            (tmp_path / "a.txt").write_text("the older one")
            headers = {"Content-Length": "1000"}
            pool.faults.append(Fault("files/content/a.txt", 200, body=b"short", headers=headers))
            with pytest.raises(ServiceError, match="downloading a.txt"):
                await executor.download_files(["a.txt"])
            assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
            assert (tmp_path / "a.txt").read_text() == "the older one"

    asyncio.run(main())


def test_a_cancelled_token_cancels_an_upload(pool: Pool, tmp_path: Path) -> None:
    async def main() -> None:
        async with AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path) as executor:
            (tmp_path / "a.txt").write_text("x")
            token = CancellationToken()
            token.cancel()
            with pytest.raises(asyncio.CancelledError, match="Uploading files cancelled"):
                await executor.upload_files(["a.txt"], token)
            assert await executor.get_file_list() == []

    asyncio.run(main())


def test_a_file_that_the_service_refuses_is_an_error_with_advice(
    pool: Pool, tmp_path: Path
) -> None:
    async def main() -> None:
        async with AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path) as executor:
            with open(tmp_path / "huge", "wb") as file:
                file.truncate(129 * MIB)
            with pytest.raises(ServiceError, match="Send a smaller file") as caught:
                await executor.upload_files(["huge"])
            assert caught.value.status == 413

    asyncio.run(main())
