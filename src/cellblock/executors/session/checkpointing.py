"""CheckpointableSession: variables, checkpoints and forks of a live session."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from ...aio.background_loop import background_loop
from ...aio.shielded import run_in_thread, run_to_end
from ...errors import CheckpointError, SessionError, UnsupportedValue
from ...runtime import values
from ..argument_checks import shortest
from ..workspace import snapshot
from ..workspace.full_disk import report_full_disk
from .base import SessionExecutor
from .checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable of a session. `size_bytes` is the size of the object without what it refers to."""

    name: str
    type: str
    size_bytes: int
    repr: str


class CheckpointableSession(SessionExecutor):
    """A live session whose variables can be read and set, and which can be restored and forked."""

    # variables

    async def get(self, name: str) -> Any:
        """Return the value of the variable `name`.

        It is a JSON value, bytes, or a `pyarrow.Table` for a table (Arrow, pandas, polars). Raise
        `KeyError` if there is no such variable, and `SessionError` if its type is not supported.
        """
        answer, data = await self._query({"op": "get", "name": name})
        if answer.get("missing"):
            raise KeyError(name)
        kind = _answer_field(check_answer(answer), "kind")
        try:
            return values.decode(kind, data)
        except values.UnsupportedValueError as error:
            raise UnsupportedValue(str(error)) from None
        except Exception as error:  # code can forge the data, and a parser can raise anything
            raise SessionError(f"The value of {name!r} cannot be decoded: {error}") from error

    async def set(self, name: str, value: Any) -> None:
        """Set the variable `name` to `value`: a JSON value, bytes, an array, a series or a table.

        A pandas table becomes a pandas table in the session, an array or a series a list. Raise
        `UnsupportedValue`, which is also a `TypeError`, for other values; it says what to pass
        instead. Raise `ValueError` if `name` is not a valid identifier.
        """
        if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(f"{name!r} is not a valid variable name. Use a Python identifier.")
        try:
            kind, data = values.encode(value)
        except values.UnsupportedValueError as error:
            raise UnsupportedValue(str(error)) from None
        request = {
            "op": "set",
            "name": name,
            "kind": kind,
            "size": len(data),
            "rollback_checkpoints": self._session.checkpoints,
        }
        answer, _ = await self._query(request, data)
        check_answer(answer)

    async def variables(self) -> list[Variable]:
        """Return the variables that blocks have created, sorted by name."""
        answer, _ = await self._query({"op": "variables"})
        return [Variable(**entry) for entry in _answer_field(check_answer(answer), "variables")]

    async def complete(self, code: str, cursor: int | None = None) -> tuple[int, list[str]]:
        """Return what Tab offers in `code` at index `cursor` (None: at its end).

        The result is the index where the text to replace starts, and its replacements: names,
        attributes, keys and columns of the session's variables, and files.
        """
        place = len(code) if cursor is None else cursor
        answer, _ = await self._query({"op": "complete", "code": code, "cursor": place})
        check_answer(answer)
        start = int(_answer_field(answer, "start"))
        return min(max(start, 0), place), list(_answer_field(answer, "matches"))

    # checkpoints and forks

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The current checkpoints, oldest first."""
        return tuple(self._checkpoints.values())

    async def checkpoint(
        self,
        name: str | None = None,
        *,
        lifetime_seconds: float | None = None,
        replace: bool = False,
        max_copied_bytes: int | None = None,
    ) -> Checkpoint:
        """Create a frozen copy of the session's memory and work folder.

        `restore`, `drop` and `fork` also take its `name`. `None` means the first free number. With
        `replace`, it takes the place of a checkpoint with this name, which is kept if this fails.

        It exists until it is dropped, the session stops, or `lifetime_seconds` have passed. It
        copies at most `max_copied_bytes` of files, if that is less than `Limits.written_bytes`.
        Raise
        `CheckpointError` if `Limits.checkpoints` would be exceeded, or if the session has something
        that cannot be copied: running threads, child processes, network connections, terminals,
        GPU contexts or shared memory. The error names it.
        Raise `ValueError` if the session has a checkpoint with this name and `replace` is false,
        and `WorkspaceError` if the disk is full.
        """
        with report_full_disk("The checkpoint cannot be saved"):
            return await background_loop().call(
                self._checkpoint(name, lifetime_seconds, replace, max_copied_bytes)
            )

    async def _checkpoint(
        self,
        given_name: str | None,
        lifetime: float | None,
        replace: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        if not self._is_open:
            await self._start_for_use()
        async with self._session_lock:
            return await self._checkpoint_locked(given_name, lifetime, replace, max_copied_bytes)

    async def _checkpoint_locked(
        self,
        given_name: str | None,
        lifetime: float | None,
        replace: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        began, name = time.monotonic(), self._new_checkpoint_name(given_name, replace)
        limit, others = self.limits.checkpoints, self._checkpoints.keys() - {name}
        if limit is not None and len(others) >= limit:
            raise CheckpointError(
                f"The session already has {limit} checkpoints, its limit of checkpoints. "
                "Delete one first."
            )
        assert self._workspace is not None
        workspace, key = self._workspace, uuid.uuid4().hex
        last = next(reversed(self._checkpoints.values()), None)
        taken = list[snapshot.Snapshot]()

        def take_snapshot() -> None:
            previous, folder = None if last is None else last.snapshot, self._checkpoint_dir()
            room = shortest(self.limits.written_bytes, max_copied_bytes)
            taken.append(snapshot.take_snapshot(workspace.path, previous, folder, room))

        try:
            answer, _ = await self._query_locked(
                {
                    "op": "checkpoint",
                    "exact": True,
                    "checkpoint_key": key,
                    "rollback_checkpoints": self._session.checkpoints,
                }
            )
            check_answer(answer, CheckpointError)
            await run_in_thread(take_snapshot)
        except BaseException:
            await self._discard(key, taken)
            raise
        checkpoint = Checkpoint.create(name, key, self._block_count, began, lifetime, taken[0])
        replaced = self._checkpoints.pop(name, None)
        self._checkpoints[name] = checkpoint
        if lifetime is not None:
            asyncio.get_running_loop().call_later(
                lifetime, lambda: asyncio.ensure_future(self._drop(checkpoint))
            )
        if replaced is not None:
            await self._discard(replaced.key, [replaced.snapshot])
        return checkpoint

    async def drop(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint. Do nothing if it is already deleted.

        Raise `CheckpointError` if there is no checkpoint with the name `checkpoint`.
        """
        await background_loop().call(self._drop(self._find_checkpoint(checkpoint)))

    async def _drop(self, checkpoint: Checkpoint) -> None:
        async with self._session_lock:
            if self._checkpoints.get(checkpoint.name) is not checkpoint:
                return  # a later one can have the same name
            await self._drop_locked(checkpoint)

    async def _drop_locked(self, checkpoint: Checkpoint) -> None:
        del self._checkpoints[checkpoint.name]
        if self._connection is not None:
            await self._discard(checkpoint.key, [checkpoint.snapshot])

    async def _discard(self, key: str, snapshots: Iterable[snapshot.Snapshot]) -> None:
        """End a checkpoint's process, if there is one, and delete its snapshots."""
        try:
            await self._query_locked({"op": "drop", "checkpoint_key": key})
        finally:
            for taken in snapshots:
                await asyncio.to_thread(taken.remove)

    async def restore(self, checkpoint: Checkpoint | str) -> None:
        """Restore the variables and the work folder to their state at `checkpoint`.

        A checkpoint can be restored several times. Raise `CheckpointError` if it was dropped, has
        expired or belongs to another session, and `WorkspaceError` if the disk is full. Then the
        variables are restored, but not all files.
        """
        with report_full_disk("Not all files of the checkpoint could be restored"):
            await background_loop().call(self._restore(checkpoint))

    async def _restore(self, given: Checkpoint | str) -> None:
        async with self._session_lock:
            # To the end, even if it is cancelled: between the steps there is no interpreter.
            await run_to_end(self._restore_locked(self._require_checkpoint(given)))

    async def _restore_locked(self, checkpoint: Checkpoint) -> None:
        assert self._workspace is not None
        kill = {"op": "kill", "checkpoint_key": checkpoint.key}
        check_answer((await self._query_locked(kill))[0], CheckpointError)
        try:
            await asyncio.to_thread(
                snapshot.restore_snapshot,
                checkpoint.snapshot,
                self._workspace.path,
                read_only=self._workspace.read_only,
            )
        except Exception:  # such as a full disk; the session still has to be usable
            await self._resume(checkpoint)
            raise
        check_answer(await self._resume(checkpoint), CheckpointError)

    async def _resume(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Replace the killed interpreter by that of the checkpoint, and return the answer."""
        answer, _ = await self._query_locked(
            {
                "op": "resume",
                "checkpoint_key": checkpoint.key,
                "rollback_checkpoints": self._session.checkpoints,
            }
        )
        return answer

    def _new_checkpoint_name(self, given: str | None, replace: bool) -> str:
        if given is None:
            numbers = map(str, itertools.count(1))
            return next(number for number in numbers if number not in self._checkpoints)
        if not isinstance(given, str) or not given or not given.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(f"The name of a checkpoint must be a printable string, not {given!r}.")
        if given in self._checkpoints and not replace:
            raise ValueError(
                f"There is a checkpoint {given!r}. Use another name, or `replace` to replace it."
            )
        return given

    def _find_checkpoint(self, given: Checkpoint | str) -> Checkpoint:
        """Return the checkpoint with a name, or `given` itself."""
        if not isinstance(given, str):
            _check_checkpoint(given)
            return given
        if (found := self._checkpoints.get(given)) is None:
            names = ", ".join(map(repr, self._checkpoints)) or "none"
            raise CheckpointError(
                f"The session has no checkpoint {given!r}. Use the name of one of these: {names}."
            )
        return found

    def _require_checkpoint(self, given: Checkpoint | str) -> Checkpoint:
        """Return the checkpoint. Raise `CheckpointError` if the session does not have it."""
        checkpoint = self._find_checkpoint(given)
        if self._checkpoints.get(checkpoint.name) is not checkpoint:
            raise CheckpointError(
                "The checkpoint was dropped, has expired or belongs to another session. "
                "Use one of session.checkpoints."
            )
        return checkpoint

    async def fork(
        self,
        count: int = 1,
        *,
        checkpoint: Checkpoint | str | None = None,
        max_copied_bytes: int | None = None,
    ) -> list[Self]:
        """Create `count` independent sessions that start from the current state or `checkpoint`.

        They share memory until they modify it. Each has its own temporary work folder and its own
        `stop`. The random number generators of `random`, numpy and torch are reseeded in each.
        `max_copied_bytes` is as for `checkpoint`, for each of them.
        Raise `CheckpointError` and `WorkspaceError` as `checkpoint` does, and `CheckpointError` if
        the session is the result of too many nested forks for the kernel (about 30).
        """
        if count < 1:
            raise ValueError(f"count must be greater than or equal to 1, not {count!r}.")
        with report_full_disk("The session cannot be copied"):
            return await background_loop().call(self._fork(count, checkpoint, max_copied_bytes))

    async def _fork(
        self, count: int, given: Checkpoint | str | None, max_copied_bytes: int | None
    ) -> list[Self]:
        room = shortest(self.limits.written_bytes, max_copied_bytes)
        if not self._is_open:
            await self._start_for_use()
        branches: list[Self] = []
        async with self._session_lock:
            checkpoint = None if given is None else self._require_checkpoint(given)
            temporary: Checkpoint | None = None
            if checkpoint is None:  # the copy must contain the buffered data of open files
                answer = check_answer((await self._query_locked({"op": "flush"}))[0])
                if answer.get("by_value"):  # only a checkpoint sends its values to branches
                    checkpoint = temporary = await self._checkpoint_locked(None, None, False, room)
            try:
                for _ in range(count):
                    branches.append(await self._fork_one(checkpoint, room))
            except BaseException:
                for branch in branches:
                    await branch._stop()
                raise
            finally:
                if temporary is not None:
                    await self._drop_locked(temporary)
        return branches

    # implemented by subclasses

    @abstractmethod
    def _checkpoint_dir(self) -> Path:
        """Return the folder for snapshots. It lives as long as the session. Code cannot see it."""

    @abstractmethod
    async def _fork_one(self, checkpoint: Checkpoint | None, max_copied_bytes: int | None) -> Self:
        """Create one branch, already started. If it raises, it leaves nothing behind."""

    def writable_folders(self) -> list[Path]:
        """See `CommandLineExecutor`. Checkpoints have copies of the work folder."""
        return [*super().writable_folders(), *(each.snapshot.path for each in self.checkpoints)]

    def _discard_checkpoints(self) -> None:
        """Delete all checkpoints. Their processes have ended or are about to end."""
        for checkpoint in self._checkpoints.values():
            checkpoint.snapshot.remove()
        self._checkpoints.clear()
        self._block_count = 0


def _check_checkpoint(checkpoint: object) -> None:
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(
            "Pass a Checkpoint that session.checkpoint() returned, or its name, such as "
            f"session.checkpoints[-1], not {checkpoint!r:.100}."
        )


def check_answer(answer: dict[str, Any], kind: type[SessionError] = SessionError) -> dict[str, Any]:
    """Return `answer`. If it reports an error, raise it as `kind`, and a refusal of a copy as
    `CheckpointError`.
    """
    if refused := answer.get("refused"):
        raise CheckpointError(
            f"The session cannot be copied because it has {', '.join(refused)}. Close that first."
        )
    if answer.get("why"):
        raise kind(f"The session did not answer within the limits ({answer['why']}).")
    if error := answer.get("error"):
        raise kind(str(error))
    return answer


def _answer_field(answer: dict[str, Any], name: str) -> Any:
    if answer.get(name) is None:
        raise SessionError(
            f"The session's answer has no {name!r}: code in the session has modified it. "
            "Call restart()."
        )
    return answer[name]
