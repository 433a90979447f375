"""The messages with fields: one frozen type each, encoded and validated here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from . import protocol

_Message = TypeVar("_Message", bound="tuple[Any, ...]")


class Failure(NamedTuple):
    """`FAILED`: the server failed to do a run, or as a whole.

    error     what failed
    file      the file that cannot be written
    module    the module of `preload` that cannot be imported
    stopped   1: the session was closed by request
    full      1: a limit of the server is reached
    lost      1: the session of the request is gone
    """

    error: str | None = None
    file: str | None = None
    module: str | None = None
    stopped: int | None = None
    full: int | None = None
    lost: int | None = None

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        return protocol.encode_json(protocol.FAILED, run, _fields_of(self))


class Ending(NamedTuple):
    """`ENDED`: how a block ended. None: not known, or not for this kind of block.

    status                wait status; None: the first process of the block was killed
    why                   the limit that ended it, or "cancelled"
    wall, cpu, queued     seconds of time, of the CPUs, and of waiting for a cell
    peak                  bytes of memory
    code_ctime_ns         when the server wrote the block's file
    error                 what failed while the block ran
    obstacles, failure    what prevented the last rollback checkpoint, what failed
    unsaved               `failure`, if it was not reported yet
    by_value              the threads that cannot be copied from now on
    session, lost         "kept", "restored" or "new"; the number of blocks whose changes are lost
    lost_variables        what a restore by values left out
    """

    status: int | None
    why: str | None
    wall: float
    cpu: float
    peak: int
    queued: float
    code_ctime_ns: int | None = None
    error: str | None = None
    obstacles: tuple[str, ...] | None = None
    failure: str | None = None
    unsaved: str | None = None
    by_value: tuple[str, ...] | None = None
    session: str | None = None
    lost: int | None = None
    lost_variables: tuple[str, ...] | None = None

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        return protocol.encode_json(protocol.ENDED, run, _fields_of(self))


class SessionVariable(NamedTuple):
    """A variable of a session, as `values.describe_variables` describes it."""

    name: str
    type: str
    size_bytes: int
    repr: str


class Answer(NamedTuple):
    """`SESSION_REPLY`: what a session's process answers to an order. None: it does not say.

    pid               of the session, in its cell, when it is ready for the first order
    checkpoint_pids   of the checkpoints that it has made
    exit, cpu         the exit code of a block, and the CPU seconds of the order
    interrupted       whether an interrupt ended it
    error, refused    what failed, and what prevents a copy
    missing           1: there is no such variable
    kind              the format of the value that was sent before
    variables         all variables
    start, matches    completions, and where the text begins that they replace
    by_value          the threads that a copy lacks, which restores variables only
    lost_variables    what a restore by values left out
    why               the limit that ended it, or "cancelled". The server adds it
    """

    pid: int | None = None
    checkpoint_pids: tuple[int, ...] | None = None
    exit: int | None = None
    cpu: float | None = None
    interrupted: bool | None = None
    error: str | None = None
    refused: tuple[str, ...] | None = None
    missing: bool | None = None
    kind: str | None = None
    variables: tuple[SessionVariable, ...] | None = None
    start: int | None = None
    matches: tuple[str, ...] | None = None
    by_value: tuple[str, ...] | None = None
    lost_variables: tuple[str, ...] | None = None
    why: str | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the order was not carried out."""
        return self.error is not None or self.refused is not None

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        fields = _fields_of(self)
        if self.variables is not None:
            fields["variables"] = [variable._asdict() for variable in self.variables]
        return protocol.encode_json(protocol.SESSION_REPLY, run, fields)

    @classmethod
    def decode(cls, frame: protocol.Frame) -> Answer:
        """Return the answer in `frame`, which user code in the session's process may have sent.

        Raise `ProtocolError` if a field is unknown or has a wrong type.
        """
        fields = frame.json()
        protocol.check_answer_fields(fields)
        if "variables" in fields:
            fields["variables"] = [SessionVariable(**variable) for variable in fields["variables"]]
        return _frozen(cls, fields)


class NewBranch(NamedTuple):
    """A branch in a request to fork: its session number, its mounts, and what to delete at its end.

    `folder` is its work folder in a container.
    """

    session: int
    mounts: list[dict[str, Any]]
    delete: list[str]
    folder: str = ""


# between the server and the first process of a session's cell, each in a packet of its own


class StartSession(NamedTuple):
    """Order: start the session, with its control stream and its two output pipes.

    `in_work_folder`: it starts in its work folder. `reseed`: it is a branch. With a fourth
    descriptor, it loads its variables from that.
    """

    in_work_folder: bool = False
    reseed: bool = False


class MountFolders(NamedTuple):
    """Order: attach the mounts that are passed."""

    targets: tuple[str, ...]


class ForkBranchInits(NamedTuple):
    """Order: fork a helper that forks the first processes of branches, with the socket to it.

    `targets` are those of the session's mounts, which the branches do not get. `pid` is the process
    ID of the session, which they do not get either.
    """

    targets: tuple[str, ...]
    pid: int


class ForkNext(NamedTuple):
    """Order to a helper: fork a process for the next branch, with the descriptors that are passed.

    For a first process, these are its socket and its mounts, for `targets`. For a session, they are
    the namespaces that it enters, its control stream and its two output pipes. In a container, the
    session forks the first process, with its socket, and `folder` is the branch's work folder.
    """

    targets: tuple[str, ...] = ()
    folder: str = ""


class Hello(NamedTuple):
    """Report: this process is ready. It passes its namespaces if it belongs to a branch."""


class ProcessExit(NamedTuple):
    """Report: a process was reaped."""

    pid: int
    status: int
    cpu: float


class OrderResult(NamedTuple):
    """Report: an order was carried out, or what failed. A helper sends one at its start, too."""

    error: str = ""


INIT_ORDERS = (StartSession, MountFolders, ForkBranchInits)
INIT_REPORTS = (Hello, ProcessExit, OrderResult)
InitOrder = StartSession | MountFolders | ForkBranchInits
InitReport = Hello | ProcessExit | OrderResult


def encode_packet(message: InitOrder | ForkNext | InitReport) -> bytes:
    """Return the packet with `message`."""
    return json.dumps([type(message).__name__, *message]).encode()


def decode_packet(packet: bytes, *kinds: type[_Message]) -> _Message:
    """Return the message in `packet`, of one of `kinds`. Raise `ProtocolError`."""
    try:
        name, *values = json.loads(packet)
        (kind,) = (kind for kind in kinds if kind.__name__ == name)
        fields = dict(zip(kind.__annotations__, values, strict=True))
        for field, annotation in kind.__annotations__.items():
            if not _CHECKS[getattr(annotation, "__forward_arg__", annotation)](fields[field]):
                raise ValueError(f"{field} is {fields[field]!r:.80}")
    except (ValueError, TypeError, RecursionError) as error:
        raise protocol.ProtocolError(f"A packet is invalid: {error}") from error
    return _frozen(kind, fields)


def _is_text_list(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, str) for value in cast("list[object]", values)
    )


_CHECKS: Final[dict[str, Callable[[object], bool]]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) in (int, float),
    "str": lambda value: isinstance(value, str),
    "tuple[str, ...]": _is_text_list,
}


def _frozen(kind: type[_Message], fields: Mapping[str, object]) -> _Message:
    """Return a message with `fields`, whose lists become tuples."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for name, value in fields.items()
    }
    return kind(**values)


def _fields_of(message: NamedTuple) -> dict[str, Any]:
    """Return the fields of `message` that are not None."""
    return {name: value for name, value in message._asdict().items() if value is not None}
