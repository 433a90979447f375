"""A kept box outlives the process that made it, and other processes go on with it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import cellblock.sync
from cellblock import (
    BackendError,
    BoxGone,
    CheckpointError,
    Limits,
    PackageError,
    Sandbox,
    WorkspaceError,
)
from tests.box.kept.programs import (
    daemon_of,
    run_in_other_process,
    start_other_process,
    wait_for_end,
)

pytestmark = [pytest.mark.depends_on_user, pytest.mark.usefixtures("needs_sandbox")]


@asynccontextmanager
async def kept_box(**options: Any) -> AsyncGenerator[Sandbox]:
    """Yield a kept box, and end it at last."""
    box = Sandbox(kept=True, **options)
    await box.start()
    pid, ref = daemon_of(box), box.ref()
    try:
        yield box
    finally:
        if not box.closed:
            await box.close()
        else:
            try:
                await (await Sandbox.attach(ref)).close()
            except BoxGone:
                pass
        await wait_for_end(pid)


async def test_another_process_goes_on_with_files_commands_variables_and_checkpoints() -> None:
    async with kept_box() as box:
        await box.files.write("names.txt", "Ada\n")
        await box.run_code("count = 1")
        await box.checkpoint("first")
        await box.run_code("count = 2")
        ref = box.ref()
        await box.detach()
        printed = await run_in_other_process(
            """
            box = await Sandbox.attach(sys.argv[1])
            print((await box.exec("cat names.txt; echo Grace >> names.txt")).stdout_text)
            print((await box.run_code("count += 1; print(count)")).output)
            print([each.name for each in box.checkpoints], await box.session.get("count"))
            await box.session.set("given", [1, 2])
            await box.restore("first")
            print(await box.session.get("count"), await box.files.read("names.txt"))
            await box.run_code("count = 10")
            """,
            ref,
        )
        assert printed.split() == ["Ada", "3", "['first']", "3", "1", "b'Ada\\n'"]
        again = await Sandbox.attach(ref)
        assert await again.session.get("count") == 10
        assert (again.ref(), again.id) == (ref, box.id)


async def test_settings_are_those_that_the_box_was_made_with(tmp_path: Path) -> None:
    async with kept_box(work_dir=tmp_path, timeout=7, limits=Limits(processes=7)) as box:
        other = await Sandbox.attach(box.ref())
        assert (other.timeout, other.session.limits.processes) == (7, 7)
        assert (other.work_dir, other.inner_work_dir) == (tmp_path, box.inner_work_dir)
        assert other.guarantees() == box.guarantees()
        result = await other.run_code("open('made', 'w').close()")
        assert [Path(each).name for each in result.files] == ["made"]


async def test_leaving_the_block_leaves_the_box_alive_and_close_ends_it_for_all() -> None:
    async with Sandbox(kept=True) as box:
        pid, ref = daemon_of(box), box.ref()
    with pytest.raises(BoxGone, match="Attach to it by its ref"):
        await box.exec("true")
    first, second = await Sandbox.attach(ref), await Sandbox.attach(ref)
    running = asyncio.ensure_future(second.exec("echo run; sleep 600", timeout=None))
    await first.close()
    with pytest.raises(BoxGone, match="closed by another process"):
        await running
    with pytest.raises(BoxGone, match="closed by another process"):
        await second.files.list()
    await wait_for_end(pid)
    with pytest.raises(BoxGone, match="it was closed"):
        await Sandbox.attach(ref)


async def test_two_processes_use_a_box_at_the_same_time() -> None:
    async with kept_box() as box:
        other = await start_other_process(
            """
            box = await Sandbox.attach(sys.argv[1])
            waiting = asyncio.ensure_future(box.exec("read line < line; echo $line"))
            print((await box.run_code("import time; total = 0")).exit_code, flush=True)
            for _ in range(20):
                await box.run_code("now = total; time.sleep(0.001); total = now + 1")
            print((await waiting).stdout_text)
            """,
            box.ref(),
        )
        assert (await box.exec("mkfifo line")).exit_code == 0
        assert other.stdout is not None
        assert await other.stdout.readline() == b"0\n"
        for _ in range(20):
            await box.run_code("now = total; time.sleep(0.001); total = now + 1")
        await box.exec("echo sent > line")
        assert await other.stdout.read() == b"sent\n\n"
        await other.wait()
        assert await box.session.get("total") == 40


async def test_the_commands_of_a_killed_process_end_and_those_in_their_own_session_live_on() -> (
    None
):
    async with kept_box() as box:
        other = await start_other_process(
            """
            box = await Sandbox.attach(sys.argv[1])
            await box.exec("setsid sh -c 'sleep 601' > left 2>&1 &")
            process = await box.spawn("echo ready; sleep 602")
            async for _, data in process:
                print("ready", flush=True)
            """,
            box.ref(),
        )
        assert other.stdout is not None
        assert await other.stdout.readline() == b"ready\n"
        other.kill()
        await other.wait()
        while True:
            texts = [each.text for each in await box.commands()]
            if not any("602" in text for text in texts):
                break
            await asyncio.sleep(0.02)
        assert any("601" in text for text in texts)


async def test_an_idle_box_ends_and_leaves_nothing() -> None:
    box = Sandbox(kept=True, idle_seconds=0.5)
    await box.start()
    pid, ref, folder = daemon_of(box), box.ref(), box.work_dir
    scratch, socket_path = box.session.place.checkpoint_dir(), ref.split(":")[1]
    await wait_for_end(pid)
    assert [path for path in (folder, scratch, socket_path) if os.path.exists(path)] == []
    with pytest.raises(BoxGone, match="was idle for 0.5 s"):
        await box.exec("true")
    with pytest.raises(BoxGone):
        await Sandbox.attach(ref)


async def test_a_box_whose_process_was_killed_is_gone_and_leaves_only_its_socket(
    private_folder: Path,
) -> None:
    box = Sandbox(kept=True)
    await box.start()
    pid, ref, folder = daemon_of(box), box.ref(), box.work_dir
    scratch = box.session.place.checkpoint_dir()
    running = asyncio.ensure_future(box.exec("sleep 600", timeout=None))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(BoxGone, match="ended unexpectedly"):
        await running
    while folder.exists() or scratch.exists():
        await asyncio.sleep(0.02)
    with pytest.raises(BoxGone):
        await Sandbox.attach(ref)
    assert os.listdir(private_folder) == [os.path.basename(ref.split(":")[1])]


async def test_a_box_ends_well_when_its_process_is_asked_to() -> None:
    box = Sandbox(kept=True)
    await box.start()
    pid, folder, socket_path = daemon_of(box), box.work_dir, box.ref().split(":")[1]
    os.kill(pid, signal.SIGTERM)
    await wait_for_end(pid)
    assert not folder.exists()
    assert not os.path.exists(socket_path)
    with pytest.raises(BoxGone):
        await box.exec("true")


async def test_a_box_whose_start_is_cancelled_leaves_nothing(private_folder: Path) -> None:
    box = Sandbox(kept=True)
    starting = asyncio.ensure_future(box.start())
    while not starting.done() and not [*private_folder.glob("*.sock")]:
        await asyncio.sleep(0.001)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await wait_until_empty(private_folder)


async def wait_until_empty(folder: Path) -> None:
    """Wait until no process of a box is left that has a socket in `folder`."""
    while [*folder.glob("*")]:
        await asyncio.sleep(0.01)


async def test_a_box_whose_maker_is_killed_during_the_start_leaves_nothing(
    private_folder: Path,
) -> None:
    other = await start_other_process(
        """
        import os
        from cellblock.box.kept import address, place
        address._PARENT, launch = sys.argv[1], place._launch
        place._launch = lambda *given: (launch(*given), os._exit(9))
        await Sandbox(kept=True).start()
        """,
        str(private_folder.parent),
    )
    assert await other.wait() == 9
    await wait_until_empty(private_folder)


async def test_forks_live_on_in_the_same_process_and_are_attached_to() -> None:
    async with kept_box() as box:
        await box.run_code("value = 'old'")
        (fork,) = await box.fork()
        await fork.run_code("value = 'new'")
        ref = fork.ref()
        await fork.detach()
        attached = await Sandbox.attach(ref)
        assert daemon_of(attached) == daemon_of(box)
        assert await attached.session.get("value") == "new"
        await box.close()
        assert await attached.session.get("value") == "new"
        (second,) = await attached.fork()
        await attached.close()
        pid = daemon_of(second)
        assert await second.session.get("value") == "new"
        await second.close()
        await wait_for_end(pid)


async def test_errors_of_copies_are_the_same_as_in_one_process() -> None:
    async with kept_box(limits=Limits(written_bytes=1000)) as box:
        made = await box.checkpoint("one")
        other = await Sandbox.attach(box.ref())
        with pytest.raises(ValueError, match="There is a checkpoint 'one'"):
            await other.checkpoint("one")
        await other.drop(made)
        await other.drop(made)
        assert box.checkpoints == ()
        for use in (box.restore(made), box.restore("one"), box.fork(checkpoint=made)):
            with pytest.raises(CheckpointError):
                await use
        await box.run_code("import threading; threading.Thread(target=input).start()")


async def test_input_is_asked_of_the_process_that_runs_the_block() -> None:
    async with kept_box() as box:
        other = await Sandbox.attach(box.ref(), input_callback=lambda prompt: f"{prompt}!")
        assert (await other.run_code("print(input('name'))")).output == "name!\n"
        assert (await box.run_code("input()")).exit_code == 1


async def test_cancelling_a_block_or_command_of_an_attached_box_ends_it() -> None:
    async with kept_box() as box:
        for use in (
            box.exec("touch begun; sleep 600", timeout=None),
            box.run_code("open('begun', 'w').close()\nwhile True: pass", timeout=None),
        ):
            running = asyncio.ensure_future(use)
            while not await box.files.exists("begun"):
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await box.files.remove("begun")
        assert await box.commands() == []
        assert (await box.run_code("print(1)")).output == "1\n"


async def test_a_process_that_does_not_read_holds_up_only_its_own_command() -> None:
    async with kept_box() as box:
        other = await start_other_process(
            """
            import os, signal
            box = await Sandbox.attach(sys.argv[1])
            process = await box.spawn("yes", max_output_bytes=None)
            print("ready", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            """,
            box.ref(),
        )
        assert other.stdout is not None
        assert await other.stdout.readline() == b"ready\n"
        result = await box.exec("head -c 3000000 /dev/zero")
        assert len(result.stdout) == 3_000_000
        other.kill()
        await other.wait()


async def test_large_files_pass_in_both_directions(tmp_path: Path) -> None:
    data = os.urandom(5_000_000)
    async with kept_box() as box:
        await box.files.write("large", data)
        other = await Sandbox.attach(box.ref())
        assert await other.files.read("large") == data
        result = await other.exec(["cat"], stdin=data)
        assert result.stdout == data


async def test_an_error_of_the_start_is_raised_where_the_box_is_made(tmp_path: Path) -> None:
    box = Sandbox(kept=True, work_dir=tmp_path / "work")
    (tmp_path / "work").rmdir()
    (tmp_path / "work").touch()
    with pytest.raises(WorkspaceError, match="work"):
        await box.start()
    unknown = Sandbox(kept=True, preload=["no_such_module"])
    with pytest.raises(PackageError, match="no_such_module"):
        await unknown.start()


async def test_a_box_that_is_not_kept_has_no_ref() -> None:
    async with Sandbox() as box:
        with pytest.raises(BackendError, match="kept=True"):
            box.ref()
        with pytest.raises(BackendError, match="kept=True"):
            await box.detach()
    with pytest.raises(BackendError, match="not started"):
        Sandbox(kept=True).ref()


async def test_what_is_no_ref_and_a_ref_of_another_version_are_refused() -> None:
    wrongs: list[Any] = ["", "box-1", None, "cellblock-1:relative/boxes-1.sock:box-1"]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"ref\(\) of a kept box"):
            await Sandbox.attach(wrong)
    with pytest.raises(BackendError, match=r"made by Cellblock 0\.1"):
        await Sandbox.attach(f"cellblock-0.1:/tmp/boxes-{'0' * 16}.sock:box-{'0' * 16}")


def test_the_synchronous_box_is_kept_and_attached_to() -> None:
    with cellblock.sync.Sandbox(kept=True) as box:
        box.run_code("value = 5")
        ref, pid = box.ref(), daemon_of(box.wrapped)
    with pytest.raises(BoxGone):
        box.exec("true")
    other = cellblock.sync.Sandbox.attach(ref)
    assert other.session.get("value") == 5
    assert other.ref() == ref
    other.detach()
    again = cellblock.sync.Sandbox.attach(ref)
    again.close()
    asyncio.run(wait_for_end(pid))
