"""Decide whether code runs in Docker: the environment variable, the engine, and AutoGen's rules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...aio.background_loop import background_loop
from ...containers.client import connect
from ...errors import ContainerEngineUnavailable

UseDocker = bool | str | Sequence[str] | None
"""True: Docker with a default image. A text or a list: Docker with the first image that there is.
False: no Docker. None: Docker if an engine responds."""

_CONTAINER_MARK = "/.dockerenv"
_VARIABLE = "AUTOGEN_USE_DOCKER"
_VALUES: dict[str, bool | None] = {
    **dict.fromkeys(("1", "true", "yes", "t"), True),
    **dict.fromkeys(("0", "false", "no", "f"), False),
    "none": None,
}
_NOT_RUNNING = (
    "Code execution is set to be run in docker (default behaviour) but docker is not running.\n"
    "The options available are:\n"
    "- Make sure docker is running (advised approach for code execution)\n"
    '- Set "use_docker": False in code_execution_config\n'
    '- Set AUTOGEN_USE_DOCKER to "0/False/no" in your environment variables'
)


def decide_use_docker(use_docker: Any = None) -> Any:
    """Return `use_docker`; if it is None, what the variable AUTOGEN_USE_DOCKER says.

    Without the variable the answer is True. Raise `ValueError` if it has another value than
    1/true/yes/t, 0/false/no/f or none.
    """
    if use_docker is not None:
        return use_docker
    value = os.environ.get(_VARIABLE, "true")
    if value.lower() not in _VALUES:
        raise ValueError(
            f"Invalid value for {_VARIABLE}: {value}. "
            f'Please set {_VARIABLE} to "1/True/yes", "0/False/no", or "None".'
        )
    return _VALUES[value.lower()]


def check_can_use_docker_or_throw(use_docker: Any) -> None:
    """Raise `RuntimeError` if code should run in Docker and no engine responds.

    Inside a container there need not be an engine: the code then runs in the sandbox.
    """
    if use_docker and not in_docker_container() and not is_docker_running():
        raise RuntimeError(_NOT_RUNNING)


def in_docker_container() -> bool:
    """Return True if this process runs in a container of Docker."""
    return os.path.exists(_CONTAINER_MARK)


def is_docker_running() -> bool:
    """Return True if a container engine responds."""
    return background_loop().run(engine_responds())


async def engine_responds() -> bool:
    """Return True if a container engine responds. Call it on the background loop."""
    try:
        client = await connect()
    except ContainerEngineUnavailable:
        return False
    await client.close()
    return True
