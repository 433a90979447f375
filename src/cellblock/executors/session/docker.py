"""DockerSessionCodeExecutor: a live session in a container."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command_line.docker import IMAGE, DockerCommandLineCodeExecutor
from .base import SessionExecutor
from .docker_place import DockerSessionPlace
from .settings import InputCallback, SessionSettings


class DockerSessionCodeExecutor(SessionExecutor):
    """Run Python blocks in one live interpreter in a container.

    It has all methods of `SandboxSessionCodeExecutor`. The image needs Python and IPython. For the
    parameters see `SessionExecutor` and `DockerCommandLineCodeExecutor`. Results are
    `SessionCodeResult` objects. Starting raises `BackendError` if the image has no IPython, and the
    errors of `DockerCommandLineCodeExecutor`.

    A container has one set of namespaces and one user. So it isolates less than the sandbox:

    * A session, its checkpoints, its branches and its blocks in other languages share the
      container: /tmp, /dev/shm, the home folder, the network and the list of processes. They can
      send signals to each other and to the runtime server. If code kills the server, the session
      is lost: all other processes in the container are killed too, and the result says that the
      session was restarted.
    * The work folder of a branch is not /workspace but a folder in /branches. It is the current
      folder of the branch, and open files refer to it. But an absolute path in the code or in a
      variable still refers to the folder of the original session.
    * A branch ends with its container, which runs until its last session stops. `fork` raises
      `CheckpointError` if the container is kept (`auto_remove`, `stop_container`), with `bind_dir`
      and with `transfer="copy"`. With the latter, `checkpoint` raises it too.
    * Memory, processes and CPUs are limited for the container as a whole.
    """

    if TYPE_CHECKING:

        @property
        def place(self) -> DockerSessionPlace: ...

    def __init__(
        self,
        image: str = IMAGE,
        container_name: str | None = None,
        *,
        checkpoints: bool = True,
        keep_processes: bool = False,
        input_callback: InputCallback | None = None,
        **options: Any,
    ) -> None:
        place = DockerCommandLineCodeExecutor(image, container_name, **options).place
        live = SessionSettings.checked(checkpoints, keep_processes, input_callback)
        super().__init__(DockerSessionPlace(place.settings, place.docker), live)

    @property
    def container(self) -> str | None:
        """The name of the current container, or `None` if none is running."""
        return self.place.container

    @property
    def bind_dir(self) -> Path:
        """The work folder's path on the engine's machine."""
        return self.place.bind_dir
