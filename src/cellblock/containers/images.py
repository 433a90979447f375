"""Inspect an engine's images, pull missing ones, and report the progress of a pull."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from ..errors import BackendError, ImageUnavailable
from ..events import PullProgress
from .client import EngineClient, http_status, translate_errors

_LAYER_DONE = ("Pull complete", "Already exists")
_NOT_FOUND = 404


OnPull = Callable[[PullProgress], None]


class PullTracker:
    """Compute the progress of a pull from the engine's messages about layers. No I/O."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._layers: dict[str, tuple[int, int]] = {}  # bytes pulled, bytes in total
        self._done = set[str]()

    def update(self, message: dict[str, Any]) -> PullProgress:
        """Process one message, and return the progress so far."""
        layer, status = str(message.get("id", "")), str(message.get("status", ""))
        if layer and not status.startswith("Pulling from"):
            done, total = self._layers.get(layer, (0, 0))
            detail: dict[str, Any] = message.get("progressDetail") or {}
            if status == "Downloading":
                done, total = int(detail.get("current", done)), int(detail.get("total", total))
            elif status in ("Download complete", *_LAYER_DONE):
                done = total
            self._layers[layer] = done, total
            if status in _LAYER_DONE:
                self._done.add(layer)
        sizes = list(self._layers.values())
        return PullProgress(
            self._image,
            len(self._done),
            len(sizes),
            sum(size[0] for size in sizes),
            sum(size[1] for size in sizes),
        )


async def pull_image(client: EngineClient, image: str, on_pull: OnPull | None) -> None:
    """Pull `image`. Raise `ImageUnavailable`, which quotes the engine, if that fails."""
    async for progress in _pull(client, image):
        if on_pull is not None:
            on_pull(progress)


async def _pull(client: EngineClient, image: str) -> AsyncGenerator[PullProgress]:
    tracker = PullTracker(image)
    try:
        with translate_errors(f"The container engine has no image {image} and cannot pull it"):
            async for message in client.docker.images.pull(image, stream=True):
                yield tracker.update(message)
    except BackendError as error:
        raise ImageUnavailable(
            f"{error}. Check the name; `docker pull {image}` shows more."
        ) from error


async def inspect_image(client: EngineClient, reference: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or None if it has no image of that name."""
    try:
        with translate_errors(f"Image {reference}"):
            return await client.docker.images.inspect(reference)
    except BackendError as error:
        if http_status(error.__cause__) == _NOT_FOUND:
            return None
        raise


async def inspect_or_pull(
    client: EngineClient, reference: str, on_pull: OnPull | None
) -> dict[str, Any]:
    """Return the engine's description of an image; pull the image first if it is missing.

    Raise `ImageUnavailable` if it cannot be pulled.
    """
    info = await inspect_image(client, reference)
    if info is None:
        await pull_image(client, reference, on_pull)
        info = await inspect_image(client, reference)
    if info is None:
        raise ImageUnavailable(
            f"The container engine pulled {reference} but does not list the image. "
            f"Run `docker image inspect {reference}`."
        )
    return info
