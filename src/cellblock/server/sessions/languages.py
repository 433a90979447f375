"""Which languages run in sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ...blocks import CodeBlock
from ...cancellation import CancellationToken
from ...errors import CellblockError
from ...languages import LANGUAGES, find_language
from ...results import CodeResult
from ..owners import ANONYMOUS
from ..refusals import InvalidRequest
from .executors import SessionFactory

RUNNABLE = tuple(each.name for each in LANGUAGES if each.policy == "execute")
_PROGRAMS = {each.name: each.argv[0] for each in LANGUAGES if each.argv and each.name in RUNNABLE}
_PROBE = "".join(
    f"command -v {program} > /dev/null && echo {name}\n" for name, program in _PROGRAMS.items()
)
_PROBE_SECONDS = 20.0
_log = logging.getLogger(__name__)


class InstalledLanguages:
    """The languages whose programs are installed where the blocks of a server run."""

    def __init__(self, factory: SessionFactory) -> None:
        self._factory, self._found, self._lock = factory, tuple[str, ...](), asyncio.Lock()

    async def find(self) -> tuple[str, ...]:
        """Return their names. The first call looks for the programs; all, if it cannot."""
        async with self._lock:
            if not self._found:
                self._found = await self._look()
        return self._found

    async def _look(self) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):  # a cluster may be full
                result = await self._probe()
        except (CellblockError, TimeoutError) as error:
            _log.warning("which languages are installed could not be found out: %r", error)
            return RUNNABLE
        installed = {"python", *result.stdout.split()}  # executors bring their own Python
        return tuple(name for name in RUNNABLE if name in installed)

    async def _probe(self) -> CodeResult:
        executor = await self._factory.make_program(ANONYMOUS)
        try:
            await executor.start("")
            block = CodeBlock(_PROBE, "sh")
            return await executor.run(block, CancellationToken(), executor.options)
        finally:
            await self._factory.release(executor, is_idle=True)


def check_language(tag: str) -> None:
    """Raise `InvalidRequest` unless code in the language runs.

    Executors save the blocks of other languages or ignore them, which would look like success.
    """
    language = find_language(tag)
    if language is None or language.name not in RUNNABLE:
        raise refuse_language(tag, RUNNABLE)


def refuse_language(tag: str, allowed: Iterable[str]) -> InvalidRequest:
    """Return the error for a language that does not run."""
    return InvalidRequest(
        f"The language {tag[:64]!r} does not run here. Use one of: {', '.join(allowed)}."
    )
