"""The messages with fields: one frozen type each, encoded and validated here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from . import protocol
from .box_orders import BoxAnswer, CommandStarted
from .handshake import CellJob
from .packets import WaitStatus, decode_fields, fields_of

# from the caller to the server


class RunTerms(NamedTuple):
    """How a block is run, in a cell or in a session.

    wall_seconds    its time limit
    written_bytes   its limit of written bytes, if that is lower than the server's
    waited          seconds for which the caller has held it back
    write           the path and the text of a file to write before
    save            the path of a file for all its output
    cpu_seconds     in a cell: its limit of CPU time, if that is lower than the server's
    """

    wall_seconds: float | None = None
    written_bytes: int | None = None
    waited: float = 0.0
    write: tuple[str, str] | None = None
    save: str | None = None
    cpu_seconds: float | None = None


class RunRequest(NamedTuple):
    """`RUN`: run a block in a fresh process.

    output_bytes   how many bytes of output to keep, instead of the server's limit
    most_output    how many bytes of output end the block
    """

    job: CellJob
    terms: RunTerms = RunTerms()
    output_bytes: int | None = None
    most_output: int | None = None


class MountSpec(NamedTuple):
    """A folder or file of this machine to mount in the sandbox.

    owned      the folder belongs to an executor: it is writable, and its owner may be changed
    mapped     the cell's user appears as the owner
    below      a path in the work folder `source`, to mount instead of it. Symbolic links in it are
               not followed
    has_users  it is a root file system, whose users are those of a box that can have several
    """

    source: str
    target: str
    writable: bool = False
    owned: bool = False
    mapped: bool = False
    device: bool = False
    below: str = ""
    has_users: bool = False


class RunProgram(NamedTuple):
    """`SESSION_REQUEST`: run a block in a fresh process that sees the folders of a session."""

    session: int
    request: RunRequest
    mounts: tuple[MountSpec, ...] = ()


class RunCode(NamedTuple):
    """`SESSION_REQUEST`: run a block in the process of a session.

    file                   the path that the code is said to have
    rollback_checkpoints   make one after the block
    keep_processes         do not end the processes that the block has started
    is_silent              show no value, and do not count the block
    has_colours            tracebacks have colours
    show_interrupts        the traceback of an interrupt is shown
    terminal_mode          the form of tracebacks, if output is that of IPython in a terminal
    columns                the width of the terminal that shows the output; 0 if there is none
    answers_input          the caller answers `input()`; otherwise its error is `no_input`
    input_is_timed         waiting for an answer counts as time
    """

    session: int
    terms: RunTerms
    code: str
    file: str | None = None
    rollback_checkpoints: bool = False
    keep_processes: bool = False
    is_silent: bool = False
    has_colours: bool = False
    show_interrupts: bool = False
    terminal_mode: str | None = None
    columns: int = 0
    answers_input: bool = False
    no_input: str = ""
    input_is_timed: bool = True


BlockRequest = RunRequest | RunProgram | RunCode


class TenantSpec(NamedTuple):
    """`OPEN` of a tenant: its mounts, and the paths to delete at its end."""

    mounts: tuple[MountSpec, ...] = ()
    delete: tuple[str, ...] = ()


class KeepPaths(NamedTuple):
    """`KEEP_PATHS`: paths that the server must not delete at its end after all."""

    paths: tuple[str, ...]


# from the server to the caller


class Ready(NamedTuple):
    """`READY`: blocks can be run. `python` is the version that runs them; a tenant knows it."""

    python: str | None = None

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        return protocol.encode_json(protocol.READY, run, fields_of(self))


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
        return protocol.encode_json(protocol.FAILED, run, fields_of(self))


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

    status: WaitStatus | None
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
        return protocol.encode_json(protocol.ENDED, run, fields_of(self))


class SessionVariable(NamedTuple):
    """A variable of a session. `size_bytes` is that of the object itself, `repr` is short."""

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
        return protocol.encode_json(protocol.SESSION_REPLY, run, fields_of(self))

    @classmethod
    def from_session(cls, frame: protocol.Frame) -> Answer:
        """Return the answer in `frame`, which user code in the session's process may have sent.

        Raise `ProtocolError`.
        """
        answer = decode_fields(frame, cls)
        if answer.why is not None:
            raise protocol.ProtocolError("An answer has an invalid field: 'why'")
        return answer


class OutputLost(NamedTuple):
    """`TRUNCATED`: how many bytes of each stream are lost at this point."""

    stdout: int
    stderr: int

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        return protocol.encode_json(protocol.TRUNCATED, run, fields_of(self))


class InputQuestion(NamedTuple):
    """`INPUT_REQUEST`: code waits for a line of input. `hidden`: as `getpass` does."""

    prompt: str = ""
    hidden: bool = False

    def encode(self, run: int) -> bytes:
        """Return the frame for `run`."""
        return protocol.encode_json(protocol.INPUT_REQUEST, run, fields_of(self))


_REPLIES: Final[Mapping[int, type[tuple[Any, ...]]]] = {
    protocol.READY: Ready,
    protocol.TRUNCATED: OutputLost,
    protocol.ENDED: Ending,
    protocol.FAILED: Failure,
    protocol.SESSION_REPLY: Answer,
    protocol.INPUT_REQUEST: InputQuestion,
    protocol.BOX_STARTED: CommandStarted,
    protocol.BOX_REPLY: BoxAnswer,
}


def check_reply(frame: protocol.Frame) -> None:
    """Raise `ProtocolError` if a frame from a server is invalid.

    A DISPLAY is not checked here, because user code makes it.
    """
    if (kind := _REPLIES.get(frame.kind)) is not None:
        decode_fields(frame, kind)


# from the zygote to the server, besides `Ready` and `Failure`


class Importing(NamedTuple):
    """The zygote imports a module of `preload`."""

    module: str


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


class CopyTemporaryFolders(NamedTuple):
    """Order to the first process of a branch: copy the temporary folders of the session above it.

    Not earlier: the memory of the copies belongs to its cell.
    """


class StartBox(NamedTuple):
    """Order: carry out what arrives over the stream that is passed, see `box_orders`."""


class StopAll(NamedTuple):
    """Order: stop all processes of the cell with one call, so that none can fork meanwhile."""


class ContinueAll(NamedTuple):
    """Order: continue those that `StopAll` has stopped."""


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


# between the server and the mount broker


class FetchMounts(NamedTuple):
    """Request: open these mounts."""

    mounts: tuple[MountSpec, ...]


class TakeBackFiles(NamedTuple):
    """Request: give the owner of these folders what other users of a box have left in them."""

    folders: tuple[str, ...]


class FetchedMounts(NamedTuple):
    """Reply, with so many descriptors, or what failed."""

    descriptors: int = 0
    error: str = ""


InitOrder = (
    StartSession
    | MountFolders
    | ForkBranchInits
    | CopyTemporaryFolders
    | StartBox
    | StopAll
    | ContinueAll
)
INIT_ORDERS = get_args(InitOrder)
INIT_REPORTS = (Hello, ProcessExit, OrderResult)
InitReport = Hello | ProcessExit | OrderResult
