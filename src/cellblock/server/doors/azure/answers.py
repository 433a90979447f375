"""What the service answers, in both dialects. Pure functions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from .... import __version__
from ....results import CodeResult
from ...sessions.files import FileInfo
from ...sessions.session import HostedSession, SessionRun
from .requests import Query
from .values import answer_of


def iso_time(seconds: float) -> str:
    """Return a time since 1970 as the service writes it, such as 2024-05-02T07:21:07.990000Z."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def milliseconds(result: CodeResult) -> int:
    """Return the run time of a result."""
    return round(result.usage.wall_seconds * 1000)


# the old dialect


def old_run(result: CodeResult) -> dict[str, Any]:
    """Return the answer of `code/execute`."""
    answer = answer_of(result)
    return {
        "$id": "1",
        "properties": {
            "$id": "2",
            "status": "Success" if result.exit_code == 0 else "Failure",
            "stdout": answer.stdout,
            "stderr": answer.stderr,
            "result": answer.value,
            "executionTimeInMilliseconds": milliseconds(result),
        },
    }


def old_files(files: Sequence[FileInfo]) -> dict[str, Any]:
    """Return the answer of the old list of files: their paths, without the folders themselves."""
    numbers = itertools.count(2)
    return {
        "$id": "1",
        "value": [
            {
                "$id": str(next(numbers)),
                "properties": {
                    "$id": str(next(numbers)),
                    "filename": file.path,
                    "size": file.size_bytes,
                    "lastModifiedTime": iso_time(file.modified),
                },
            }
            for file in files
            if not file.is_folder
        ],
    }


# the new dialect


def new_run(
    query: Query, run: SessionRun, *, is_shell: bool, max_output: int | None
) -> dict[str, Any]:
    """Return the resource of a run."""
    answer: dict[str, Any] = {
        "id": run.id,
        "identifier": query.identifier,
        "executionType": "Asynchronous" if run.is_asynchronous else "Synchronous",
        "status": _status(run, is_shell=is_shell),
    }
    result = run.result
    if result is not None:
        shown = answer_of(result, is_shell=is_shell)
        answer["result"] = {
            "stdout": shown.stdout[:max_output],
            "stderr": shown.stderr[:max_output],
            "executionResult": shown.value,
            "executionTimeInMilliseconds": milliseconds(result),
        }
        if result.outcome not in ("ok", "error"):
            answer["error"] = {"code": result.outcome, "message": shown.stderr[-1000:].strip()}
    elif run.failure:
        answer["error"] = {"code": "ExecutionFailed", "message": run.failure}
    return answer


def _status(run: SessionRun, *, is_shell: bool) -> str:
    if run.result is not None:
        if is_shell:
            return str(run.result.exit_code)
        if run.result.outcome == "cancelled":
            return "Canceled"
        return "Succeeded" if run.result.exit_code == 0 else "Failed"
    if run.failure:
        return "Failed"
    return "Running" if run.is_started else "NotStarted"


def new_file(file: FileInfo) -> dict[str, Any]:
    """Return the resource of a file or folder."""
    return {
        "name": file.name,
        "type": "directory" if file.is_folder else "file",
        "contentType": None if file.is_folder else file.content_type,
        "sizeInBytes": file.size_bytes,
        "lastModifiedAt": iso_time(file.modified),
        "directory": f"/{file.path.rpartition('/')[0]}",
    }


def new_files(files: Sequence[FileInfo]) -> dict[str, Any]:
    """Return the answer of the new list of files."""
    return {"value": [new_file(file) for file in files], "nextLink": None}


def session_resource(session: HostedSession, expires_at: float) -> dict[str, Any]:
    """Return the resource of a session."""
    return {
        "identifier": session.identifier,
        "createdAt": iso_time(session.created_at),
        "lastAccessedAt": iso_time(session.last_used_at),
        "expireAt": iso_time(expires_at),
        "etag": session.id,
    }


def environment(listing: str, time: float) -> dict[str, Any]:
    """Return the answer of `metadata`, from JSON with `python` and `packages`."""
    found = json.loads(listing)
    return {
        "runtimes": [{"name": "Python", "version": found["python"]}],
        "preInstalledPackages": found["packages"],
        "createdAt": iso_time(time),
        "lastUpdatedAt": iso_time(time),
        "jupyterKernel": {
            "name": "cellblock",
            "version": __version__,
            "projectUrl": "",
            "description": "A live Python session in a sandbox",
        },
    }
