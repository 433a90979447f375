"""The requests that the manager of sessions has not answered yet."""

from __future__ import annotations

from ...messages import Answer, Ending, Failure
from ...session_orders import CloseSession, OpenSession
from ..cell import Job
from ..interfaces import FrameSender
from .request import SessionJob
from .session import LiveSession


class PendingRequests:
    """Requests without an answer, with the session that each depends on. Each is answered once."""

    def __init__(self, loop: FrameSender) -> None:
        self._loop = loop
        self._pending: dict[int, tuple[SessionJob[object], LiveSession | None]] = {}

    def __contains__(self, job: Job | SessionJob[object]) -> bool:
        return job.number in self._pending

    def add(self, job: SessionJob[object], session: LiveSession | None) -> None:
        """Add a request, or set the session that it depends on."""
        self._pending[job.number] = job, session

    def hand_over(self, job: Job | SessionJob[object]) -> None:
        """Forget a request that somebody else answers."""
        self._pending.pop(job.number, None)

    def answer(self, job: Job | SessionJob[object], answer: Answer | Ending | Failure) -> None:
        """Answer a request, unless that has been done."""
        if self._pending.pop(job.number, None) is not None:
            self._loop.send(answer.encode(job.number))
            self._loop.flush()

    def refuse(
        self, job: Job | SessionJob[object], why: str, *, lost: bool = False, full: bool = False
    ) -> None:
        """Answer a request that cannot be carried out. `lost`: its session is gone."""
        self.answer(job, Failure(why, lost=int(lost), full=int(full)))

    def refuse_all(self, session: LiveSession, why: str) -> None:
        """Refuse the requests that depend on `session`, which is being closed."""
        for job, owner in list(self._pending.values()):
            if owner is session and not isinstance(job.order, CloseSession):
                self.refuse(job, why, lost=not isinstance(job.order, OpenSession))
