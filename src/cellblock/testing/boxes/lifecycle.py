"""The life of a box: its start, its identity and its end."""

from __future__ import annotations

import asyncio
import io
import tempfile
import threading
from typing import Any

from ...box.base import Box
from ...errors import BoxGone
from .endings import wait_for_file
from .registry import BoxTarget, check_box, check_target, raises


@check_target
async def a_box_starts_on_first_use_and_only_once(target: BoxTarget) -> None:
    box = target.create()
    try:
        text = "test -e mark || touch mark; ls -id /tmp | cut -d ' ' -f 1; ls"
        results = await asyncio.gather(*(box.exec(text) for _ in range(5)))
        assert len({result.stdout for result in results}) == 1, results
        assert results[0].stdout.endswith(b"\nmark\n"), results
    finally:
        await box.close()


@check_target
async def a_box_has_a_name_of_its_own(target: BoxTarget) -> None:
    one, other = target.create(), target.create()
    try:
        name = one.id
        assert name
        assert name != other.id
        await one.start()
        assert one.id == name
    finally:
        await one.close()
        await other.close()


@check_target
async def a_closed_box_is_gone(target: BoxTarget) -> None:
    box = target.create()
    async with box:
        assert not box.closed
        await box.exec("echo kept > file")
        process = await box.spawn(["sleep", "600"])
        shell = box.shell()
        await shell.run("true")
    assert box.closed
    await box.close()
    uses: list[Any] = [
        box.start(), box.exec("true"), box.exec(["true"]), box.spawn("true"), box.run_code("1"),
        box.checkpoint(), box.fork(), box.commands(), process.wait(), shell.run("true"),
        box.files.read("file"), box.files.write("file", b""), box.files.list(),
        box.files.exists("file"), box.files.download("file", io.BytesIO()),
    ]  # fmt: skip
    for use in uses:
        with raises(BoxGone, text="closed"):
            await use


@check_target
async def a_box_that_was_never_used_can_be_closed(target: BoxTarget) -> None:
    box = target.create()
    await box.close()
    with raises(BoxGone):
        await box.exec("true")


@check_target
async def closing_a_box_ends_what_runs(target: BoxTarget) -> None:
    async with target.box() as box:
        running = [
            asyncio.ensure_future(box.exec("touch begun; sleep 600", timeout=None)),
            asyncio.ensure_future(box.run_code("import time; time.sleep(600)")),
        ]
        await wait_for_file(box, "begun")
        await box.close()
        for each in running:
            with raises(BoxGone):
                await each


@check_box
async def files_are_kept_where_the_caller_sees_them(box: Box) -> None:
    await box.files.write("sub/file", "text")
    assert (box.work_dir / "sub" / "file").read_text() == "text"
    (box.work_dir / "given").write_text("from outside")
    assert await box.files.read("given") == b"from outside"


@check_target
async def an_unused_box_closes_itself(target: BoxTarget) -> None:
    async with target.box(idle_seconds=0.5) as box:
        assert (await box.exec("sleep 1.2; echo awake")).stdout == b"awake\n"
        process = await box.spawn("sleep 1.2; echo awake")
        assert (await process.wait()).stdout == b"awake\n"
        for _ in range(3000):
            if box.closed:
                break
            await asyncio.sleep(0.02)
        with raises(BoxGone, text="idle"):
            await box.exec("true")


@check_box
async def a_box_works_from_many_threads_and_loops(box: Box) -> None:
    outputs = dict[int, bytes]()

    def use(number: int) -> None:
        result = asyncio.run(box.exec(["echo", str(number)]))
        outputs[number] = result.stdout

    threads = [threading.Thread(target=use, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert outputs == {number: b"%d\n" % number for number in range(5)}


@check_target
async def files_of_a_given_work_folder_stay(target: BoxTarget) -> None:
    with tempfile.TemporaryDirectory(prefix="cellblock-check-") as folder:
        async with target.box(work_dir=folder) as box:
            await box.exec("echo kept > file")
        async with target.box(work_dir=folder) as box:
            assert await box.files.read("file") == b"kept\n"


@check_box
async def guarantees_are_named(box: Box) -> None:
    assert box.guarantees()
