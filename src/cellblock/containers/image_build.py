"""Build images from a context that is sent to the engine, once for each reference."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ..aio.shielded import run_in_thread
from ..environments.uv import OnLine, UvInstaller
from ..errors import BackendError
from .client import EngineClient, translate_errors
from .images import inspect_image

_BUILD_SECONDS = 600.0
_QUOTED_LINES = 30  # of the build's output, in an error


async def build_if_missing(
    client: EngineClient,
    reference: str,
    installer: UvInstaller,
    on_line: OnLine,
    build: Callable[[int], Awaitable[None]],
) -> None:
    """Call `build` if the engine has no image `reference`. Wait if another process is building it.

    `build` gets the descriptor of the lock, and works in the partial folder of `installer`.
    """
    if await inspect_image(client, reference) is not None:
        return
    async with installer.lock(on_line) as lock:
        if await inspect_image(client, reference) is not None:
            return
        try:
            await run_in_thread(installer.make_partial_dir)
            await build(lock)
        finally:
            await run_in_thread(installer.remove_partial_dir)


def pack_context(archive: Path, *paths: Path) -> None:
    """Write `paths` to a tar archive under their own names, owned by root and readable by all."""
    with tarfile.open(archive, mode="w") as opened:
        for path in paths:
            opened.add(path, path.name, filter=_owned_by_root)


def _owned_by_root(item: tarfile.TarInfo) -> tarfile.TarInfo:
    item.uid = item.gid = 0
    item.uname = item.gname = "root"
    item.mode = 0o755 if item.isdir() or item.mode & 0o100 else 0o644
    return item


async def build_image(
    client: EngineClient, reference: str, context: Path, *, labels: Mapping[str, str] | None = None
) -> None:
    """Build the image `reference` from a tar archive with a Dockerfile, without network access.

    Raise `BackendError`, which quotes the end of the build's output, if the build fails.
    """
    output = deque[str](maxlen=_QUOTED_LINES)
    parameters = {
        "t": reference,
        "labels": json.dumps(dict(labels or {})),
        "networkmode": "none",
        "rm": "1",
        "forcerm": "1",
    }
    try:
        with translate_errors("the build failed"):
            async with asyncio.timeout(_BUILD_SECONDS):
                async for item in _build_messages(client, parameters, context):
                    output.extend(str(item.get("stream", item.get("error", ""))).splitlines())
                    if "error" in item:
                        raise BackendError(str(item["error"]))
    except (BackendError, TimeoutError) as error:
        reason = str(error) or f"it took more than {_BUILD_SECONDS:g} s"
        lines = "\n".join(output)
        raise BackendError(
            f"The image {reference} cannot be built: {reason}\n"
            f"The build's output ends with:\n{lines}"
        ) from error


async def _build_messages(
    client: EngineClient, parameters: Mapping[str, str], context: Path
) -> AsyncGenerator[dict[str, Any]]:
    """Build an image, and yield the engine's messages."""
    with await asyncio.to_thread(context.open, "rb") as data:
        # aiodocker's `images.build` cannot turn the network off, and older ones hide failures.
        request = client.docker._query(
            "build",
            "POST",
            params=parameters,
            headers={"Content-Type": "application/x-tar"},
            data=data,
            timeout=None,
        )
        incomplete = b""
        async with request as response:
            async for chunk in response.content.iter_any():
                *lines, incomplete = (incomplete + chunk).split(b"\n")
                for line in filter(None, map(bytes.strip, lines)):
                    yield json.loads(line)
