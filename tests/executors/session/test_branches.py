"""Forks of live sessions: branches start from the complete state and are independent."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CheckpointError, Mount, Policy, SandboxSessionServer
from tests.executors.session.live_session import (
    LiveSession,
    forked,
    meet,
    open_session,
    run_async,
)
from tests.sandbox.probes import MARK

pytestmark = pytest.mark.depends_on_user

# branches

# The code that makes a change in one branch, and the code that prints `mark` if it is visible.
CHANGES = {
    "memory": ("x = 2", "x == 2 and print(mark)"),
    "memory of a list": ("shared.append(1)", "shared and print(mark)"),
    "a file": ("open('left', 'w').close()", "os.stat('left'); print(mark)"),
    "a changed file": (
        "open('before', 'w').write('changed')",
        "open('before').read() == 'changed' and print(mark)",
    ),
    "a file written in place": (
        "open('before', 'r+').write('altered')",
        "'altered' in open('before').read() and print(mark)",
    ),
    "a removed file": ("os.unlink('before')", "os.path.exists('before') or print(mark)"),
    "a file in /tmp": ("open('/tmp/left', 'w').close()", "os.stat('/tmp/left'); print(mark)"),
    "a changed file in /tmp": (
        "open('/tmp/before', 'w').write('c')",
        "open('/tmp/before').read() == 'c' and print(mark)",
    ),
    "a removed file in /tmp": (
        "os.unlink('/tmp/before')",
        "os.path.exists('/tmp/before') or print(mark)",
    ),
    "a file in /dev/shm": (
        "open('/dev/shm/left', 'w').close()",
        "os.stat('/dev/shm/left'); print(mark)",
    ),
    "a file at home": ("open(home, 'w').close()", "os.stat(home); print(mark)"),
    "an open file's position": ("handle.read(3)", "handle.tell() == 3 and print(mark)"),
    "a process": (
        "p = subprocess.Popen(['sleep', '4321'])",
        (
            "any('4321' in open(f).read() for f in "
            "glob.glob('/proc/[0-9]*/cmdline')) and print(mark)"
        ),
    ),
    "shared memory": (
        "assert libc.shmget(4321, 4096, 0o1666) >= 0",
        "assert libc.shmget(4321, 4096, 0) >= 0; print(mark)",
    ),
    "a local socket": (
        "s = socket.socket(1); s.bind('\\0left'); s.listen()",
        "c = socket.socket(1); c.connect('\\0left'); print(mark)",
    ),
    "the current folder": ("os.chdir('/tmp')", "os.getcwd() == '/tmp' and print(mark)"),
    "the environment": ("os.environ['CHANGES'] = '1'", "'CHANGES' in os.environ and print(mark)"),
}
START = (
    """
