"""A socket that does not answer as a container engine does is reported as an unusable engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path

import pytest

from cellblock import ContainerEngineUnavailable, DockerCommandLineCodeExecutor

NO_CONTENT_TYPE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
JSON = "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}"
NONSENSE = {
    "no content type": NO_CONTENT_TYPE,
    "half an answer": JSON.format("200 OK", 100, '{"ApiV').encode(),
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "a web page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>",
    "broken JSON": JSON.format("200 OK", 1, "{").encode(),
    "a list": JSON.format("200 OK", 2, "[]").encode(),
    "an empty object": JSON.format("200 OK", 2, "{}").encode(),
    "an error without a message": JSON.format("500 Oh", 2, "{}").encode(),
    "an error that is a list": JSON.format("500 Oh", 2, "[]").encode(),
}


def json_answer(value: object) -> bytes:
    text = json.dumps(value)
    return JSON.format("200 OK", len(text), text).encode()


@contextlib.asynccontextmanager
async def engine(path: Path, answers: Mapping[str, bytes], otherwise: bytes) -> AsyncGenerator[str]:
    """Serve `answers` by the end of the requested path, then `otherwise`, on a Unix socket."""

    connections = set[asyncio.Task[None] | None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        # Python 3.11 logs an error for a handler that the end of the loop cancels.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            name = head.split()[1].decode().partition("?")[0].rpartition("/")[2]
            writer.write(answers.get(name, otherwise))
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    async with await asyncio.start_unix_server(serve, path):
        yield f"unix://{path}"
        await asyncio.gather(*filter(None, connections))


async def check_unavailable(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: Iterable[str],
    answers: Mapping[str, bytes],
    message: str,
) -> None:
    for name in names:
        async with engine(folder / "engine.sock", answers, NONSENSE[name]) as host:
            monkeypatch.setenv("DOCKER_HOST", host)
            with pytest.raises(ContainerEngineUnavailable, match=message):
                await DockerCommandLineCodeExecutor(work_dir=folder / "work").start()


async def test_socket_that_is_no_engine_is_an_unavailable_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"engine\.sock.*DOCKER_HOST"
    await check_unavailable(tmp_path, monkeypatch, NONSENSE, {}, message)


async def test_engine_that_breaks_later_is_an_unavailable_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    valid = {"info": json_answer({}), "version": json_answer({"ApiVersion": "1.41"})}
    names = ("no content type", "half an answer", "a web page", "broken JSON")
    await check_unavailable(tmp_path, monkeypatch, names, valid, "container engine")
