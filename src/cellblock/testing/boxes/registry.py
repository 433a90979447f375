"""The list of checks of boxes, which fills when their modules are imported."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...box.base import Box

# Names on the command line of `python -m cellblock.testing.conformance`.
BOXES = {"box": "cellblock:Sandbox", "docker-box": "cellblock:DockerSandbox"}


@dataclass(frozen=True)
class BoxTarget:
    """The class of boxes under test, as ``module:attribute``, and arguments for every box."""

    factory: str
    options: Mapping[str, object] = field(default_factory=dict[str, object])

    def _load_class(self) -> Any:
        module, _, attribute = self.factory.partition(":")
        return getattr(importlib.import_module(module), attribute)

    @property
    def is_box(self) -> bool:
        """True if the class is one of boxes."""
        kind = self._load_class()
        return isinstance(kind, type) and issubclass(kind, Box)

    def create(self, **options: object) -> Box:
        """Create a box that is not started."""
        return self._load_class()(**{"timeout": 60, **self.options, **options})

    @contextlib.asynccontextmanager
    async def box(self, **options: object) -> AsyncGenerator[Box]:
        """Yield a started box, and close it on exit."""
        async with self.create(**options) as box:
            yield box


BoxCheck = Callable[[BoxTarget], Coroutine[Any, Any, None]]
BOX_CHECKS: dict[str, BoxCheck] = {}


def check_target(function: BoxCheck) -> BoxCheck:
    """Add a check that makes its own boxes."""
    BOX_CHECKS[getattr(function, "__name__", repr(function))] = function
    return function


def check_box(function: Callable[[Box], Awaitable[None]]) -> BoxCheck:
    """Add a check that needs one started box."""

    @functools.wraps(function)
    async def on_box(target: BoxTarget) -> None:
        async with target.box() as box:
            await function(box)

    return check_target(on_box)


class raises:
    """A context that raises `AssertionError` unless its body raises one of `kinds`.

    error   what was raised. Its message must have `text`
    """

    error: BaseException

    def __init__(self, *kinds: type[BaseException], text: str = "") -> None:
        self._kinds, self._text = kinds, text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            raise AssertionError(f"nothing was raised, but expected {self._kinds}")
        if not isinstance(error, self._kinds):
            return False
        assert self._text in str(error), f"{self._text!r} is not in {error!r}"
        self.error = error
        return True
