"""What can be done with a live session besides running blocks: values in and out, checkpoints, branches."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

from ...aio.background_loop import engine
from ...errors import CheckpointError, SessionError
from ...runtime import values
from ..workspace import snapshot
from .base import LiveSession
from .checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable of a session. `size_bytes` is that of the object itself, without what it refers to."""

    name: str
    type: str
    size_bytes: int
    repr: str


class CopiedSession(LiveSession):
    """Values, checkpoints and branches of a live session."""

    # values

    async def get(self, name: str) -> Any:
        """Give the value of variable `name`: a JSON value, bytes, or for tables (Arrow, pandas, polars) a `pyarrow.Table`.

        Raises `KeyError` when there is none of that name, and `SessionError` when it is a value of another kind.
        """
        answer, data = await self._ask({"op": "get", "name": name})
        if answer.get("missing"):
            raise KeyError(name)
        kind = _part(checked(answer), "kind")
        try:
            return values.decode(kind, data)
        except values.NotExchangeable:
            raise
        except Exception as error:  # whatever a parser says to what code has made up
            raise SessionError(
                f"What the session gave for {name} cannot be read: {error}"
            ) from error

    async def set(self, name: str, value: Any) -> None:
        """Set variable `name` to `value`: a JSON value, bytes, or a table; one of pandas' arrives as one.

        Raises `TypeError` for other values, and `ValueError` for what is no name.
        """
        if not name.isidentifier():
            raise ValueError(f"{name!r} is not the name of a variable.")
        kind, data = values.encode(value)
        order = {
            "op": "set",
            "name": name,
            "kind": kind,
            "size": len(data),
            "checkpoint": self._keeps_copies,
        }
        answer, _ = await self._ask(order, data)
        checked(answer)

    async def variables(self) -> list[Variable]:
        """List the variables that blocks have made, in order of their names."""
        answer, _ = await self._ask({"op": "variables"})
        return [Variable(**entry) for entry in _part(checked(answer), "variables")]

    # checkpoints and branches

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that there are, in the order in which they were made."""
        return tuple(self._marks.values())

    async def checkpoint(self, *, lifetime_seconds: float | None = None) -> Checkpoint:
        """Make a frozen copy of memory and work folder. It lives as long as the session, or `lifetime_seconds`.

        Raises `CheckpointError`, which names what cannot be copied: running threads, child processes, network connections,
        terminals, GPU contexts, shared memory; or when `Limits.checkpoints` would be exceeded.
        """
        return await engine().call(self._checkpoint(lifetime_seconds))

    async def _checkpoint(self, lifetime: float | None) -> Checkpoint:
        if not self._is_open:
            await self._start()
        async with self._turns.next():
            most = self._limits.checkpoints
            if most is not None and len(self._marks) >= most:
                raise CheckpointError(
                    f"There are {most} checkpoints already (Limits.checkpoints): drop one first."
                )
            assert self._workspace is not None
            began, name = time.monotonic(), secrets.token_hex(8)
            answer, _ = await self._ask_now({"op": "keep", "exact": True, "mark": name})
            checked(answer)
            before = next(reversed(self._marks.values())).snapshot if self._marks else None
            try:
                taken = await asyncio.to_thread(
                    snapshot.take,
                    self._workspace.path,
                    before,
                    self._own_folder(),
                    self._limits.written_bytes,
                )
            except BaseException:
                await self._ask_now({"op": "drop", "mark": name})
                raise
            mark = self._marks[name] = Checkpoint.of(name, self._blocks, began, lifetime, taken)
            if lifetime is not None:
                asyncio.get_running_loop().call_later(
                    lifetime, lambda: asyncio.ensure_future(self._drop(mark))
                )
            return mark

    async def drop(self, mark: Checkpoint) -> None:
        """Forget a checkpoint; does nothing when that has been done."""
        await engine().call(self._drop(mark))

    async def _drop(self, mark: Checkpoint) -> None:
        async with self._turns.next():
            if self._marks.pop(mark.name, None) is not None and self._connection is not None:
                await self._ask_now({"op": "drop", "mark": mark.name})
                await asyncio.to_thread(mark.snapshot.remove)

    async def restore(self, mark: Checkpoint) -> None:
        """Go back to `mark`: variables and work folder are as they were then. It can be gone back to again.

        Raises `CheckpointError` when there is no such checkpoint any more.
        """
        await engine().call(self._restore(mark))

    async def _restore(self, mark: Checkpoint) -> None:
        async with self._turns.next():
            self._check_mark(mark)
            assert self._workspace is not None
            await self._ask_now({"op": "halt"})
            await asyncio.to_thread(snapshot.restore, mark.snapshot, self._workspace.path)
            answer, _ = await self._ask_now(
                {"op": "resume", "mark": mark.name, "checkpoint": self._keeps_copies}
            )
            checked(answer, CheckpointError)

    def _check_mark(self, mark: Checkpoint) -> None:
        if self._marks.get(mark.name) is not mark:
            raise CheckpointError(
                "This checkpoint was dropped, has expired, or belongs to another session."
            )

    async def fork(self, count: int = 1, *, mark: Checkpoint | None = None) -> list[Self]:
        """Make `count` independent sessions that start from here, or from `mark`, and share memory until they change it.

        Each has a work folder of its own, a temporary one, and ends by its own `stop`. Random numbers of `random`, numpy and
        torch are reseeded in each. Raises `CheckpointError` as `checkpoint` does, and when a fork of a fork of a fork, and so
        on, is too deep for the kernel (some 30).
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count!r}.")
        return await engine().call(self._fork(count, mark))

    async def _fork(self, count: int, mark: Checkpoint | None) -> list[Self]:
        if not self._is_open:
            await self._start()
        branches: list[Self] = []
        async with self._turns.next():
            if mark is not None:
                self._check_mark(mark)
            else:  # what open files hold back belongs into the copy of the work folder
                checked((await self._ask_now({"op": "flush"}))[0])
            try:
                for _ in range(count):
                    branches.append(await self._fork_one(mark))
            except BaseException:
                for branch in branches:
                    await branch._stop()
                raise
        return branches

    # what the kinds of sessions fill in

    @abstractmethod
    def _own_folder(self) -> Path:
        """Give a folder of ours that lives as long as the session, and that code does not see."""

    @abstractmethod
    async def _fork_one(self, mark: Checkpoint | None) -> Self:
        """Make one branch, which is open. Leaves nothing behind when it raises."""

    def _forget_marks(self) -> None:
        """Remove all checkpoints: their processes are gone, or about to go."""
        for mark in self._marks.values():
            mark.snapshot.remove()
        self._marks.clear()
        self._blocks = 0


def checked(answer: dict[str, Any], kind: type[SessionError] = SessionError) -> dict[str, Any]:
    """Give `answer`, or raise what it says went wrong."""
    if refused := answer.get("refused"):
        raise CheckpointError(
            f"The session cannot be copied: there is {', '.join(refused)}. End that first."
        )
    if answer.get("why"):
        raise SessionError(f"The session did not answer within the limits ({answer['why']}).")
    if error := answer.get("error"):
        raise kind(str(error))
    return answer


def _part(answer: dict[str, Any], name: str) -> Any:
    if name not in answer:
        raise SessionError(
            "The session's answer makes no sense: code that runs there has changed what gives it."
        )
    return answer[name]
