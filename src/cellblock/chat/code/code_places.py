"""CodePlaces: where code runs if a `code_execution_config` names no executor.

The dict form of AutoGen 0.2 does not name an executor, but Docker and its image, a folder,
a time limit. Here it means an executor of Cellblock, which is kept, so that later code finds the
files and packages of earlier code.
"""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from dataclasses import dataclass

from ...aio.background_loop import background_loop
from ...errors import ImageUnavailable, SandboxUnavailable
from ...events import PullProgress
from ...executors.base import CodeExecutor
from ...executors.command_line.docker import DockerCommandLineCodeExecutor
from ...executors.command_line.local import LocalCommandLineCodeExecutor
from ...executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from ...policy import Policy
from ...source_text import ignored_warnings
from ..io import IOStream
from .code_task import CodeSettings, CodeTask, FinishedCode
from .docker_use import engine_responds

# What programs in the sandbox need to reach the package index that programs outside reach.
_NETWORK_VARIABLES = (
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST",
)  # fmt: skip
_NO_SANDBOX_ADVICE = (
    'Or set "use_docker": True in code_execution_config to run the code in Docker, or '
    '"sandbox": False to run it on this machine without protection, with your rights.'
)


@dataclass(frozen=True)
class _CodePlace:
    """An executor that is started. `python` is the program that runs Python files there."""

    executor: CodeExecutor
    python: str = "python"
    image: str | None = None


class CodePlaces:
    """The executors of one agent, one for each `CodeSettings`. Use them on the background loop.

    They are stopped by `close`, or when the agent is no longer used.
    """

    def __init__(self) -> None:
        self._places: dict[CodeSettings, _CodePlace] = {}
        self._lock = asyncio.Lock()
        weakref.finalize(self, _stop_soon, self._places).atexit = False

    async def run(self, task: CodeTask, settings: CodeSettings) -> FinishedCode:
        """Run `task`. Raise the errors of `cellblock.CodeExecutor`."""
        async with self._lock:
            if (place := self._places.get(settings)) is None:
                place = self._places[settings] = await _open_place(settings)
        block = task.block(settings, place.python)
        result = await place.executor.execute_code_blocks([block])
        return FinishedCode.from_result(result, block, place.image)

    async def close(self) -> None:
        """Stop the executors."""
        await _stop_all(self._places)


async def _open_place(settings: CodeSettings) -> _CodePlace:
    """Start the executor that `settings` mean. Raise `BackendError`."""
    if settings.images and await engine_responds():
        return await _open_container(settings)
    if not settings.sandbox:
        return await _open_on_this_machine(settings)
    executor = SandboxCommandLineCodeExecutor(
        timeout=settings.timeout,
        work_dir=settings.work_dir,
        policy=Policy(network="host", environment=_network_variables()),
    )
    try:
        await executor.start()
    except SandboxUnavailable as error:
        reason = str(error).removesuffix(error.advice).rstrip()
        raise SandboxUnavailable(reason, _NO_SANDBOX_ADVICE) from error
    return _CodePlace(executor)


async def _open_container(settings: CodeSettings) -> _CodePlace:
    """Start a container of the first image that there is."""
    problem = ImageUnavailable("use_docker names no image. Name one, such as 'python:3-slim'.")
    for image in settings.images:
        with ignored_warnings():
            executor = DockerCommandLineCodeExecutor(
                image,
                timeout=settings.timeout,
                work_dir=settings.work_dir,
                delete_tmp_files=True,
                network="bridge",
                read_only=False,  # old scripts install packages
                on_pull=_PullNotice(image),
            )
        try:
            await executor.start()
        except ImageUnavailable as error:
            IOStream.get_default().print(f"Failed to pull image {image}")
            problem = error
        else:
            return _CodePlace(executor, image=image)
    raise problem


class _PullNotice:
    """Print that an image is pulled, once."""

    def __init__(self, image: str) -> None:
        self._image, self._stream = image, IOStream.get_default()
        self._is_printed = False

    def __call__(self, progress: PullProgress) -> None:
        if not self._is_printed:
            self._is_printed = True
            self._stream.print(f"Pulling image {self._image}...")


async def _open_on_this_machine(settings: CodeSettings) -> _CodePlace:
    with ignored_warnings():  # the caller has asked for it by name
        executor = LocalCommandLineCodeExecutor(
            timeout=settings.timeout, work_dir=settings.work_dir
        )
    await executor.start()
    return _CodePlace(executor, sys.executable)


def _network_variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _NETWORK_VARIABLES if name in os.environ}


async def _stop_all(places: dict[CodeSettings, _CodePlace]) -> None:
    while places:
        _, place = places.popitem()
        await place.executor.stop()


def _stop_soon(places: dict[CodeSettings, _CodePlace]) -> None:
    """Stop executors whose agent was garbage-collected, in any thread, without waiting."""
    if places:
        asyncio.run_coroutine_threadsafe(_stop_all(places), background_loop().loop)
