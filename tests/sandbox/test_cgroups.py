"""The control groups that are planned for cells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock.sandbox.cgroups import CgroupSupport, move_to_child, plan_cgroups


def test_running_out_of_memory_ends_no_whole_group() -> None:
    support = CgroupSupport(2, memory="/x", processes="/x", processors="/x", cpu_time="/x")
    plan = plan_cgroups(support, memory_bytes=1 << 28, processes=None)
    assert plan is not None
    # With memory.oom.group the checkpoints of a session would be killed with its process.
    assert plan.settings == ((0, "memory.max", str(1 << 28)), (0, "memory.swap.max", "0"))


def test_a_cell_has_one_share_of_the_processors_however_many_processes_it_has() -> None:
    """Otherwise a fork bomb whose processes leave their session starves what has to kill them."""
    support = CgroupSupport(2, memory="/x", processes="/x", processors="/x", cpu_time="/x")
    plan = plan_cgroups(support, memory_bytes=None, processes=None)
    assert plan is not None
    assert plan.controllers == "+memory +pids +cpu"
    assert plan.share == (0, "cpu.weight", str(100 * (os.cpu_count() or 1)))
    support = CgroupSupport(1, memory="/m", processes="/p", processors="/c", cpu_time="/t")
    plan = plan_cgroups(support, memory_bytes=None, processes=None)
    assert plan is not None
    assert plan.folders == ("/m", "/p", "/c", "/t")


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Return what a delegated group of version 2 looks like. The kernel's may be of version 1."""
    (tmp_path / "cgroup.controllers").write_text("cpuset memory pids\n")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    (tmp_path / "server").mkdir()
    return tmp_path


def test_a_process_leaves_its_group_so_that_children_can_have_limits(group: Path) -> None:
    move_to_child(str(group))
    assert (group / "server" / "cgroup.procs").read_text() == str(os.getpid())
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids"


@pytest.mark.parametrize(("file", "text"), [("procs", "1\n"), ("controllers", "cpu pids\n")])
def test_a_group_with_other_processes_or_without_limits_stays(
    group: Path, file: str, text: str
) -> None:
    (group / f"cgroup.{file}").write_text(text)
    move_to_child(str(group))
    assert (group / "cgroup.subtree_control").read_text() == "\n"
