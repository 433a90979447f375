"""SharedBoxTarget: checks of boxes that need no box of their own share one, which stays open."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from cellblock.box.base import Box
from cellblock.testing.boxes.registry import BoxTarget


@dataclass(frozen=True)
class SharedBoxTarget(BoxTarget):
    """Yield the shared box, which is empty, to checks that pass no options.

    A box on which a check failed is not used again.
    """

    _idle: list[Box] = field(default_factory=list[Box])

    @contextlib.asynccontextmanager
    async def box(self, **options: object) -> AsyncGenerator[Box]:
        """See `BoxTarget`."""
        if options:
            async with super().box(**options) as own:
                try:
                    yield own
                finally:
                    await own.close()  # also one that is kept
            return
        box = self._idle.pop() if self._idle else self.create()
        try:
            await box.start()
            yield box
            if not box.closed:
                await _empty(box)
        except BaseException:
            await box.close()
            raise
        if not box.closed:
            self._idle.append(box)

    async def close(self) -> None:
        """Close the shared box."""
        while self._idle:
            await self._idle.pop().close()


async def _empty(box: Box) -> None:
    await box.checkpoint(end_commands=True)
    for checkpoint in box.checkpoints:
        await box.drop(checkpoint)
    # Mounts below /tmp, as those of a virtual environment that is there, are left alone.
    await box.exec(f"rm -rf {box.inner_work_dir}/*; find /tmp -xdev -mindepth 1 -delete")
