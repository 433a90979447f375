"""Interrupt what a session works on, and give its calls of native code time to return."""

from __future__ import annotations

import signal
import time

from ...linux import process_tree
from .channel import Channel
from .orphans import SessionOrphans
from .request import SessionRequest


def press_stopped(request: SessionRequest, main: Channel | None, orphans: SessionOrphans) -> None:
    """Interrupt a request that has to end, and in time kill the processes that it may wait for.

    Call it again and again: `main`, the session's process, drops an interrupt before the request
    has begun, and while it waits in `os.system`. It is None while none is ready. Do nothing if the
    request need not end.
    """
    if main is None or request.exited_at or orphans.is_stopping:
        return
    if request.must_interrupt:
        main.signal(signal.SIGCONT)
        if process_tree.handles_signal(main.pid, signal.SIGINT):
            request.must_interrupt = False
            main.signal(signal.SIGINT)
    if time.monotonic() >= request.kill_others_at:
        were_killed = orphans.kill(main.pid)
        # At a limit, it may be cleaning up since the first interrupt, unless it starts others.
        if were_killed and (request.run.why == "cancelled" or request.others_have_ended):
            request.must_interrupt = True
        request.others_have_ended = request.others_have_ended or not were_killed
