"""What the tool `run_code` returns: text and pictures for a model, and the same as data."""

from __future__ import annotations

import base64
import mimetypes

from mcp.types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent
from pydantic import BaseModel, Field

from ....events import Outcome
from ....observation import MAX_CHARACTERS, observe, shorten
from ....results import CodeResult
from .uris import file_uri

_MAX_LINKS = 20


class RunUsage(BaseModel):
    """What a run used."""

    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    queue_seconds: float = Field(description="Time that the run waited for its turn.")


class RunOutput(BaseModel):
    """The structured output of `run_code`."""

    session_id: str
    is_new_session: bool = Field(description="This call created the session.")
    exit_code: int = Field(description="0 if the code succeeded.")
    outcome: Outcome
    limit: str | None = Field(description="The limit that ended the code.")
    stdout: str = Field(description="Standard output. Of long output, the middle is left out.")
    stderr: str = Field(description="Standard error. Of long output, the middle is left out.")
    truncated: bool = Field(description="A part of the output is left out.")
    files: list[str] = Field(description="The files that the code created or changed.")
    notice: str = Field(description="What happened to the session, if it had to be restored.")
    usage: RunUsage


def to_tool_result(
    result: CodeResult, session_id: str, *, is_new_session: bool, queue_seconds: float
) -> CallToolResult:
    """Return `result` as the answer to a tool call.

    A failing program is not an error of the tool: its exit code and output are data.
    """
    shown = observe(result)
    content: list[ContentBlock] = [TextContent(type="text", text=shown.text)]
    content += [
        ImageContent(
            type="image",
            data=base64.b64encode(picture.data).decode(),
            mime_type=picture.mime_type,
        )
        for picture in shown.pictures
    ]
    content += [_link(session_id, path) for path in result.files[:_MAX_LINKS]]
    output = RunOutput(
        session_id=session_id,
        is_new_session=is_new_session,
        exit_code=result.exit_code,
        outcome=result.outcome,
        limit=result.limit,
        stdout=shorten(result.stdout, MAX_CHARACTERS),
        stderr=shorten(result.stderr, MAX_CHARACTERS),
        truncated=result.truncated or _is_long(result.stdout) or _is_long(result.stderr),
        files=list(result.files),
        notice=result.notice,
        usage=RunUsage(
            wall_seconds=result.usage.wall_seconds,
            cpu_seconds=result.usage.cpu_seconds,
            peak_memory_bytes=result.usage.peak_memory_bytes,
            queue_seconds=queue_seconds,
        ),
    )
    return CallToolResult(content=content, structured_content=output.model_dump(mode="json"))


def _is_long(text: str) -> bool:
    return len(text) > MAX_CHARACTERS


def _link(session_id: str, path: str) -> ResourceLink:
    return ResourceLink(
        type="resource_link",
        uri=file_uri(session_id, path),
        name=path,
        mime_type=mimetypes.guess_type(path)[0] or "application/octet-stream",
    )
