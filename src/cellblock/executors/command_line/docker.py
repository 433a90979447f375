"""DockerCommandLineCodeExecutor: run blocks in a container of a Docker-compatible engine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ...containers.spec import ContainerOptions, validate_options, validate_resources
from ...functions.module import Function
from ...languages import Action
from ...limits import SANDBOX_LIMITS, Limits
from ..argument_checks import check_bool, check_folder, check_strings
from ..places.docker import DockerPlace
from ..places.docker_settings import DockerSettings
from ..places.settings import PlaceSettings
from .base import CommandLineExecutor

IMAGE = "python:3-slim"


class DockerCommandLineCodeExecutor(CommandLineExecutor):
    """Run blocks in a container. They see the work folder as /workspace, and the image.

    image              the image reference. The image needs `sh`, and Python 3.10 or later to run
                       anything except shell blocks
    container_name     name of the container. `None` generates a new name at each start
    bind_dir           path of the work folder on the engine's machine, if it differs from
                       `work_dir`, for example because this process runs in a container itself
    auto_remove        remove the container when it stops
    stop_container     stop the container in `stop`. If False, it keeps running, and `start` finds
                       it again by its name
    device_requests    `docker.types.DeviceRequest` objects, or dicts of the same shape
    extra_volumes      maps a source to {"bind": path in the container, "mode": "rw" or "ro"}
    extra_hosts        maps a host name to an address
    init_command       a shell command to run before the first block
    delete_tmp_files   remove the files of blocks that have no `# filename:` comment
    packages           requirements for the image's Python. They are installed from wheels into a
                       derived image, which is cached
    preload            modules to import once, before the blocks start. Starting raises
                       `PackageError` if a module cannot be imported
    container          further options of the container. See `ContainerOptions`

    For the other parameters see `CommandLineExecutor`. Blocks in one container share its memory,
    its /tmp and its user. Starting raises `ContainerEngineUnavailable`, `ImageUnavailable` or
    another `BackendError`.
    """

    if TYPE_CHECKING:

        @property
        def place(self) -> DockerPlace: ...

    def __init__(
        self,
        image: str = IMAGE,
        container_name: str | None = None,
        *,
        timeout: float | None = 60,
        work_dir: str | os.PathLike[str] | None = None,
        bind_dir: str | os.PathLike[str] | None = None,
        auto_remove: bool = True,
        stop_container: bool = True,
        device_requests: Sequence[Any] | None = None,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        extra_volumes: Mapping[str, Mapping[str, str]] | None = None,
        extra_hosts: Mapping[str, str] | None = None,
        init_command: str | None = None,
        delete_tmp_files: bool = False,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        preload: Sequence[str] = (),
        execution_policies: Mapping[str, Action] | None = None,
        save_output: bool = False,
        **container: Unpack[ContainerOptions],
    ) -> None:
        _warn_if_current_dir(work_dir)
        settings = PlaceSettings.checked(
            timeout,
            work_dir,
            functions,
            functions_module,
            delete_tmp_files,
            packages=packages,
            limits=limits,
            execution_policies=execution_policies,
            save_output=save_output,
        )
        docker = DockerSettings(
            image=image,
            container_name=container_name,
            bind_dir=None if bind_dir is None else Path(bind_dir),
            auto_remove=check_bool("auto_remove", auto_remove),
            stop_container=check_bool("stop_container", stop_container),
            init_command=init_command,
            preload=check_strings("preload", preload),
            **validate_resources(device_requests, extra_volumes, extra_hosts),
            **validate_options(container),
        )
        super().__init__(DockerPlace(settings, docker))

    @property
    def container(self) -> str | None:
        """The name of the current container, or `None` if none is running."""
        return self.place.container

    @property
    def bind_dir(self) -> Path:
        """The work folder's path on the engine's machine."""
        return self.place.bind_dir


def _warn_if_current_dir(work_dir: str | os.PathLike[str] | None) -> None:
    folder = check_folder("work_dir", work_dir)
    if folder is not None and folder.resolve() == Path.cwd():
        warnings.warn(
            "Using the current directory as work_dir is deprecated.",
            DeprecationWarning,
            stacklevel=3,
        )
