"""Requests and answers of `/run_code`."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ....limits import MIB
from ....results import CodeResult
from ...refusals import InvalidRequest

Status = Literal["Success", "Failed", "SandboxError"]
_MIN_MEMORY_BYTES = 16 * MIB
_CLIENT_SECONDS = 8.0  # verl waits 10 s longer than its limits


class RunCodeRequest(BaseModel):
    """The body. Times are seconds, files map a path to base64."""

    model_config = ConfigDict(extra="ignore")

    code: str
    language: str
    compile_timeout: float = Field(default=10, gt=0, allow_inf_nan=False)
    run_timeout: float = Field(default=10, gt=0, allow_inf_nan=False)
    stdin: str | None = None
    memory_limit_mb: int = Field(default=-1, validation_alias="memory_limit_MB")
    files: dict[str, str | None] = Field(default_factory=dict[str, str | None])
    fetch_files: list[str] = Field(default_factory=list[str], max_length=100)

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit; None if there is none."""
        size = self.memory_limit_mb * MIB
        return max(size, _MIN_MEMORY_BYTES) if size > 0 else None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal only for requests that have the same answer."""
        limits = self.compile_timeout, self.run_timeout, self.memory_limit_mb
        files = *self.files.items(), *self.fetch_files
        return self.code, self.language, self.stdin, *limits, *files

    @property
    def answer_seconds(self) -> float:
        """How long the client waits for the answer at least."""
        return self.compile_timeout + self.run_timeout + _CLIENT_SECONDS

    def decoded_files(self) -> dict[str, bytes]:
        """Return the files. Raise `InvalidRequest` if one is not base64."""
        try:
            return {
                name: base64.b64decode(content, validate=True)
                for name, content in self.files.items()
                if content is not None
            }
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest("The contents in 'files' must be base64.") from error


def command_result(result: CodeResult, stdout: str, stderr: str) -> dict[str, Any]:
    """Return the answer for one command. A command that reached its time limit has no code."""
    is_late = result.outcome == "timeout"
    return {
        "status": "TimeLimitExceeded" if is_late else "Finished",
        "execution_time": result.usage.wall_seconds,
        "cpu_time": result.usage.cpu_seconds,
        "return_code": None if is_late else result.exit_code,
        "stdout": stdout,
        "stderr": stderr,
    }


def limits_reached(result: CodeResult) -> list[str]:
    """Describe the limits that ended a command or cut its output."""
    is_named = result.limit is not None and result.outcome != "timeout"
    notes = [f"The limit {result.limit} ended the program."] if is_named else []
    if result.truncated:
        notes.append("The middle of the output was left out, because it was too long.")
    return notes


def answer(
    status: Status,
    message: str = "",
    compiled: dict[str, Any] | None = None,
    ran: dict[str, Any] | None = None,
    files: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the whole answer."""
    return {
        "status": status,
        "message": message,
        "compile_result": compiled,
        "run_result": ran,
        "executor_pod_name": None,
        "files": files or {},
    }
