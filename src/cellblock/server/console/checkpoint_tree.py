"""CheckpointTree: the checkpoints of a session under those that they have come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...executors.session.checkpoint import Checkpoint
from ..doors.rest.answers import CheckpointInfo
from ..sessions.lineage import Lineage


@dataclass
class CheckpointNode:
    """A checkpoint, or the start of the session, which has no `checkpoint`.

    forks        identifiers of the sessions that were forked from it
    is_current   whether it was made or restored last
    """

    checkpoint: CheckpointInfo | None
    is_current: bool = False
    forks: list[str] = field(default_factory=list[str])
    children: list[CheckpointNode] = field(default_factory=list["CheckpointNode"])


def checkpoint_tree(
    lineage: Lineage, checkpoints: Sequence[Checkpoint], existing: set[str]
) -> CheckpointNode:
    """Return the start of a session, with its checkpoints below, oldest first.

    Of the forks, those are named whose sessions are `existing`.
    """
    nodes = {each.name: CheckpointNode(CheckpointInfo.of(each)) for each in checkpoints}
    start, known = CheckpointNode(None), set(nodes)

    def node(name: str | None) -> CheckpointNode:
        return start if name is None else nodes[name]

    for name, each in nodes.items():
        node(lineage.parent_of(name, known)).children.append(each)
    node(lineage.nearest(lineage.current, known)).is_current = True
    for fork in lineage.forks:
        if fork.session_id in existing:
            node(lineage.nearest(fork.checkpoint, known)).forks.append(fork.session_id)
    return start
