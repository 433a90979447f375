"""DockerCommandLineCodeExecutor: blocks in a container of a Docker-compatible engine, at the cost of a fork for each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from ...backends.base import Connection, Place
from ...backends.container import ContainerPlace
from ...backends.module_bundle import compiled
from ...cancellation import Token
from ...containers import users
from ...containers.client import Client, connect
from ...containers.image_packages import image_with
from ...containers.lifecycle import Tenant
from ...containers.spec import (
    WORK_DIR,
    ContainerOptions,
    ContainerSettings,
    checked_gifts,
    checked_options,
)
from ...errors import BackendError, BackendLost, PackageError
from ...events import Event, PullProgress
from ...functions.module import Function
from ...languages import Action, Language
from ...limits import SANDBOX_LIMITS, Limits
from ...runtime import protocol
from ...runtime.protocol import Frame
from ..workspace.temp_dirs import Caretaker
from .base import CommandLineExecutor, texts, truth
from .docker_file_sync import Copies

IMAGE = "python:3-slim"
_EMPTIED = "all that ran in the container was ended, and another server started"
_RESTARTED = "the container was restarted"
_REPLACED = (
    "the container was gone, and what was made in it outside the work folder; there is a new one"
)


class DockerCommandLineCodeExecutor(CommandLineExecutor):
    """Run blocks in a container: they see their work folder as /workspace, the image, and nothing else of the machine.

    image              its reference; it needs `sh`, and Python 3.10 or later for all that is not a shell's
    container_name     its name; `None`: a new one at each start
    bind_dir           the work folder as the engine's machine has it, where that is another: Docker out of Docker
    auto_remove        remove the container when it ends
    stop_container     end it in `stop`; otherwise it goes on, and `start` finds it again by its name
    device_requests    `docker.types.DeviceRequest` objects, or the dicts that they are
    extra_volumes      source -> {"bind": path inside, "mode": "rw" or "ro"}
    extra_hosts        name -> address
    init_command       a shell command that is run before the first block
    delete_tmp_files   remove the files of blocks that have no `# filename:` of their own
    packages           requirements for the image's Python, from wheels alone: they are put over the image once, and kept
    preload            modules to import once, so that blocks find them imported; `PackageError` where that does not work
    container          how the container is made: see `ContainerOptions`

    For the other parameters see `CommandLineExecutor`. Blocks of one container share its memory, its /tmp and its user.
    Starting raises `ContainerEngineUnavailable`, `ImageUnavailable` or another `BackendError`.
    """

    _server_writes = False  # it may be on another machine, and be another user

    _given: dict[
        str, Any
    ]  # for configurations; what the engine is told is made of it at each start
    _client: Client | None = None
    _image: str = ""  # of the container: the one that was given, or that with packages
    _tenant: Tenant | None = None
    _place: ContainerPlace | None = None
    _copies: Copies | None = None
    _caretaker: Caretaker | None = None  # of a temporary work folder
    _watch: asyncio.Task[None] | None = None
    _became = ""  # of the container, when its server was last lost

    def __init__(
        self,
        image: str = IMAGE,
        container_name: str | None = None,
        *,
        timeout: float = 60,
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
        _warn_of_current_folder(work_dir)
        super().__init__(
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
        self._preload = texts("preload", preload)
        self._listeners = set[
            asyncio.Queue[Event | None]
        ]()  # those who wait for a start, and want to know how far it is
        self._bind_dir = None if bind_dir is None else Path(bind_dir)
        self._given = {
            "image": image,
            "container_name": container_name,
            "auto_remove": truth("auto_remove", auto_remove),
            "stop_container": truth("stop_container", stop_container),
            "init_command": init_command,
            **checked_gifts(device_requests, extra_volumes, extra_hosts),
            **checked_options(container),
        }

    @property
    def container(self) -> str | None:
        """The name of the container that is used now."""
        return None if self._place is None else self._place.container.name

    # the container

    async def _starting(self) -> AsyncGenerator[Event, None]:
        news: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listeners.add(news)
        starting = asyncio.create_task(self._start())
        starting.add_done_callback(lambda _starting: news.put_nowait(None))
        try:
            while (event := await news.get()) is not None:
                yield event
        finally:
            self._listeners.discard(news)
            if not starting.done():
                starting.cancel()
                await asyncio.wait([starting])
        await starting

    def _on_pull(self, progress: PullProgress) -> None:
        for news in self._listeners:
            news.put_nowait(progress)
        if (on_pull := self._given["on_pull"]) is not None:
            on_pull(progress)

    async def _open(self) -> None:
        try:
            await super()._open()
        except BaseException:
            await self._leave(restarting=False)
            raise

    async def _make_place(self, packages: tuple[str, ...], delete: list[str]) -> Place:
        assert self._workspace is not None
        if self._temporary is not None and self._caretaker is None and not self._is_kept:
            self._caretaker = await asyncio.to_thread(Caretaker, self._temporary)
        # It takes the processor for a moment, and the engine will have us wait.
        asyncio.get_running_loop().run_in_executor(None, compiled)
        self._client = client = await connect()
        self._recovering = asyncio.Lock()
        given, self._image = self._given, self._given["image"]
        if packages:
            self._image = await image_with(
                client, self._image, packages, given["wheels"], on_pull=self._on_pull
            )
        settings = self._settings(client)
        self._tenant = Tenant(
            client,
            settings,
            given["container_name"],
            stop_container=given["stop_container"],
            init_command=given["init_command"],
            on_pull=self._on_pull,
        )
        container = await self._tenant.take()
        if given["transfer"] == "copy":
            self._copies = Copies(container, self._workspace, settings.user)
            await self._copies.begin()
        self._place = ContainerPlace(
            container,
            self._limits,
            self._preload,
            is_ours=not self._is_kept,
        )
        return self._place

    def _settings(self, client: Client) -> ContainerSettings:
        assert self._workspace is not None
        given = self._given
        extra, is_shown = given["create_kwargs"], given["transfer"] == "bind"
        if is_shown:
            extra = {
                **extra,
                "HostConfig": {**users.unmapped(client), **extra.get("HostConfig", {})},
            }
        user = given["user"] or users.own_user(client, self.work_dir)
        if self._temporary is not None:
            users.give(self._temporary, client, user)
        return ContainerSettings(
            image=self._image,
            user=user,
            limits=self._limits,
            work_dir=str(self._bind_dir or self._workspace.path) if is_shown else None,
            network=given["network"],
            environment=given["environment"],
            ports=given["ports"],
            volumes=given["extra_volumes"],
            hosts=given["extra_hosts"],
            devices=given["device_requests"],
            runtime=given["runtime"],
            gvisor=client.is_gvisor(given["runtime"]),
            read_only=given["read_only"],
            has_own_home=not client.is_podman,  # which cannot give a tmpfs an owner
            holds_limits=client.holds_limits,
            auto_remove=given["auto_remove"],
            extra=extra,
        )

    async def _install(self, required: tuple[str, ...]) -> tuple[str, ...]:
        """Leave it to the image: the engine has to be reached first."""
        return required

    @property
    def _is_kept(self) -> bool:
        """Whether the container is to be found again, and so its work folder."""
        return not (self._given["auto_remove"] and self._given["stop_container"])

    async def _close(self, *, restarting: bool) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._is_kept and self._remove_temporary is not None:
            self._remove_temporary.detach()
        try:
            await super()._close(restarting=restarting or self._is_kept)
        finally:
            await self._leave(restarting=restarting)

    async def _leave(self, *, restarting: bool) -> None:
        tenant, self._tenant, self._place, self._copies = self._tenant, None, None, None
        client, self._client = self._client, None
        if tenant is not None:
            await tenant.leave(restarting=restarting)
        if client is not None:
            await client.close()
        caretaker = self._caretaker
        if caretaker is not None and not restarting:
            self._caretaker = None
            await asyncio.to_thread(caretaker.remove)

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        config = super()._to_config()
        config["delete_tmp_files"] = config.pop("cleanup_temp_files")
        return {
            **config,
            **{name: value for name, value in self._given.items() if name != "on_pull"},
            "preload": list(self._preload),
            "bind_dir": None if self._bind_dir is None else str(self._bind_dir),
        }

    # blocks

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        path = self._as_seen(name)
        return (
            {"script": path}
            if language.name == "python"
            else {"argv": [*(language.argv or ()), path]}
        )

    def _as_seen(self, name: str) -> str:
        return f"{WORK_DIR}/{name}"

    async def _frames(
        self, request: dict[str, Any], token: Token | None = None
    ) -> AsyncGenerator[Frame, None]:
        connection, begun = self._connection, time.monotonic()
        assert connection is not None
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(connection.watch())
        try:
            if self._copies is not None:
                await self._copies.send()
            async with contextlib.aclosing(
                connection.run(request, token, on_input=self._on_input)
            ) as frames:
                async for frame in frames:
                    if self._copies is not None and frame.kind == protocol.ENDED:
                        await self._copies.fetch()
                    yield frame
        except BackendLost as error:
            became = await self._recover(connection, error)
            yield lost_ending(request, time.monotonic() - begun, became)

    async def _recover(self, lost: Connection, why: BackendLost) -> str:
        """Have another server in place of one that ended or does not answer; say what that took. Raises `BackendLost`."""
        async with self._recovering:
            if self._connection is None:  # stopped, while the block ran
                raise why
            if self._connection is not lost:  # another block of this server did it
                return self._became
            tenant, place = self._tenant, self._place
            try:
                if tenant is None or place is None:
                    raise why
                try:
                    self._connection, self._became = await _begun_again(tenant, place)
                finally:
                    with contextlib.suppress(BackendError):
                        await lost.close()
                if self._became == _REPLACED and self._copies is not None:
                    await self._copies.begin()
            except (BackendError, PackageError) as error:
                raise BackendLost(
                    f"{why} The container could not be restarted: {error} Call restart()."
                ) from error
            return self._became


async def _begun_again(tenant: Tenant, place: ContainerPlace) -> tuple[Connection, str]:
    """Have another server in the container, or in its place; say what that took. Raises `BackendError`.

    The engine's own restart comes second: a busy engine may hear late of the end of what it has restarted, take it for the
    end of what runs now, and remove that, as it was told to do at its end.
    """
    with contextlib.suppress(BackendError):  # it has ended, or has no process to spare
        await tenant.empty()
        return await place.open(), _EMPTIED
    await tenant.restart()
    with contextlib.suppress(BackendError):
        return await place.open(), _RESTARTED
    is_new = await tenant.restart(or_replace=True)
    return await place.open(), _REPLACED if is_new else _RESTARTED


def _warn_of_current_folder(work_dir: str | os.PathLike[str] | None) -> None:
    if work_dir is not None and Path(work_dir).resolve() == Path.cwd():
        warnings.warn(
            "Using the current directory as work_dir is deprecated.",
            DeprecationWarning,
            stacklevel=3,
        )


def lost_ending(request: Mapping[str, Any], seconds: float, became: str) -> Frame:
    """Give the end of a block whose server went with it, and say what `became` of the container."""
    late = seconds >= float(request["wall_seconds"])
    ending = {
        "status": None,
        "why": "wall_seconds" if late else None,
        "wall": seconds,
        "cpu": 0.0,
        "peak": 0,
        "queued": 0.0,
        "session": "new" if "op" in request else None,
        "error": f"The cell server did not answer any more: {became}.",
    }
    return Frame(protocol.ENDED, 0, json.dumps(ending).encode())
