"""The two dialects of Azure dynamic sessions: requests and answers as values. Pure: no I/O.

Nothing in an answer is trusted to have a shape: `InvalidAnswer` is raised for one that has another.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import quote

FILES_FOLDER = "/mnt/data"
# Which dialect an API version belongs to: the first of those with the second dialect.
_FIRST_RESOURCE_VERSION = "2024-10-02-preview"
_FIRST_VERSION_THAT_CUTS_OUTPUT = "2025-10-02-preview"
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?")
_MAX_OUTPUT_CHARACTERS = 1_000_000

Status = Literal["succeeded", "failed", "canceled", "running"]


class InvalidAnswer(Exception):
    """An answer does not have the shape of the dialect."""


@dataclass(frozen=True)
class Execution:
    """What the service reports about one run.

    result         value of the last expression: a JSON value as the dialects define it
    wall_seconds   time that the code ran; 0 if the service does not say
    id             names a run whose status is "running"
    exit_code      exit code of a child process that the run was about; None if it was about none
    """

    status: Status
    stdout: str = ""
    stderr: str = ""
    result: object = None
    wall_seconds: float = 0.0
    id: str = ""
    exit_code: int | None = None


@dataclass(frozen=True)
class RemoteFile:
    """A file of a session.

    name       its path in the folder of the session
    modified   the service's own text for the time of its last change
    """

    name: str
    size_bytes: int
    modified: str


class Dialect(ABC):
    """One dialect, in the API version `version`."""

    execute_path: str
    upload_path: str

    def __init__(self, version: str) -> None:
        self.version = version

    @abstractmethod
    def execute_body(self, code: str, seconds: int | None) -> dict[str, object]:
        """Return the JSON body that runs `code` for at most `seconds`."""

    @abstractmethod
    def parse_execution(self, answer: object) -> Execution:
        """Return what the answer to an execution says."""

    @abstractmethod
    def content_path(self, name: str) -> tuple[str, dict[str, str]]:
        """Return the path of a file's content, and further query parameters."""

    @abstractmethod
    def parse_files(self, answer: object) -> tuple[list[RemoteFile], str]:
        """Return the files of a list, and the URL of its next page; "" if it is the last."""

    @abstractmethod
    def upload_name(self, name: str) -> tuple[str, dict[str, str]]:
        """Return the name of a file in its upload, and further query parameters."""

    @abstractmethod
    def parse_upload(self, answer: object, name: str) -> str:
        """Return the path under which the service saved the file `name`."""

    def list_query(self) -> dict[str, str]:
        """Return the query parameters that ask for the files in all folders."""
        return {}


class PropertiesDialect(Dialect):
    """The dialect until 2024-08-02-preview, which the published clients speak."""

    execute_path, upload_path = "code/execute", "files/upload"

    def execute_body(self, code: str, seconds: int | None) -> dict[str, object]:
        body: dict[str, object] = {
            "codeInputType": "inline",
            "executionType": "synchronous",
            "code": code,
        }
        if seconds is not None:
            body["timeoutInSeconds"] = seconds
        return {"properties": body}

    def parse_execution(self, answer: object) -> Execution:
        values = _mapping(_mapping(answer).get("properties"))
        return _execution(values, values, values.get("result"))

    def content_path(self, name: str) -> tuple[str, dict[str, str]]:
        return f"files/content/{quote(name)}", {}

    def parse_files(self, answer: object) -> tuple[list[RemoteFile], str]:
        entries = [_mapping(_mapping(item).get("properties")) for item in _values(answer)]
        return [_file(entry, "filename", "size", "lastModifiedTime") for entry in entries], ""

    def upload_name(self, name: str) -> tuple[str, dict[str, str]]:
        return name, {}

    def parse_upload(self, answer: object, name: str) -> str:
        files, _ = self.parse_files(answer)
        if len(files) != 1:
            raise InvalidAnswer(f"{len(files)} files after the upload of one")
        return files[0].name


