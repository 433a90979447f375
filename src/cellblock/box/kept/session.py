"""KeptSession: the session of a kept box, for a process that is attached to it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Self

from ...aio.background_loop import background_loop
from ...backends.other_systems import check_sandbox_system
from ...errors import BackendError, CheckpointError, SessionError
from ...executors.session.base import SessionExecutor
from ...executors.session.checkpoint import Checkpoint
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ...executors.session.settings import InputCallback, SessionSettings
from ...executors.settings import from_config
from ...policy import Policy
from ...sandbox.images.root_file_system import RootFileSystem
from .address import BoxAddress, new_box_id
from .orders import (
    DeleteCheckpoint,
    ForkBox,
    KeptOrder,
    KeptReply,
    LaunchBox,
    ListCheckpoints,
    RestoreCheckpoint,
    RootDescription,
    SaveCheckpoint,
)
from .place import KeptPlace, ask, attach


class KeptSession(SessionExecutor):
    """See `SessionExecutor`. What is known of its checkpoints is asked of the box each time."""

    if TYPE_CHECKING:

        @property
        def place(self) -> KeptPlace: ...

    def __init__(self, place: KeptPlace, input_callback: InputCallback | None) -> None:
        live = SessionSettings.checked(
            checkpoints=True, keep_processes=True, input_callback=input_callback
        )
        super().__init__(place, live)

    @property
    def policy(self) -> Policy:
        """What blocks may read, write and reach."""
        return self.place.sandbox.policy

    async def _restart(self) -> None:
        raise SessionError("A kept box does not restart. Close it and create a new one.")

    async def _ask(self, order: KeptOrder) -> KeptReply:
        if not self._is_open:
            await self._start_for_use()
        return await ask(self.place.require_connection(), order)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The current checkpoints, oldest first. None before the start and after the end."""
        connection = self.place.connection
        if connection is None:
            return ()
        with contextlib.suppress(BackendError):
            reply = background_loop().run(ask(connection, ListCheckpoints()))
            return tuple(each.checkpoint() for each in reply.checkpoints)
        return ()

    async def _checkpoint(
        self,
        given_name: str | None,
        lifetime: float | None,
        replace: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        order = SaveCheckpoint(given_name, lifetime, replace, max_copied_bytes)
        (made,) = (await self._ask(order)).checkpoints
        return made.checkpoint()

    async def drop(self, checkpoint: Checkpoint | str) -> None:
        """See `SessionExecutor`."""
        name, key = _named(checkpoint)
        await background_loop().call(self._ask(DeleteCheckpoint(name, key)))

    async def _restore(self, given: Checkpoint | str) -> None:
        await self._ask(RestoreCheckpoint(*_named(given)))

    async def _fork(  # pyright: ignore[reportIncompatibleMethodOverride] - Self is the same type
        self, count: int, given: Checkpoint | str | None, max_copied_bytes: int | None
    ) -> list[Self]:
        name, key = (None, "") if given is None else _named(given)
        reply = await self._ask(ForkBox(count, name, key, max_copied_bytes))
        return [self._branch(await self.place.fork_of(each)) for each in reply.boxes]


def _named(checkpoint: object) -> tuple[str, str]:
    """Return the name and the key of a checkpoint, "" if only its name is given."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.name, checkpoint.key
    if isinstance(checkpoint, str):
        return checkpoint, ""
    raise CheckpointError(
        f"Pass a Checkpoint of the box, or its name, such as box.checkpoints[-1], not "
        f"{checkpoint!r:.100}."
    )


def kept_session(
    made_as: SandboxSessionCodeExecutor,
    idle_seconds: float | None,
    input_callback: InputCallback | None,
) -> KeptSession:
    """Return the session of a box that is made at its start, with the settings of `made_as`."""
    config, root = dict(made_as.dump_component().config), made_as.place.root_source
    if made_as.place.settings.work_dir is not None:
        config["work_dir"] = os.path.abspath(made_as.place.settings.work_dir)
    users = made_as.place.users
    launch = LaunchBox(new_box_id(), json.dumps(config), idle_seconds, users=users)
    if isinstance(root, RootFileSystem):
        launch = launch._replace(root=RootDescription.of(root))
    elif root is not None:
        launch = launch._replace(root_source=os.path.abspath(root))
    place = KeptPlace(made_as.place.settings, made_as.place.sandbox, None, launch)
    place.root_source, place.sharing_group, place.users = root, "box", users
    return KeptSession(place, input_callback)


async def attached_session(ref: str, input_callback: InputCallback | None) -> KeptSession:
    """Return the session of a box that another process has made. Raise `BoxGone`."""
    check_sandbox_system()
    address = BoxAddress.from_ref(ref)
    connection, found = await attach(address.box, address.connect())
    try:
        made_as = SandboxSessionCodeExecutor(**from_config(json.loads(found.config)))
    except BaseException:
        await connection.close()
        raise
    place = KeptPlace(made_as.place.settings, made_as.place.sandbox, address)
    place.root_source = None if found.root is None else found.root.root()
    place.users = found.users
    place.attached = connection, found
    return KeptSession(place, input_callback)
