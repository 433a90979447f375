"""The operations of the door in one table, from which its routes and its document are made."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from ...http.endpoints import Handler
from ...http.services import Services
from .answers import (
    CheckpointInfo,
    CheckpointList,
    CommandInfo,
    FileEntry,
    FileList,
    RunInfo,
    RunList,
    SessionInfo,
    SessionList,
    VerdictInfo,
)
from .commands import CommandOperations
from .files import FileOperations
from .live_runs import LiveRuns
from .records import MAX_RECORDS, AuditPage, RecordOperations, UsageList
from .requests import (
    MAX_KEY_LENGTH,
    CommandRequest,
    ForkRequest,
    NewCheckpoint,
    NewSession,
    ProgramRequest,
    RestoreRequest,
    RunRequest,
)
from .runs import RunOperations
from .session_actions import SessionActions
from .sessions import SessionOperations

BYTES = "application/octet-stream"
EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Parameter:
    """A parameter of the query or the header, which is always optional.

    max_length   of a string that must not be empty; None for other parameters
    format       of a string, such as "date-time"
    """

    name: str
    kind: str
    description: str
    place: str = "query"
    max_length: int | None = None
    format: str | None = None


@dataclass(frozen=True)
class Answer:
    """An answer without an error. `content` is a model, a content type, or None for no content."""

    status: int
    content: type[BaseModel] | str | None
    description: str = "Done"


@dataclass(frozen=True)
class Operation:
    """One method of one path below /v1.

    body   the model or content type of the request's body; None for none
    """

    tag: str
    method: str
    path: str
    handler: Handler
    summary: str
    answers: tuple[Answer, ...]
    body: type[BaseModel] | str | None = None
    is_body_optional: bool = False
    parameters: tuple[Parameter, ...] = ()

    @property
    def name(self) -> str:
        """The name in the document and the log."""
        return getattr(self.handler, "__name__", "request")


_RUN_ANSWERS = (
    Answer(200, RunInfo, "The run, which has ended; or its events, with `stream`"),
    Answer(200, EVENTS),
    Answer(202, RunInfo, "The run, with `background`"),
)
_LAST_EVENT_ID = Parameter(
    "Last-Event-ID", "integer", "The number of the last event received.", "header"
)
_AFTER = Parameter("after", "integer", "The same, for clients that cannot set the header.")
_IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key", "string",
    "A new random text for each run, such as a UUID. A request that is sent again with it gets the "
    "same run. The run continues for 60 seconds without a client.",
    "header", MAX_KEY_LENGTH,
)  # fmt: skip
_FOLDER = Parameter("folder", "string", "The folder to list. Default: the session's.")
_RECURSIVE = Parameter("recursive", "boolean", "List the folders in it too.")
_RANGE = Parameter("Range", "string", "A range of bytes, such as bytes=0-999.", "header")
_KEY = Parameter("key", "string", "The name or the ID of a key.")
_AUDIT = (
    Parameter("since", "string", "What began at this time or later.", format="date-time"),
    Parameter("until", "string", "What began before this time.", format="date-time"),
    _KEY,
    Parameter("session", "string", "The identifier of a session."),
    Parameter("action", "string", "The action, such as run."),
    Parameter("before", "integer", "The `next_before` of an earlier answer."),
    Parameter("limit", "integer", f"How many, 1 to {MAX_RECORDS}. Default: 100."),
)
_USAGE_SINCE = Parameter(
    "since", "string", "From the day (UTC) of this time. Default: 30 days ago.", format="date-time"
)
_SESSION = "/sessions/{session_id}"
_FILE = _SESSION + "/files/{path}"


def operations(services: Services, runs: LiveRuns, actions: SessionActions) -> list[Operation]:
    """Return all operations."""
    sessions = SessionOperations(services, actions)
    return [
        *_run_operations(RunOperations(services, runs)),
        *_command_operations(CommandOperations(services)),
        *_session_operations(sessions),
        *_checkpoint_operations(sessions),
        *_file_operations(FileOperations(services)),
        *_record_operations(RecordOperations(services)),
    ]


def _run_operations(runs: RunOperations) -> list[Operation]:
    run = Answer(200, RunInfo)
    in_session = f"{_SESSION}/runs"
    return [
        Operation("runs", "POST", "/runs", runs.run_once,
                  "Run code in a fresh process and an empty folder",
                  _RUN_ANSWERS, RunRequest, parameters=(_IDEMPOTENCY_KEY,)),
        Operation("runs", "POST", "/verdicts", runs.judge_program,
                  "Judge a program by its tests, in fresh processes and an empty folder",
                  (Answer(200, VerdictInfo),), ProgramRequest),
        Operation("runs", "POST", in_session, runs.run_in_session, "Run code in a session",
                  _RUN_ANSWERS, RunRequest, parameters=(_IDEMPOTENCY_KEY,)),
        Operation("runs", "GET", in_session, runs.list_runs, "List the runs of a session",
                  (Answer(200, RunList),)),
        Operation("runs", "GET", "/runs/{run_id}", runs.get_run, "Get a run", (run,)),
        Operation("runs", "GET", "/runs/{run_id}/events", runs.stream_events,
                  "Follow a run, from its beginning or after an event",
                  (Answer(200, EVENTS), Answer(204, None, "The client has all events")),
                  parameters=(_LAST_EVENT_ID, _AFTER)),
        Operation("runs", "POST", "/runs/{run_id}/cancel", runs.cancel_run,
                  "Cancel a run, and wait until it has ended", (run,)),
    ]  # fmt: skip


def _command_operations(commands: CommandOperations) -> list[Operation]:
    return [
        Operation("commands", "POST", f"{_SESSION}/commands", commands.run_command,
                  "Run a command beside the interpreter of a session",
                  (Answer(200, CommandInfo, "What it did; or its live output, with `stream`"),
                   Answer(200, EVENTS)),
                  CommandRequest),
    ]  # fmt: skip


def _session_operations(sessions: SessionOperations) -> list[Operation]:
    session, created = Answer(200, SessionInfo), Answer(201, SessionInfo, "Created")
    return [
        Operation("sessions", "POST", "/sessions", sessions.create_session,
                  "Create a session, or find an existing one by its identifier",
                  (created, session), NewSession, True),
        Operation("sessions", "GET", "/sessions", sessions.list_sessions,
                  "List the sessions of this key", (Answer(200, SessionList),)),
        Operation("sessions", "GET", _SESSION, sessions.get_session, "Get a session", (session,)),
        Operation("sessions", "DELETE", _SESSION, sessions.delete_session,
                  "End a session and delete its files", (Answer(204, None, "Deleted"),)),
        Operation("sessions", "POST", f"{_SESSION}/restart", sessions.restart_session,
                  "Delete the variables of a session, and keep its files", (session,)),
        Operation("sessions", "POST", f"{_SESSION}/fork", sessions.fork_session,
                  "Create a session as a copy of another one", (created,), ForkRequest, True),
    ]  # fmt: skip


def _checkpoint_operations(sessions: SessionOperations) -> list[Operation]:
    path = f"{_SESSION}/checkpoints"
    return [
        Operation("checkpoints", "POST", path, sessions.create_checkpoint,
                  "Save the variables and files of a session",
                  (Answer(201, CheckpointInfo, "Created"),), NewCheckpoint, True),
        Operation("checkpoints", "GET", path, sessions.list_checkpoints,
                  "List the checkpoints of a session", (Answer(200, CheckpointList),)),
        Operation("checkpoints", "DELETE", f"{path}/{{name}}", sessions.delete_checkpoint,
                  "Delete a checkpoint", (Answer(204, None, "Deleted"),)),
        Operation("checkpoints", "POST", f"{_SESSION}/restore", sessions.restore_session,
                  "Go back to a checkpoint", (Answer(200, SessionInfo),), RestoreRequest),
    ]  # fmt: skip


def _file_operations(files: FileOperations) -> list[Operation]:
    entry = Answer(200, FileEntry)
    return [
        Operation("files", "GET", f"{_SESSION}/files", files.list_files,
                  "List the files of a session", (Answer(200, FileList),),
                  parameters=(_FOLDER, _RECURSIVE)),
        Operation("files", "PUT", _FILE, files.upload_file,
                  "Upload a file, whose content is the body", (entry,), BYTES, True),
        Operation("files", "GET", _FILE, files.download_file, "Download a file",
                  (Answer(200, BYTES, "The content, with the type that its name suggests"),
                   Answer(206, BYTES, "The range of bytes that the header Range names")),
                  parameters=(_RANGE,)),
        Operation("files", "DELETE", _FILE, files.delete_file, "Delete a file or folder",
                  (Answer(204, None, "Deleted"),)),
    ]  # fmt: skip


def _record_operations(records: RecordOperations) -> list[Operation]:
    return [
        Operation("records", "GET", "/audit", records.list_audit,
                  "List who did what, newest first: this key, or all for an administrator",
                  (Answer(200, AuditPage),), parameters=_AUDIT),
        Operation("records", "GET", "/usage", records.list_usage,
                  "List what was used by day: by this key, or by all for an administrator",
                  (Answer(200, UsageList),), parameters=(_USAGE_SINCE, _KEY)),
    ]  # fmt: skip
