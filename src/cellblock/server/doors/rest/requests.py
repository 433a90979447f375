"""What clients send: the JSON bodies of requests, and how they are read."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from ....batch.programs import JudgeLimits, Program
from ....batch.source_program import check_language
from ....batch.tests import tests_from_dict
from ....box.output import MAX_OUTPUT_BYTES
from ...http.bodies import read_json
from ...refusals import InvalidRequest
from ...sessions.languages import RUNNABLE

ModelT = TypeVar("ModelT", bound=BaseModel)
_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._~:@-]{0,127}$"
_NAME_PATTERN = r"^[^/]{1,128}$"
_MAX_NAME = 128
_YEAR_SECONDS = 366 * 86_400
MAX_KEY_LENGTH = 255


def _check_id(value: str) -> str:
    if not re.fullmatch(_ID_PATTERN, value):
        raise PydanticCustomError(
            "identifier",
            "use 1 to 128 ASCII letters, digits and . _ ~ : @ -, beginning with a letter or digit",
        )
    return value


def _check_name(value: str) -> str:
    if value in (".", "..") or not re.fullmatch(_NAME_PATTERN, value):
        raise PydanticCustomError(
            "checkpoint_name", "use 1 to 128 printable characters without a slash, not '.' or '..'"
        )
    return value


_Identifier = Annotated[
    str, AfterValidator(_check_id), WithJsonSchema({"type": "string", "pattern": _ID_PATTERN})
]
_EndCommands = Annotated[
    bool, Field(description="End the commands of the session first, which are refused otherwise.")
]
_NewName = Annotated[
    str, AfterValidator(_check_name), WithJsonSchema({"type": "string", "pattern": _NAME_PATTERN})
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class RunRequest(_Body):
    """Code to run."""

    code: str
    language: str = Field(
        default="python",
        min_length=1,
        max_length=64,
        description="Python runs in the live interpreter of the session, as in a notebook. "
        "Other languages run as a fresh process in the same folder, if their program is installed. "
        f"Languages: {', '.join(RUNNABLE)}.",
    )
    timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Time limit. The server's own limit applies too.",
    )
    stream: bool = Field(
        default=False,
        description="Answer with the events of the run, as server-sent events. A client "
        "that loses the connection has 10 seconds to resume before the run is cancelled.",
    )
    background: bool = Field(
        default=False,
        description="Do not cancel the run when no client waits for it. Unless `stream` is true, "
        "the answer is the queued run.",
    )


class ProgramRequest(_Body):
    """A program to judge, with its tests, in the form of `cellblock batch`."""

    id: str = Field(default="", description="Its name, which the verdict repeats.")
    code: str
    language: str = Field(default="python", min_length=1, max_length=64)
    stdin: str = Field(default="", description="Its input. Cases of tests have their own.")
    files: dict[str, str] = Field(
        default_factory=dict, description="Files of its folder, by their relative names."
    )
    tests: dict[str, JsonValue] | None = Field(
        default=None,
        description="What it has to do: `{cases: [{stdin, stdout}], compare}`, "
        "`{code, entry_point}` or `{checker, cases}`. Default: end with exit code 0.",
    )
    cpu_seconds: float = Field(
        default=10, gt=0, allow_inf_nan=False, description="CPU time of one run of it."
    )
    wall_seconds: float = Field(
        default=60,
        ge=1,
        allow_inf_nan=False,
        description="Time limit of one run. All runs together have that of the server for one.",
    )

    def program(self) -> Program:
        """Return the program. Raise `InvalidRequest`."""
        try:
            program = Program(
                id=self.id,
                code=self.code,
                language=self.language,
                stdin=self.stdin,
                files=self.files,
                tests=None if self.tests is None else tests_from_dict(self.tests),
            )
            check_language(program)
            return program
        except ValueError as error:
            raise InvalidRequest(str(error)) from error

    @property
    def limits(self) -> JudgeLimits:
        """The limits of one run. That of memory is the server's."""
        return JudgeLimits(
            cpu_seconds=self.cpu_seconds, wall_seconds=self.wall_seconds, memory_bytes=None
        )


class CommandRequest(_Body):
    """A command to run beside the interpreter of a session."""

    command: str | list[str] = Field(
        description="A text for `sh`, or a program with its arguments as they are."
    )
    cwd: str | None = Field(
        default=None, description="Its folder. Default: the session's, where a relative one begins."
    )
    env: dict[str, str] = Field(default_factory=dict, description="Additional variables.")
    stdin: str | None = Field(default=None, description="Its input. Default: none.")
    timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Time limit. The server's own limit applies too.",
    )
    merge_stderr: bool = Field(
        default=False, description="Standard error goes to standard output, in order."
    )
    max_output_bytes: int = Field(
        default=MAX_OUTPUT_BYTES,
        gt=0,
        le=MAX_OUTPUT_BYTES,
        description="How much of each stream is kept. The command goes on beyond that.",
    )
    stream: bool = Field(
        default=False,
        description="Answer with the output as server-sent events. A client that loses the "
        "connection cannot resume: the command is killed.",
    )


class NewSession(_Body):
    """A session to create."""

    id: _Identifier | None = Field(default=None, description="Default: a new random identifier.")


class NewCheckpoint(_Body):
    """A checkpoint to create."""

    name: _NewName | None = Field(
        default=None,
        description="Printable characters without a slash. Default: the first free number.",
    )
    lifetime_seconds: float | None = Field(
        default=None,
        gt=0,
        le=_YEAR_SECONDS,
        allow_inf_nan=False,
        description="Delete the checkpoint after this time. Default: when its session ends.",
    )
    replace: bool = Field(
        default=False, description="Whether to replace a checkpoint that has this name already."
    )
    end_commands: _EndCommands = False


class RestoreRequest(_Body):
    """The checkpoint to go back to."""

    checkpoint: str = Field(min_length=1, max_length=_MAX_NAME)
    end_commands: _EndCommands = False


class ForkRequest(_Body):
    """The session to create as a copy."""

    id: _Identifier | None = Field(default=None, description="Default: a new random identifier.")
    checkpoint: str | None = Field(
        default=None,
        min_length=1,
        max_length=_MAX_NAME,
        description="Copy this checkpoint. Default: the present state.",
    )
    end_commands: _EndCommands = False


def read_idempotency_key(request: Request) -> str | None:
    """Return the key under which a client may send the request again. Raise `InvalidRequest`."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidRequest(f"The header Idempotency-Key has 1 to {MAX_KEY_LENGTH} characters.")
    return key


async def read_optional(request: Request, model: type[ModelT], max_bytes: int) -> ModelT:
    """Return the JSON body, or the defaults if there is none. Raises as `read_json` does."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return model()
    return await read_json(request, model, max_bytes)
