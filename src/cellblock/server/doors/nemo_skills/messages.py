"""Requests and answers of `/execute`."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from ....results import CodeResult
from ...http.statuses import message_of, status_of

_CUT = "<output cut>"  # the protocol's own mark
_CELL = "File <ipython-"
_PROMPT = re.compile(r"^Out\[\d+\]:\s*")
_COLOURS = re.compile(r"[\x1b\ufffd]\[[0-?]*[ -/]*[@-~]")  # executors replace the escape character


class ExecuteRequest(BaseModel):
    """The body. `timeout` is in seconds. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    generated_code: str
    timeout: float = Field(default=10, gt=0, allow_inf_nan=False)
    language: Literal["ipython", "python", "python3", "pypy3", "lean4", "shell"] = "ipython"
    std_input: str = ""
    max_output_characters: int = Field(default=1000, ge=0)
    traceback_verbosity: Literal["Plain", "Context", "Verbose", "Minimal"] = "Plain"


def answer(
    result: CodeResult, body: ExecuteRequest, *, is_new: bool | None = None
) -> dict[str, Any]:
    """Return the answer for a run. `is_new` tells whether its session began with it."""
    stdout, stderr = result.stdout, result.stderr
    if result.outcome == "timeout":  # earlier output is not part of the protocol
        stdout, stderr = "", f"Execution timed out after {body.timeout:g} seconds\n"
    if body.language == "ipython" and body.traceback_verbosity in ("Plain", "Minimal"):
        stdout, stderr = _plain(stdout), _plain(stderr)
    if result.notice:
        stderr += f"{result.notice}\n"
    values: dict[str, Any] = {
        "process_status": _status(result, body),
        "stdout": _cut(stdout, body.max_output_characters),
        "stderr": _cut(stderr, body.max_output_characters),
    }
    return values if is_new is None else {**values, "new_session_created": is_new}


def _status(result: CodeResult, body: ExecuteRequest) -> str:
    if result.outcome == "timeout":
        return "timeout"
    # Of a program, the protocol does not report the exit code.
    is_program = body.language.startswith("py") and result.outcome == "error"
    return "completed" if result.exit_code == 0 or is_program else "error"


def _plain(text: str) -> str:
    """Return the text that a model reads of the output of a cell.

    No prompts, colours and names of cells, no blank lines around it, and one newline at its end.
    """
    lines = _COLOURS.sub("", text).split("\n")
    shown = [_PROMPT.sub("", line) for line in lines if not line.lstrip().startswith(_CELL)]
    output = "\n".join(shown).lstrip("\n").rstrip()
    return f"{output}\n" if output else ""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + _CUT


def error_answer(error: Exception) -> JSONResponse:
    """Return an error in the form of a run, because clients do not look at the status."""
    status, message = status_of(error), message_of(error)
    values = {
        "error": message,
        "process_status": "error",
        "stdout": "",
        "stderr": f"{message}\n",
    }
    return JSONResponse(values, status.status, status.headers)
