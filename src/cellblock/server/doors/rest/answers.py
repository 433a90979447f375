"""What the server answers: the JSON of sessions, runs, checkpoints, files and errors."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from ....batch.verdicts import Outcome as JudgeOutcome
from ....batch.verdicts import Verdict
from ....box.results import CommandResult
from ....events import Outcome, Usage
from ....executors.session.checkpoint import Checkpoint
from ....results import CodeResult
from ...http.statuses import message_of, status_of
from ...sessions.files import FileInfo
from ...sessions.session import HostedSession
from ...state.records import OtherSession

RunStatus = Literal["queued", "running", "ended", "failed"]


class ErrorDetail(BaseModel):
    """What failed. Programs compare `code`; `message` is for people."""

    code: str
    message: str

    @classmethod
    def of(cls, error: Exception) -> ErrorDetail:
        """Return what a client is told about `error`."""
        return cls(code=status_of(error).code, message=message_of(error))


class ErrorAnswer(BaseModel):
    """The body of every answer whose status is 400 or above."""

    error: ErrorDetail


class RunUsage(BaseModel):
    """What a run used."""

    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int

    @classmethod
    def of(cls, usage: Usage) -> RunUsage:
        """Return the JSON of `usage`."""
        return cls(
            wall_seconds=usage.wall_seconds,
            cpu_seconds=usage.cpu_seconds,
            peak_memory_bytes=usage.peak_memory_bytes,
        )


class RunResult(BaseModel):
    """What a run did."""

    exit_code: int = Field(
        description="The exit code of the program: 128+N if signal N ended it, 124 after a time "
        "limit, 125 after it was cancelled, 137 if memory ran out."
    )
    outcome: Outcome
    limit: str | None = Field(description="The limit that ended the run.")
    output: str = Field(description="Standard output and error, in the order of writing.")
    stdout: str
    stderr: str
    truncated: bool = Field(description="Whether output over the limit was left out.")
    displays: list[dict[str, Any]] = Field(
        description="MIME bundles: what the code displayed, and the value of the last expression."
    )
    files: list[str] = Field(description="Files that the run created or changed.")
    usage: RunUsage
    session_restored: bool = Field(
        description="Whether the run ended the interpreter, and the variables were restored to "
        "their values before the run."
    )
    notice: str = Field(
        description="What happened to the session, if it had to be restored; or that it cannot be "
        "at present."
    )
    lost_blocks: int = Field(
        description="How many earlier runs have lost their variables, because the session could "
        "only be restored to an older state."
    )

    @classmethod
    def of(cls, result: CodeResult) -> RunResult:
        """Return the JSON of `result`."""
        return cls(
            exit_code=result.exit_code,
            outcome=result.outcome,
            limit=result.limit,
            output=result.output,
            stdout=result.stdout,
            stderr=result.stderr,
            truncated=result.truncated,
            displays=[dict(bundle) for bundle in result.displays],
            files=result.files,
            usage=RunUsage.of(result.usage),
            session_restored=result.session_restored,
            notice=result.notice,
            lost_blocks=result.lost_blocks,
        )


class RunInfo(BaseModel):
    """A run. It can be requested for 5 minutes after its end."""

    id: str
    session_id: str | None = Field(description="null for a run in a fresh process.")
    status: RunStatus = Field(description="`failed` means that the server could not run the code.")
    language: str
    created_at: datetime
    queue_seconds: float = Field(description="Time between the request and the start.")
    result: RunResult | None = Field(description="What the code did, if the run has ended.")
    error: ErrorDetail | None = Field(description="Why the run failed, if it did.")


class RunList(BaseModel):
    """The runs of a session that were started here, oldest first."""

    runs: list[RunInfo]


class VerdictCase(BaseModel):
    """What became of one case: what the program printed, and what differs."""

    outcome: JudgeOutcome
    output: str
    message: str


class VerdictInfo(BaseModel):
    """What became of a program."""

    id: str
    passed: bool
    outcome: JudgeOutcome = Field(
        description="`passed`; `failed`: a test says no, or another exit code than 0 without tests;"
        " `error`: it raised in a test, or did not start; `timeout`; `limit`: another limit; "
        "`not_judged`: the server lacks what its language needs."
    )
    exit_code: int | None = Field(description="That of its last run; null if it did not run.")
    output: str = Field(description="What its last run printed.")
    message: str = Field(description="Why it did not pass.")
    limit: str | None = Field(description="The limit that ended it.")
    cases: list[VerdictCase] = Field(description="One for each case that ran.")
    usage: RunUsage

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictInfo:
        """Return the JSON of `verdict`."""
        return cls(
            id=verdict.id,
            passed=verdict.passed,
            outcome=verdict.outcome,
            exit_code=verdict.exit_code,
            output=verdict.output,
            message=verdict.message,
            limit=verdict.limit,
            cases=[VerdictCase.model_validate(asdict(case)) for case in verdict.cases],
            usage=RunUsage(
                wall_seconds=verdict.wall_seconds,
                cpu_seconds=verdict.cpu_seconds,
                peak_memory_bytes=verdict.peak_memory_bytes,
            ),
        )


class CommandEnding(BaseModel):
    """How a command ended."""

    exit_code: int = Field(
        description="Its exit code: 128+N if signal N ended it, 127 if there is no such program, "
        "124 at its time limit."
    )
    timed_out: bool = Field(description="Its time limit has ended it.")
    truncated: bool = Field(description="It wrote more than `max_output_bytes` to a stream.")
    usage: RunUsage

    @classmethod
    def of(cls, result: CommandResult) -> CommandEnding:
        """Return the JSON of how `result` ended."""
        return cls(
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            truncated=result.truncated,
            usage=RunUsage.of(result.usage),
        )


class CommandInfo(CommandEnding):
    """What a command did. Bytes that are not UTF-8 are replaced by U+FFFD."""

    stdout: str
    stderr: str

    @classmethod
    def of(cls, result: CommandResult) -> CommandInfo:
        """Return the JSON of `result`."""
        ending = CommandEnding.of(result).model_dump()
        return cls(**ending, stdout=result.stdout_text, stderr=result.stderr_text)


class CheckpointInfo(BaseModel):
    """A checkpoint: a frozen copy of the variables and files of a session."""

    name: str
    created_at: datetime
    expires_at: datetime | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> CheckpointInfo:
        """Return the JSON of `checkpoint`."""
        expires_at = checkpoint.expires_at
        return cls(
            name=checkpoint.name,
            created_at=to_time(checkpoint.created_at),
            expires_at=None if expires_at is None else to_time(expires_at),
        )


class CheckpointList(BaseModel):
    """The checkpoints of a session, oldest first."""

    checkpoints: list[CheckpointInfo]


class SessionInfo(BaseModel):
    """A session: a live interpreter and a folder."""

    id: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime = Field(description="When the session ends if it is not used.")
    server: str | None = Field(
        default=None,
        description="The name of the server that has the session, if it is another one. Send "
        "requests for the session there.",
    )
    node: str | None = Field(
        default=None, description="Ray's ID of the node that runs the session, with --ray."
    )

    @classmethod
    def of(cls, session: HostedSession, expires_at: float) -> SessionInfo:
        """Return the JSON of `session`."""
        return cls(
            id=session.identifier,
            created_at=to_time(session.created_at),
            last_used_at=to_time(session.last_used_at),
            expires_at=to_time(expires_at),
            node=session.node_id,
        )

    @classmethod
    def of_remote(cls, session: OtherSession) -> SessionInfo:
        """Return the JSON of a session of another server."""
        return cls(
            id=session.identifier,
            created_at=to_time(session.created_at),
            last_used_at=to_time(session.used_at),
            expires_at=to_time(session.expires_at),
            server=session.server,
        )


class SessionList(BaseModel):
    """The sessions of a key, oldest first; after them those of other servers of its database."""

    sessions: list[SessionInfo]


class FileEntry(BaseModel):
    """A file or folder of a session."""

    path: str = Field(
        description="Relative to the session's folder, /mnt/data. Bytes that are not UTF-8 are "
        "replaced by U+FFFD."
    )
    url_path: str = Field(description="The path percent-encoded, as requests for the file need it.")
    type: Literal["file", "folder"]
    size_bytes: int
    modified_at: datetime
    content_type: str | None

    @classmethod
    def of(cls, file: FileInfo) -> FileEntry:
        """Return the JSON of `file`."""
        return cls(
            path=file.path,
            url_path=file.url_path,
            type="folder" if file.is_folder else "file",
            size_bytes=file.size_bytes,
            modified_at=to_time(file.modified),
            content_type=None if file.is_folder else file.content_type,
        )


class FileList(BaseModel):
    """The files and folders of a folder, sorted by path. At most 10 000."""

    files: list[FileEntry]


def to_time(seconds: float) -> datetime:
    """Return the time that is so many seconds after 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def answer(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with `model` as JSON."""
    return Response(model.model_dump_json(), status, headers, "application/json")
