"""What a rollback brings back, how old it is, and what the copies for it must not hold up."""

from __future__ import annotations

import time

import pytest

from cellblock import CheckpointError, SandboxSessionServer
from tests.executors.session.live_session import open_session


@pytest.fixture
def shared(strict_server: SandboxSessionServer) -> SandboxSessionServer:
    return strict_server


STORM = (
    "import os, time\nwhile True:\n    try: pid = os.fork()\n    except OSError: break\n"
    "    if pid == 0: time.sleep(600); os._exit(0)"
)


def test_processes_that_ended_with_their_block_do_not_prevent_checkpoints(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared) as live:
        live.run_ok("keep = 5")
        live.run_ok(STORM)
        for number in range(5):
            assert live.run(f"k{number} = 1").notice == ""
        ended = live.run("os._exit(4)")
        assert (ended.session_restored, ended.lost_blocks) == (True, 0), ended
        assert live.run_ok("keep, k0, k4") == "(5, 1, 1)"


def test_processes_that_are_kept_leave_room_for_checkpoints(shared: SandboxSessionServer) -> None:
    with open_session(shared, keep_processes=True) as live:
        for code in ("keep = 5", "keep += 1", STORM):
            live.run_ok(code)
        for number in range(5):
            assert live.run(f"k{number} = 1").notice == ""
        ended = live.run("os._exit(4)")
        assert (ended.session_restored, ended.lost_blocks) == (True, 0), ended
        assert live.run_ok("keep, k0, k4") == "(6, 1, 1)"


def test_a_session_that_cannot_be_saved_says_so_once_and_reports_what_is_lost(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared, keep_processes=True) as live:
        live.run_ok("keep = 5")  # there is no older checkpoint yet, whose process could be used
        live.run_ok(STORM)
        warned = live.run("k = 1")
        assert (warned.exit_code, warned.session_restored, warned.lost_blocks) == (0, False, 0)
        assert "cannot be copied: no process could be forked" in warned.notice
        assert live.run("k = 2").notice == ""
        with pytest.raises(CheckpointError, match="other child processes"):
            live.checkpoint()
        ended = live.run("os._exit(4)")
        assert (ended.session_restored, ended.lost_blocks) == (False, 3), ended
        assert ended.notice.startswith(
            "Variables are lost: the session went back to its state of 3 blocks before this one."
        )
        assert live.run_ok("keep, 'k' in globals()") == "(5, False)"


def test_a_crash_does_not_undo_what_a_checkpoint_has_saved(shared: SandboxSessionServer) -> None:
    with open_session(shared) as live:
        live.run_ok("import os, threading\nfree = threading.Event()\nx = 1")
        live.run_ok("thread = threading.Thread(target=free.wait); thread.start()")
        # It ends after the block, so that no automatic checkpoint of this block can be made.
        live.run_ok("x = 2; threading.Timer(0.5, free.set).start()")
        deadline = time.monotonic() + 50
        while True:
            try:
                live.checkpoint()
                break
            except CheckpointError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        ended = live.run("os._exit(4)")
        assert (ended.session_restored, ended.lost_blocks) == (True, 0), ended
        assert live.run_ok("x") == "2"


def test_a_fatal_thread_between_blocks_loses_only_itself(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared) as live:
        live.run_ok("x = 1\nimport os, threading, time")
        live.run_ok(
            "x = 2\ndef end():\n  while not os.path.exists('go'): time.sleep(0.01)\n  os._exit(5)\n"
            "threading.Thread(target=end).start()"
        )
        live.run_ok("1")  # the automatic checkpoint of the block before it exists now
        (live.folder / "go").touch()
        result = live.run("x")
        while "was restored" not in result.notice:
            result = live.run("x")
        assert (result.session_restored, live.run_ok("x, 't' in globals()")) == (
            False,
            "(2, False)",
        ), result
        assert "the Python thread 'Thread-" in result.notice, result.notice
        assert result.notice in result.output


def test_a_kept_process_sees_the_end_of_its_input_in_a_later_block(
    shared: SandboxSessionServer,
) -> None:
    # The rollback checkpoint is a fork, which has the pipes too.
    with open_session(shared, keep_processes=True) as live:
        live.run_ok(
            "from subprocess import PIPE, Popen\np = Popen(['cat'], stdin=PIPE, stdout=PIPE)"
        )
        assert live.run_ok("p.communicate(b'data')") == "(b'data', None)"


def test_after_a_rollback_a_pipe_to_a_kept_process_is_broken(shared: SandboxSessionServer) -> None:
    with open_session(shared, keep_processes=True) as live:
        live.run_ok(
            "import os, subprocess\n"
            "p = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
            "own_reader, own_writer = os.pipe()"
        )
        assert live.run("os._exit(1)").session_restored
        assert "BrokenPipeError" in live.output_of("os.write(p.stdin.fileno(), b'data')")
        live.run_ok("os.write(own_writer, b'data')")
        assert live.run_ok("os.read(own_reader, 9)") == "b'data'"
