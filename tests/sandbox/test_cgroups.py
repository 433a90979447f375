"""The control groups that are planned for cells."""

from __future__ import annotations

from cellblock.sandbox.cgroups import CgroupSupport, plan_cgroups


def test_running_out_of_memory_ends_no_whole_group() -> None:
    support = CgroupSupport(2, memory="/x", processes="/x", processors="/x", cpu_time="/x")
    plan = plan_cgroups(support, memory_bytes=1 << 28, processes=None)
    assert plan is not None
    # With memory.oom.group the checkpoints of a session would be killed with its process.
    assert plan.settings == ((0, "memory.max", str(1 << 28)), (0, "memory.swap.max", "0"))
