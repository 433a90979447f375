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

NAMES = [
    "plain.txt",
    "two words.bin",
    "größe €.txt",
    "a+b&c#d;e=f@g$h%,(i)^.csv",
    "100%.txt",
    "A%41.txt",
    "100%25.txt",
    "two%20words.bin",
    'a"b\\c.txt',
    "%22.txt",
    "sub/x.txt",
    "sub/A%41 in/ü.txt",
]
MIB = 1024 * 1024
_LIST_FILES = """
import os
from pathlib import Path
print(sorted(str(path.relative_to(".")) for path in Path().rglob("*") if path.is_file()))
"""
_MAKE_FILES = """
import os
os.makedirs('so/deep'); os.makedirs('.hidden'); os.makedirs('__pycache__')
for name in ('so/z.txt', 'so/deep/y.txt', '.hidden/x', '__pycache__/x'):
    n = open(name, 'w').write(name)
"""


@pytest.mark.parametrize("version", VERSIONS)
async def test_names_that_need_quoting_and_files_in_folders_come_back(
    pool: Pool, tmp_path: Path, version: str
) -> None:
    executor = AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path, api_version=version)
    async with executor:
        for name in NAMES:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"content of {name}")
        await executor.upload_files(NAMES)
        assert sorted(await executor.get_file_list()) == sorted(NAMES)
        result = await executor.execute_code_blocks([CodeBlock(_LIST_FILES, "python")])
        assert result.output == f"{sorted(NAMES)}\n"
        assert result.files == [], "an uploaded file was reported as made by the block"
        for name in NAMES:
            (tmp_path / name).unlink()
        assert await executor.download_files(NAMES) == [str(tmp_path / name) for name in NAMES]
        for name in NAMES:
            assert (tmp_path / name).read_text() == f"content of {name}"
        result = await executor.execute_code_blocks([CodeBlock(_MAKE_FILES, "python")])
        assert result.files == ["so/deep/y.txt", "so/z.txt"]
        assert await executor.download_files(["so/z.txt"]) == [str(tmp_path / "so/z.txt")]
        assert (tmp_path / "so/z.txt").read_text() == "so/z.txt"


async def test_a_file_from_elsewhere_has_its_last_part_as_its_name(
    pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.txt").write_text("x")
    work_dir = tmp_path / "work"
    async with AzureContainerCodeExecutor(pool.url, "token", work_dir=work_dir) as executor:
        await executor.upload_files([tmp_path / "elsewhere/x.txt"])
        (work_dir / "in").mkdir()
        (work_dir / "in/y.txt").write_text("y")
        await executor.upload_files([work_dir / "in/y.txt"])
        assert await executor.get_file_list() == ["in/y.txt", "x.txt"]


async def test_a_service_without_folders_does_not_get_the_file(
    executor: AzureContainerCodeExecutor, pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/x.txt").write_text("x")
    async with executor:
        await executor.start()
        pool.faults.append(Fault("/files", 404))
        with pytest.raises(ServiceError, match="uploading sub/x.txt"):
            await executor.upload_files(["sub/x.txt"])
        assert await executor.get_file_list() == []


async def test_a_name_that_cannot_be_sent_is_refused(
    executor: AzureContainerCodeExecutor, tmp_path: Path
) -> None:
    (tmp_path / "fine").touch()
    async with executor:
        for name in ("new\nline.txt", "bell\a", "not \udcff UTF-8"):
            (tmp_path / name).touch()
            with pytest.raises(WorkspaceError, match="Rename the file"):
                await executor.upload_files(["fine", name])
            assert await executor.get_file_list() == []
            with pytest.raises(WorkspaceError):
                await executor.download_files([name])


def test_the_endpoint_may_have_http() -> None:
    with pytest.raises(ValueError, match="such as https://.* or http://127.0.0.1:8000"):
        AzureContainerCodeExecutor("127.0.0.1:8000", "token")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


@pytest.mark.slow
async def test_large_files_are_not_held_in_memory(
    executor: AzureContainerCodeExecutor, tmp_path: Path
) -> None:
    size = 100 * MIB
    async with executor:
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


async def test_missing_files_are_named(
    executor: AzureContainerCodeExecutor, tmp_path: Path
) -> None:
    async with executor:
        with pytest.raises(WorkspaceFileNotFound, match="nowhere.txt does not exist"):
            await executor.upload_files(["nowhere.txt"])
        with pytest.raises(FileNotFoundError, match="nothing.txt does not exist"):
            await executor.download_files(["nothing.txt"])
    assert list(tmp_path.iterdir()) == []


async def test_no_file_is_written_outside_the_work_folder(pool: Pool, tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    async with AzureContainerCodeExecutor(pool.url, "token", work_dir=work_dir) as executor:
        for name in ("../escape", "/etc/passwd", "a/../../b", "..", "."):
            with pytest.raises(WorkspaceError, match="not in the folder of the session"):
                await executor.download_files([name])
    assert os.listdir(tmp_path) == ["work"]


async def test_a_download_that_breaks_leaves_no_file(
    executor: AzureContainerCodeExecutor, pool: Pool, tmp_path: Path
) -> None:
    async with executor:
        code = "n = open('a.txt', 'w').write('x')"
        await executor.execute_code_blocks([CodeBlock(code, "python")])
        (tmp_path / "a.txt").write_text("the older one")
        headers = {"Content-Length": "1000"}
        pool.faults.append(Fault("files/content/a.txt", 200, body=b"short", headers=headers))
        with pytest.raises(ServiceError, match="downloading a.txt"):
            await executor.download_files(["a.txt"])
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
        assert (tmp_path / "a.txt").read_text() == "the older one"


async def test_a_cancelled_token_cancels_an_upload(
    executor: AzureContainerCodeExecutor, tmp_path: Path
) -> None:
    async with executor:
        (tmp_path / "a.txt").write_text("x")
        token = CancellationToken()
        token.cancel()
        with pytest.raises(asyncio.CancelledError, match="Uploading files cancelled"):
            await executor.upload_files(["a.txt"], token)
        assert await executor.get_file_list() == []


async def test_a_file_that_the_service_refuses_is_an_error_with_advice(
    executor: AzureContainerCodeExecutor, tmp_path: Path
) -> None:
    async with executor:
        with open(tmp_path / "huge", "wb") as file:
            file.truncate(129 * MIB)
        with pytest.raises(ServiceError, match="Send a smaller file") as caught:
            await executor.upload_files(["huge"])
        assert caught.value.status == 413
