"""Images of an engine: what it says about one; fetch those that are not there, and tell how far that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BackendError, ImageUnavailable
from ..events import PullProgress
from .client import Client, status_of, translated

_DONE = ("Pull complete", "Already exists")
_NOT_FOUND = 404


OnPull = Callable[[PullProgress], None]


class Layers:
    """Make the progress of an image out of what the engine says of its layers. Pure."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._layers: dict[str, tuple[int, int]] = {}  # bytes done, and of how many
        self._done = set[str]()

    def add(self, news: dict[str, Any]) -> PullProgress:
        """Take in one message, and give how far it is now."""
        layer, status = str(news.get("id", "")), str(news.get("status", ""))
        if layer and not status.startswith("Pulling from"):
            done, known = self._layers.get(layer, (0, 0))
            detail: dict[str, Any] = news.get("progressDetail") or {}
            if status == "Downloading":
                done, known = int(detail.get("current", done)), int(detail.get("total", known))
            elif status in ("Download complete", *_DONE):
                done = known
            self._layers[layer] = done, known
            if status in _DONE:
                self._done.add(layer)
        sizes = list(self._layers.values())
        return PullProgress(
            self._image,
            len(self._done),
            len(sizes),
            sum(size[0] for size in sizes),
            sum(size[1] for size in sizes),
        )


async def pull(client: Client, image: str, on_pull: OnPull | None) -> None:
    """Have the engine fetch `image`. Raises `ImageUnavailable` with the engine's words."""
    layers = Layers(image)
    try:
        with translated(f"The engine has no image {image}, and could not fetch it"):
            async for news in client.docker.images.pull(image, stream=True):
                progress = layers.add(news)
                if on_pull is not None:
                    on_pull(progress)
    except BackendError as error:
        raise ImageUnavailable(
            f"{error}. Is the name right? `docker pull {image}` shows more."
        ) from error


async def image_facts(client: Client, reference: str) -> dict[str, Any] | None:
    """Give what the engine says about an image; `None` when it has none of that name. Raises `BackendError`."""
    try:
        with translated(f"Image {reference}"):
            return await client.docker.images.inspect(reference)
    except BackendError as error:
        if status_of(error.__cause__) == _NOT_FOUND:
            return None
        raise


async def fetched_facts(client: Client, reference: str, on_pull: OnPull | None) -> dict[str, Any]:
    """Give what the engine says about an image, which is fetched when it is not there. Raises `ImageUnavailable`."""
    facts = await image_facts(client, reference)
    if facts is None:
        await pull(client, reference, on_pull)
        facts = await image_facts(client, reference)
    if facts is None:
        raise ImageUnavailable(f"The engine fetched {reference}, and has no such image.")
    return facts
