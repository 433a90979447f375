"""Checkpoints have names, which `restore`, `drop` and `fork` take, as the prompt does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import CheckpointError, CodeBlock
from cellblock.sync import SandboxSessionCodeExecutor as Session
from tests.executors.session.live_session import skip_without_sandbox

pytestmark = pytest.mark.usefixtures("kept_servers")


@pytest.fixture
def session() -> Iterator[Session]:
    skip_without_sandbox()
    with Session(timeout=20) as session:
        yield session


def set_x(session: Session, value: int) -> None:
    session.execute_code_blocks([CodeBlock(f"x = {value}", "python")]).check()


def names(session: Session) -> list[str]:
    return [checkpoint.name for checkpoint in session.checkpoints]


def test_a_checkpoint_is_restored_forked_and_dropped_by_its_name(session: Session) -> None:
    set_x(session, 1)
    assert session.checkpoint("before").name == "before"
    set_x(session, 2)
    (branch,) = session.fork(checkpoint="before")
    with branch:
        assert branch.get("x") == 1
    session.restore("before")
    assert session.get("x") == 1
    session.drop("before")
    assert names(session) == []


def test_checkpoints_without_a_name_are_numbered(session: Session) -> None:
    for value in range(3):
        set_x(session, value)
        session.checkpoint()
    assert names(session) == ["1", "2", "3"]
    session.restore("2")
    assert session.get("x") == 1
    session.drop("1")
    assert session.checkpoint().name == "1"


def test_a_name_that_is_used_again_means_the_new_checkpoint(session: Session) -> None:
    old = session.checkpoint("a")
    session.drop(old)
    set_x(session, 5)
    session.checkpoint("a")
    session.drop(old)  # is gone already
    with pytest.raises(CheckpointError, match="was dropped"):
        session.restore(old)
    set_x(session, 6)
    session.restore("a")
    assert session.get("x") == 5


def test_a_wrong_name_is_refused(session: Session) -> None:
    session.checkpoint("a")
    for use in (session.restore, session.drop):
        with pytest.raises(CheckpointError, match="no checkpoint 'b'.*one of these: 'a'"):
            use("b")
    with pytest.raises(CheckpointError, match="no checkpoint 'b'"):
        session.fork(checkpoint="b")
    with pytest.raises(ValueError, match="There is a checkpoint 'a'"):
        session.checkpoint("a")
    with pytest.raises(ValueError, match="printable string, not ''"):
        session.checkpoint("")


def test_a_replaced_checkpoint_is_kept_until_the_new_one_exists(session: Session) -> None:
    set_x(session, 1)
    old = session.checkpoint("a")
    session.checkpoint("b")
    thread = "import threading; event = threading.Event(); threading.Thread(target=event.wait)"
    session.execute_code_blocks([CodeBlock(f"{thread}.start()", "python")]).check()
    with pytest.raises(CheckpointError, match="cannot be copied because it has .*thread"):
        session.checkpoint("a", replace=True)
    assert session.checkpoints[0] is old
    session.restore("a")
    assert session.get("x") == 1
    set_x(session, 2)
    new = session.checkpoint("a", replace=True)
    assert names(session) == ["b", "a"]
    with pytest.raises(CheckpointError, match="was dropped"):
        session.restore(old)
    set_x(session, 3)
    session.restore(new)
    assert session.get("x") == 2


def test_a_checkpoint_or_branch_that_would_copy_too_much_is_refused(session: Session) -> None:
    write = "open('data', 'w').write('x' * 5000)"
    session.execute_code_blocks([CodeBlock(write, "python")]).check()
    with pytest.raises(CheckpointError, match="more than 4000"):
        session.checkpoint(max_copied_bytes=4000)
    with pytest.raises(CheckpointError, match="more than 4000"):
        session.fork(max_copied_bytes=4000)
    assert session.checkpoints == ()
    assert session.checkpoint(max_copied_bytes=1_000_000).copied_bytes >= 5000
