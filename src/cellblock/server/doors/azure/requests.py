"""What clients send: the checked fields of queries and bodies in both dialects."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from ...refusals import InvalidRequest

_IDENTIFIER = re.compile(r"""[a-zA-Z0-9_|}{\[\]:"';<>?/.,@#$%^&*()\-+=!~`]{4,128}""")
_API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")
_FIRST_NEW_VERSION = "2024-10-02"


@dataclass(frozen=True)
class Query:
    """The session and the dialect that a request names."""

    identifier: str
    api_version: str

    @property
    def is_new_dialect(self) -> bool:
        """Whether the version has the answers without `properties`."""
        return self.api_version[:10] >= _FIRST_NEW_VERSION


def read_api_version(request: Request) -> str:
    """Return the API version. Raise `InvalidRequest` if it is missing or malformed."""
    version = request.query_params.get("api-version", "")
    if not _API_VERSION.fullmatch(version):
        raise InvalidRequest(
            "The query needs 'api-version', such as api-version=2024-02-02-preview."
        )
    return version


def read_query(request: Request) -> Query:
    """Return the query. Raise `InvalidRequest` if a part is missing or malformed."""
    version = read_api_version(request)
    identifier = request.query_params.get("identifier", "")
    if not _IDENTIFIER.fullmatch(identifier):
        raise InvalidRequest(
            "The query needs 'identifier' with 4 to 128 letters, digits and punctuation marks."
        )
    return Query(identifier, version)


class Code(BaseModel):
    """What to run, as both dialects name it. Fields of later versions are ignored."""

    model_config = ConfigDict(extra="ignore")

    code: str | None = Field(default=None, validation_alias="code")
    code_input_type: str = Field(default="inline", validation_alias="codeInputType")
    execution_type: str = Field(default="synchronous", validation_alias="executionType")
    timeout_seconds: float | None = Field(
        default=None, validation_alias="timeoutInSeconds", gt=0, allow_inf_nan=False
    )

    def source(self) -> str:
        """Return the code. Raise `InvalidRequest` if it is missing or cannot be decoded."""
        if self.code is None:
            raise InvalidRequest("The field 'code' is missing.")
        match self.code_input_type.lower():
            case "inline" | "inlinetext":
                return self.code
            case "inlinebase64":
                return _decode(self.code)
            case other:
                raise InvalidRequest(
                    f"codeInputType {other!r} is not supported. Use 'Inline' or 'InlineBase64'."
                )

    def is_asynchronous(self) -> bool:
        """Return whether the client asks for the result later. Raise `InvalidRequest`."""
        match self.execution_type.lower():
            case "synchronous":
                return False
            case "asynchronous":
                return True
            case other:
                raise InvalidRequest(
                    f"executionType {other!r} is not supported. Use 'Synchronous' or "
                    "'Asynchronous'."
                )


class OldBody(BaseModel):
    """The body of `code/execute`: `properties` around the code."""

    properties: Code


class NewBody(Code):
    """The body of `executions`: code, or a shell command."""

    shell_command: str | None = Field(default=None, validation_alias="shellCommand")
    command: list[str] | None = Field(
        default=None, validation_alias="execCommandAndArgs", min_length=1
    )
    stdin: str = ""
    use_empty_kernel: bool = Field(default=False, validation_alias="useEmptyKernel")
    max_output: int | None = Field(default=None, validation_alias="outputStreamsMaxLength", ge=0)

    @property
    def kind(self) -> Literal["code", "shell"]:
        """Whether the body has code or a shell command."""
        return "code" if self.shell_command is None and self.command is None else "shell"


def _decode(code: str) -> str:
    try:
        return base64.b64decode(code, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise InvalidRequest("The field 'code' is not base64 of UTF-8 text.") from error
