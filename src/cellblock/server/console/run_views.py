"""RunView: what a page shows of one run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from ...results import CodeResult
from ..doors.rest.answers import to_time
from ..doors.rest.live_run import LiveRun
from ..sessions.session import SessionRun
from .pages import format_size
from .shown_output import ShownPart, show_events, show_result


@dataclass(frozen=True)
class RunView:
    """One run. `position` is the number of the last event among the parts.

    code          None for a run that another door has started, or that ended long ago
    is_followed   whether its output can be followed while it runs
    """

    id: str
    session_id: str | None
    language: str
    code: str | None
    created_at: datetime | None
    status: str
    summary: str
    is_done: bool
    is_followed: bool
    parts: list[ShownPart]
    position: int

    @property
    def short_id(self) -> str:
        """The beginning of the ID, which is enough for people."""
        return self.id[:8]


async def view_run(live: LiveRun) -> RunView:
    """Return what a page shows of a run. Long displays are cleaned in another thread."""
    events, is_done = list(live.events), live.is_done
    status, summary = describe(live)
    return RunView(
        id=live.run.id,
        session_id=live.settings.session_id,
        language=live.settings.block.language,
        code=live.settings.block.code,
        created_at=to_time(live.created_at),
        status=status,
        summary=summary,
        is_done=is_done,
        is_followed=not is_done,
        parts=await asyncio.to_thread(show_events, events),
        position=len(events),
    )


async def view_other_run(session_id: str, run: SessionRun) -> RunView:
    """Return what a page shows of a run of which only the result is kept."""
    result, (status, summary) = run.result, describe_other(run)
    return RunView(
        id=run.id,
        session_id=session_id,
        language=run.language,
        code=None,
        created_at=None,
        status=status,
        summary=summary,
        is_done=run.is_over,
        is_followed=False,
        parts=[] if result is None else await asyncio.to_thread(show_result, result),
        position=0,
    )


def describe(live: LiveRun) -> tuple[str, str]:
    """Return the state of a run in one word, and what it has used."""
    result = live.run.result
    if result is None or not live.is_done:
        return live.info().status, ""
    return _describe_result(result)


def describe_other(run: SessionRun) -> tuple[str, str]:
    """Return the same of a run of which only the result is kept."""
    if run.result is not None and run.is_over:
        return _describe_result(run.result)
    if run.failure:
        return "failed", ""
    if run.is_over:  # its client went away
        return "ended", ""
    return "running" if run.is_started else "queued", ""


def _describe_result(result: CodeResult) -> tuple[str, str]:
    usage = result.usage
    parts = [
        f"exit code {result.exit_code}",
        f"{usage.wall_seconds:.2f} s",
        f"{usage.cpu_seconds:.2f} s of CPU",
        f"{format_size(usage.peak_memory_bytes)} of memory",
    ]
    if result.limit is not None:
        parts.insert(0, f"limit {result.limit}")
    return result.outcome.replace("_", " "), ", ".join(parts)
