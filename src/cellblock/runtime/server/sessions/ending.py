"""The report of how a block of a session ended."""

from __future__ import annotations

import time

from ...messages import Ending
from ...spec import CellLimits
from .checkpoints import CheckpointSet
from .init_handle import SessionInitHandle
from .request import SessionRequest
from .restored_state import RestoredState


def describe_ending(
    request: SessionRequest,
    init: SessionInitHandle,
    checkpoints: CheckpointSet,
    limits: CellLimits,
    restored: RestoredState,
) -> Ending:
    """Return how the block of `request` ended."""
    status, cpu = request.wait_status()
    cpu = init.cpu_seconds(init.main_pid, checkpoints.pids(), cpu)
    run = request.run
    why = run.why or init.limit_that_ended(limits, cpu, status)
    return Ending(
        status,
        why or run.storage.limit_exceeded_at_end(),
        time.monotonic() - run.started,
        cpu,
        init.peak_bytes(),
        run.queued,
        error=request.error(),
        obstacles=checkpoints.obstacles,
        failure=checkpoints.failure,
        unsaved=checkpoints.failure_to_report(),
        by_value=request.answer and request.answer.by_value,
        session=restored.state,
        lost=restored.lost_blocks,
        lost_variables=tuple(restored.lost_variables),
    )
