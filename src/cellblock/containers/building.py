"""New images, which an engine builds of what we send."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from ..errors import PlaceError
from .client import Client, translated

_PATIENCE = 600.0  # seconds that a build may take
_WORDS = 30  # lines of it that an error quotes


async def build_image(client: Client, reference: str, context: Path, *, labels: Mapping[str, str] | None = None) -> None:
    """Build the image `reference` of a tar archive with a Dockerfile; its steps have no network.

    Raises `PlaceError` with the last that the build said.
    """
    words = deque[str](maxlen=_WORDS)
    settings = {"t": reference, "labels": json.dumps(dict(labels or {})), "networkmode": "none", "rm": "1", "forcerm": "1"}
    try:
        with translated("the build failed"):
            async with asyncio.timeout(_PATIENCE):
                async for item in _progress(client, settings, context):
                    words.extend(str(item.get("stream", item.get("error", ""))).splitlines())
                    if "error" in item:
                        raise PlaceError(str(item["error"]))
    except (PlaceError, TimeoutError) as error:
        said = "\n".join(words)
        raise PlaceError(f"The image {reference} cannot be built: {error or 'it took too long'}\nIt said:\n{said}") from error


async def _progress(client: Client, settings: Mapping[str, str], context: Path) -> AsyncGenerator[dict[str, Any]]:
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
