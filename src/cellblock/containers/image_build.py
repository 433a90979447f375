"""New images, which an engine builds of what we send. Built once, and kept by the engine."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ..environments.uv import Report, Workshop, in_thread
from ..errors import BackendError
from .client import Client, translated
from .images import image_facts

_PATIENCE = 600.0  # seconds that a build may take
_WORDS = 30  # lines of it that an error quotes


async def unless_there(
    client: Client,
    reference: str,
    workshop: Workshop,
    report: Report,
    make: Callable[[int], Awaitable[None]],
) -> None:
    """Have `make` build the image `reference` where the engine has none, in the workshop's folder, given its lock.

    Who asks for what another builds already waits for that.
    """
    if await image_facts(client, reference) is not None:
        return
    async with workshop.claim(report) as lock:
        if await image_facts(client, reference) is not None:
            return
        try:
            await in_thread(workshop.prepare)
            await make(lock)
        finally:
            await in_thread(workshop.clear)


def pack(archive: Path, *paths: Path) -> None:
    """Pack files and folders under their own names; everything is root's, and to be read by everybody."""
    with tarfile.open(archive, mode="w") as opened:
        for path in paths:
            opened.add(path, path.name, filter=_for_everybody)


def _for_everybody(item: tarfile.TarInfo) -> tarfile.TarInfo:
    item.uid = item.gid = 0
    item.uname = item.gname = "root"
    item.mode = 0o755 if item.isdir() or item.mode & 0o100 else 0o644
    return item


async def build_image(
    client: Client, reference: str, context: Path, *, labels: Mapping[str, str] | None = None
) -> None:
    """Build the image `reference` of a tar archive with a Dockerfile; its steps have no network.

    Raises `BackendError` with the last that the build said.
    """
    words = deque[str](maxlen=_WORDS)
    settings = {
        "t": reference,
        "labels": json.dumps(dict(labels or {})),
        "networkmode": "none",
        "rm": "1",
        "forcerm": "1",
    }
    try:
        with translated("the build failed"):
            async with asyncio.timeout(_PATIENCE):
                async for item in _progress(client, settings, context):
                    words.extend(str(item.get("stream", item.get("error", ""))).splitlines())
                    if "error" in item:
                        raise BackendError(str(item["error"]))
    except (BackendError, TimeoutError) as error:
        said = "\n".join(words)
        raise BackendError(
            f"The image {reference} cannot be built: {error or 'it took too long'}\nIt said:\n{said}"
        ) from error


async def _progress(
    client: Client, settings: Mapping[str, str], context: Path
) -> AsyncGenerator[dict[str, Any]]:
    """Build, and give what the engine says meanwhile."""
    with await asyncio.to_thread(context.open, "rb") as data:
        # Not `images.build`, which can neither keep the build from the network nor, of old, tell that it failed.
        request = client.docker._query(
            "build",
            "POST",
            params=settings,
            headers={"Content-Type": "application/x-tar"},
            data=data,
            timeout=None,
        )
        rest = b""
        async with request as response:
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in filter(None, map(bytes.strip, lines)):
                    yield json.loads(line)