import ctypes, glob, os, socket, subprocess
libc, x, shared, home = ctypes.CDLL(None), 1, [], os.path.expanduser('~/left')
for name in ('before', '/tmp/before'): open(name, 'w').write('before')
handle = open('before')
"""
    + f"mark = {MARK!r}\n"
)


def seen_changes(changed: LiveSession, unaware: list[LiveSession]) -> list[str]:
    """Make each change in `changed`, and return what `unaware` sessions see of it."""
    seen = list[str]()
    for name, (change, probe) in CHANGES.items():
        changed.run_ok(change)
        if MARK not in changed.output_of(probe):
            seen.append(f"the check cannot detect the change: {name}")
        seen += [name for each in unaware if MARK in each.output_of(probe)]
    return seen


def test_branches_never_see_each_others_changes(shared: SandboxSessionServer) -> None:
    with open_session(shared, keep_processes=True) as parent:
        parent.run_ok(START)
        with forked(parent, 2) as (one, other), forked(parent) as (late,):
            assert seen_changes(one, [other, late]) == []
            # A session sees the processes of its branches.
            below = [name for name in CHANGES if MARK in parent.output_of(CHANGES[name][1])]
            assert below == ["a process"]


def test_branches_never_see_later_changes_of_their_parent(shared: SandboxSessionServer) -> None:
    with open_session(shared, keep_processes=True) as parent:
        parent.run_ok(START)
        with forked(parent, 2) as (one, other):
            assert seen_changes(parent, [one, other]) == []


def test_branches_start_from_the_complete_state(live: LiveSession) -> None:
    live.run_ok(
        "x = [1]; import os\nopen('/tmp/t', 'w').write('t'); os.mkdir('/tmp/d'); "
        "open('/tmp/d/u', 'w').write('u')"
    )
    live.run_ok(
        "open('w', 'w').write('w'); open(os.path.expanduser('~/h'), 'w').write('h'); "
        "os.symlink('w', 'l')"
    )
    code = (
        "print(x, *(open(os.path.expanduser(n)).read() for n in ('/tmp/t', '/tmp/d/u', 'w', "
        "'~/h', 'l')))"
    )
    with forked(live, 2) as branches:
        for branch in branches:
            assert branch.run_ok(code) == "[1] t u w h w"
            assert branch.run_ok("cat w /tmp/t 2>/dev/null; true", "sh") == "w"
            assert branch.folder != live.folder


def test_a_branch_starts_in_its_work_folder_and_keeps_open_folders(live: LiveSession) -> None:
    live.run_ok("%mkdir in\n%cd -q in")
    with forked(live) as (branch,):
        folders = branch.run_ok("import os\nos.getcwd(), *map(str, _dh)")
        assert folders == "('/workspace', '/workspace', '/workspace/in', '/workspace')"
        assert branch.run_ok("%cd -") == "/workspace/in"
    live.run_ok("_dh[:] = [None]; import os")
    with forked(live) as (branch,):
        assert branch.run_ok("os.getcwd()") == "'/workspace'"


def test_mounts_inside_the_work_folder_exist_in_all_branches(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("given")
    shown = (
        Mount(str(tmp_path), "/workspace/deep/data"),
        Mount(str(tmp_path / "file"), "/home/cell/file"),
    )
    read = "print(open('/workspace/deep/data/file').read(), open('/home/cell/file').read())"
    with open_session(None, policy=Policy(read_only=shown)) as parent:
        assert parent.run_ok(read) == "given given"
        assert parent.run("cat deep/data/file ~/file", "sh").output == "givengiven"
        with forked(parent, 2) as branches:
            assert [branch.run_ok(read) for branch in branches] == ["given given"] * 2


def test_branches_of_a_checkpoint_start_from_it(live: LiveSession) -> None:
    live.run_ok("x = 1; open('f', 'w').write('one') and None")
    checkpoint = live.checkpoint()
    live.run_ok("x = 2; open('f', 'w').write('two') and None")
    show = "print(x, open('f').read())"
    with forked(live, 2, checkpoint) as branches:
        assert [branch.run_ok(show) for branch in branches] == ["1 one"] * 2
        branches[0].run_ok("x = 3; open('f', 'w').write('three') and None")
        live.restore(checkpoint)
        assert live.run_ok(show) == "1 one"
        assert branches[0].run_ok(show) == "3 three"


def test_a_branch_has_its_own_control_groups(live: LiveSession) -> None:
    where = (
        "print([line for line in open('/proc/self/cgroup').read().split() if 'cellblock-' in line])"
    )
    if (own := live.run_ok(where).strip()) == "[]":
        pytest.skip("control groups cannot be created here")
    with forked(live) as (branch,):
        assert branch.run_ok(where).strip() not in (own, "[]")
        checkpoint = live.checkpoint()
        with forked(live, checkpoint=checkpoint) as (other,):
            assert other.run_ok(where).strip() not in (own, branch.run_ok(where).strip(), "[]")


def test_a_branch_can_be_forked(live: LiveSession) -> None:
    show = "print(path, open('f').read())"
    live.run_ok("path = ['root']")
    with forked(live) as (child,):
        child.run_ok("path.append('child'); open('f', 'w').write('child') and None")
        with forked(child, 2) as (one, other):
            one.run_ok("path.append('one'); open('f', 'a').write(' one') and None")
            with forked(one) as (deepest,):
                deepest.run_ok("path.append('deepest')")
                found = deepest.run_ok(show)
                assert found == "['root', 'child', 'one', 'deepest'] child one"
            assert other.run_ok(show) == "['root', 'child'] child"
            assert one.run_ok("print(path)") == "['root', 'child', 'one']"
        assert child.run_ok(show) == "['root', 'child'] child"
    assert live.run_ok("print(path)") == "['root']"


def test_a_branch_has_checkpoints_and_recovers(live: LiveSession) -> None:
    live.run_ok("x = 1; import os")
    with forked(live) as (branch,):
        branch.crash("x = 2; os._exit(3)")
        assert branch.run_ok("x") == "1"
        checkpoint = branch.checkpoint()
        branch.run_ok("x = 5; open('f', 'w').close()")
        branch.restore(checkpoint)
        assert branch.run_ok("print(x, os.listdir())") == "1 []"
        with pytest.raises(CheckpointError, match="another session"):
            live.restore(checkpoint)


def test_the_end_of_a_branchs_first_process_is_reported(live: LiveSession) -> None:
    live.run_ok("import os, signal")
    with forked(live, 2) as (one, other):
        assert one.run("os._exit(3)").exit_code == 3
        assert one.run("os._exit(4)").exit_code == 4  # of a process that was restored
        assert other.run("os.kill(os.getpid(), signal.SIGSEGV)").exit_code == 128 + 11


def test_a_branchs_process_has_another_id_than_those_above_it(live: LiveSession) -> None:
    """Libraries recognise by it that their threads do not exist."""
    live.run_ok("import os; ids = [os.getpid()]")
    with forked(live) as (child,):
        child.run_ok("ids.append(os.getpid())")
        with forked(child) as (deepest,):
            assert deepest.run_ok("len({*ids, os.getpid()})") == "3"


def test_branches_outlive_their_parent(shared: SandboxSessionServer) -> None:
    parent = open_session(shared)
    parent.run_ok("x = 1")
    with forked(parent, 2) as (one, other):
        parent.stop()
        assert one.run_ok("x") == "1"
        one.run_ok("x = 2")
        with forked(one) as (below,):
            one.stop()
            assert below.run_ok("x") == "2"
            below.crash()
            assert below.run_ok("x") == "2"
        assert other.run_ok("x") == "1"


def test_a_branch_with_much_memory_outlives_a_parent_that_stops_at_once(
    shared: SandboxSessionServer,
) -> None:
    for _ in range(2):
        parent = open_session(shared)
        parent.run_ok("x = b'x' * (300 << 20)")
        with forked(parent) as (branch,):
            # The process that created the branch is still freeing its copy of the memory.
            parent.stop()
            assert branch.run_ok("len(x) >> 20") == "300"


def test_branches_of_one_checkpoint_are_created_one_after_the_other(live: LiveSession) -> None:
    live.run_ok("x = b'x' * (300 << 20)")  # makes a fork slow
    checkpoint = live.checkpoint()
    with forked(live, 4, checkpoint) as branches:
        assert [branch.run_ok("len(x) >> 20") for branch in branches] == ["300"] * 4


def test_a_parent_outlives_its_branches_and_their_crashes(live: LiveSession) -> None:
    live.run_ok("x = 1; import os, signal")
    with forked(live, 2) as (one, other):
        for code in (
            "os._exit(3)",
            "os.kill(-1, signal.SIGKILL)",
            "os.kill(1, signal.SIGKILL)",
            "os.kill(os.getppid(), 9)",
        ):
            one.run(code)
        assert [each.run_ok("x") for each in (live, other, one)] == ["1"] * 3
    assert live.run_ok("x") == "1"


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a session can signal the processes of its own branches; see SECURITY.md",
)
def test_a_parent_that_kills_all_processes_it_sees_kills_no_branch(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared) as parent:
        parent.run_ok("x = 1; import os")
        with forked(parent) as (branch,):
            parent.run(
                "for n in range(2, 3000):\n  try:\n"
                "    n != os.getpid() and os.kill(n, 9)\n  except OSError: pass"
            )
            assert parent.run_ok("1") == "1"
            assert branch.run_ok("x") == "1"


def test_branches_run_at_the_same_time(live: LiveSession) -> None:
    with forked(live, 3) as branches:
        run_async(meet([branch.executor for branch in branches]))


def test_a_branch_copies_no_unchanged_large_files_of_its_checkpoint(live: LiveSession) -> None:
    live.run_ok(
        "import os; os.mkdir('data'); open('data/large', 'wb').write(bytes(1 << 20)); "
        "open('rewritten', 'wb').write(bytes(1 << 20)) and None"
    )
    checkpoint = live.checkpoint()
    with forked(live, 1, checkpoint) as (branch,):
        branch.run_ok("open('rewritten', 'r+b').write(b'changed') and None")
        own = branch.checkpoint()
        assert (own.copied_bytes + own.shared_bytes, own.shared_bytes >= 1 << 20) == (2 << 20, True)
        run_async(live.executor.drop(checkpoint))
        branch.run_ok("open('data/large', 'wb').close(); os.unlink('rewritten')")
        branch.restore(own)
        assert branch.run_ok("open('data/large', 'rb').read() == bytes(1 << 20)") == "True"
        assert branch.run_ok("open('rewritten', 'rb').read(8)") == r"b'changed\x00'"