class ResourceDialect(Dialect):
    """The dialect since 2024-10-02-preview."""

    execute_path, upload_path = "executions", "files"

    def execute_body(self, code: str, seconds: int | None) -> dict[str, object]:
        body: dict[str, object] = {
            "codeInputType": "Inline",
            "executionType": "Synchronous",
            "code": code,
        }
        if seconds is not None:
            body["timeoutInSeconds"] = seconds
        if self.version >= _FIRST_VERSION_THAT_CUTS_OUTPUT:
            body["outputStreamsMaxLength"] = _MAX_OUTPUT_CHARACTERS
        return body

    def parse_execution(self, answer: object) -> Execution:
        values = _mapping(answer)
        result = values.get("result")
        details: Mapping[str, Any] = {} if result is None else _mapping(result)
        return _execution(values, details, details.get("executionResult"))

    def content_path(self, name: str) -> tuple[str, dict[str, str]]:
        folder, _, last = name.rpartition("/")
        return f"files/{quote(last, safe='')}/content", {"path": folder} if folder else {}

    def parse_files(self, answer: object) -> tuple[list[RemoteFile], str]:
        entries = [_mapping(item) for item in _values(answer)]
        files = [
            _file(entry, "name", "sizeInBytes", "lastModifiedAt")
            for entry in entries
            if entry.get("type") != "directory"
        ]
        return files, _text(_mapping(answer).get("nextLink"))

    def upload_name(self, name: str) -> tuple[str, dict[str, str]]:
        folder, _, last = name.rpartition("/")
        return last, {"path": folder} if folder else {}

    def parse_upload(self, answer: object, name: str) -> str:
        entry = _mapping(answer)
        if "directory" not in entry:  # before 2025-10-02-preview
            entry = {**entry, "directory": name.rpartition("/")[0]}
        return _file(entry, "name", "sizeInBytes", "lastModifiedAt").name

    def list_query(self) -> dict[str, str]:
        return {"recursive": "true"}


def dialect_for(version: str) -> Dialect:
    """Return the dialect of an API version. Raise `ValueError` if it is not one."""
    if not isinstance(version, str) or not _VERSION.fullmatch(version):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ValueError(f"api_version must be like '2025-02-02-preview', not {version!r:.100}.")
    kind = PropertiesDialect if version < _FIRST_RESOURCE_VERSION else ResourceDialect
    return kind(version)


def _execution(values: Mapping[str, Any], details: Mapping[str, Any], result: object) -> Execution:
    milliseconds = details.get("executionTimeInMilliseconds")
    return Execution(
        _status(values.get("status")),
        _text(details.get("stdout")),
        _text(details.get("stderr")),
        result,
        milliseconds / 1000 if isinstance(milliseconds, int | float) else 0.0,
        _text(values.get("id")),
    )


def _status(value: object) -> Status:
    text = _text(value).lower()
    if text in ("success", "succeeded", "0"):
        return "succeeded"
    if text in ("failure", "failed", "timedout", "timeout"):
        return "failed"
    if text in ("canceled", "cancelled"):
        return "canceled"
    if text in ("notstarted", "running"):
        return "running"
    raise InvalidAnswer(f"the status {value!r:.100}")


def _file(entry: Mapping[str, Any], name: str, size: str, modified: str) -> RemoteFile:
    folder = _text(entry.get("directory")).strip("/").removeprefix(FILES_FOLDER[1:]).strip("/")
    last, size_bytes = entry.get(name), entry.get(size)
    if not isinstance(last, str) or not last:
        raise InvalidAnswer(f"a file without {name}")
    return RemoteFile(
        f"{folder}/{last}" if folder else last.removeprefix(f"{FILES_FOLDER}/"),
        size_bytes if isinstance(size_bytes, int) else 0,
        _text(entry.get(modified)),
    )


def _values(answer: object) -> list[object]:
    values = _mapping(answer).get("value")
    if not isinstance(values, list):
        raise InvalidAnswer("no list of files")
    return cast("list[object]", values)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidAnswer(f"{value!r:.100} instead of an object")
    return cast("Mapping[str, Any]", value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
