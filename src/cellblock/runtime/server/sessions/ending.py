"""The report of how a block of a session ended."""

from __future__ import annotations

import time
from typing import Any

from .checkpoints import CheckpointSet
from .init_handle import SessionInitHandle
from .request import SessionRequest


def describe_ending(
    request: SessionRequest,
    init: SessionInitHandle,
    main_pid: int,
    checkpoints: CheckpointSet,
    limits: dict[str, Any],
) -> dict[str, Any]:
    """Return the fields of the frame `ENDED`, without those of a restored state."""
    status, cpu = request.wait_status()
    cpu = init.cpu_seconds(main_pid, checkpoints.pids(), cpu)
    run = request.run
    return {
        "status": status,
        "why": run.why
        or init.limit_that_ended(limits, cpu, status)
        or run.storage.limit_exceeded_at_end(),
        "wall": time.monotonic() - run.started,
        "cpu": cpu,
        "peak": init.peak_bytes(),
        "queued": run.queued,
        "error": request.error(),
        "obstacles": checkpoints.obstacles,
        "failure": checkpoints.failure,
        "unsaved": checkpoints.failure_to_report(),
        "by_value": request.answer and request.answer.get("by_value"),
    }
