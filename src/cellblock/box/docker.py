"""DockerSandbox: a box in a container."""

from __future__ import annotations

import os
from typing import Any

from ..executors.command_line.docker import IMAGE
from ..executors.session.docker import DockerSessionCodeExecutor
from ..executors.session.settings import InputCallback
from .base import Box


class DockerSandbox(Box):
    """A box in a container of a Docker-compatible engine.

    The image needs Python and IPython. Starting raises `ContainerEngineUnavailable`,
    `ImageUnavailable` or another `BackendError`. For the parameters see `Box`,
    `DockerSessionCodeExecutor` and `DockerCommandLineCodeExecutor`. Copies of the box share its
    container, as those of a session do.
    """

    def __init__(
        self,
        image: str = IMAGE,
        container_name: str | None = None,
        *,
        timeout: float | None = 60,
        work_dir: str | os.PathLike[str] | None = None,
        input_callback: InputCallback | None = None,
        idle_seconds: float | None = None,
        **options: Any,
    ) -> None:
        session = DockerSessionCodeExecutor(
            image,
            container_name,
            keep_processes=True,
            input_callback=input_callback,
            timeout=timeout,
            work_dir=work_dir,
            **options,
        )
        super().__init__(session, idle_seconds)
        session.place.recovers = False

    @property
    def container(self) -> str | None:
        """The name of the container, or None if the box is not started."""
        assert isinstance(self.session, DockerSessionCodeExecutor)
        return self.session.container
