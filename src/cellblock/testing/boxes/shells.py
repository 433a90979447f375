"""Shell sessions: what they keep from command to command, and how they go on."""

from __future__ import annotations

import asyncio

from ...box.base import Box
from ...errors import CheckpointError
from .endings import wait_for_file
from .registry import check_box, raises


@check_box
async def a_shell_keeps_its_state(box: Box) -> None:
    async with box.shell() as shell:
        await shell.run("mkdir sub; cd sub; export KEPT=1; own=2; greet() { echo hi $1; }")
        result = await shell.run("pwd; echo $KEPT $own; greet you; sh -c 'echo $KEPT$own'")
        expected = f"{box.inner_work_dir}/sub\n1 2\nhi you\n1\n"
        assert (result.exit_code, result.stdout_text) == (0, expected), result


@check_box
async def a_shell_keeps_streams_and_exit_codes_apart(box: Box) -> None:
    async with box.shell() as shell:
        result = await shell.run("printf out; printf err >&2; (exit 7)")
        assert (result.exit_code, result.stdout, result.stderr) == (7, b"out", b"err"), result
        result = await shell.run("true")
        assert (result.exit_code, result.stdout, result.stderr) == (0, b"", b""), result


@check_box
async def a_command_in_a_shell_has_no_input(box: Box) -> None:
    async with box.shell() as shell:
        assert (await shell.run("cat; read x; echo $?")).stdout == b"1\n"
        assert (await shell.run("echo next")).stdout == b"next\n"


@check_box
async def a_syntax_error_does_not_break_a_shell(box: Box) -> None:
    async with box.shell() as shell:
        await shell.run("kept=1")
        for text in ("if", "echo 'open", "cat <<END\nopen", ")", "{", "\\", "# comment", ""):
            await shell.run(text)
            result = await shell.run("echo $kept")
            assert result.stdout == b"1\n", (text, result)


@check_box
async def a_command_that_ends_the_shell_is_followed_by_a_new_one(box: Box) -> None:
    async with box.shell(env={"GIVEN": "1"}) as shell:
        await shell.run("left=1; cd /")
        result = await shell.run("echo bye; exit 3")
        assert (result.exit_code, result.stdout) == (3, b"bye\n"), result
        result = await shell.run("echo $GIVEN ${left-none}; pwd")
        assert result.stdout_text == f"1 none\n{box.inner_work_dir}\n", result
        assert (await shell.run("kill -9 $$")).exit_code == 137
        assert (await shell.run("exec echo replaced")).stdout == b"replaced\n"
        assert (await shell.run("echo alive")).stdout == b"alive\n"


@check_box
async def a_time_limit_keeps_the_state_of_a_shell(box: Box) -> None:
    async with box.shell() as shell:
        await shell.run("cd /tmp; export KEPT=1; greet() { echo hi; }")
        result = await shell.run("echo begun; cd /; sleep 600", timeout=0.5)
        assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"begun\n")
        result = await shell.run("pwd; echo $KEPT; greet")
        assert result.stdout == b"/tmp\n1\nhi\n", result
        assert (await box.exec("ps -e || true")).stdout.count(b"sleep") == 0


@check_box
async def a_cancelled_command_of_a_shell_is_killed(box: Box) -> None:
    async with box.shell() as shell:
        await shell.run("cd /tmp")
        running = asyncio.ensure_future(shell.run("touch begun; sleep 600"))
        await wait_for_file(box, "/tmp/begun")
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert (await shell.run("pwd")).stdout == b"/tmp\n"


@check_box
async def a_traced_shell_is_read_correctly(box: Box) -> None:
    async with box.shell() as shell:
        result = await shell.run("set -x; echo one")
        assert result.stdout == b"one\n", result
        assert result.stderr.endswith(b"+ echo one\n"), result
        result = await shell.run("echo two")
        assert (result.exit_code, result.stdout) == (0, b"two\n"), result


@check_box
async def a_shell_whose_output_goes_elsewhere_goes_on(box: Box) -> None:
    async with box.shell() as shell:
        await shell.run("exec > log 2>&1")
        assert (await shell.run("echo logged; (exit 4)")).exit_code == 4
        assert await box.files.read("log") == b"logged\n"


@check_box
async def large_output_of_a_shell_is_cut(box: Box) -> None:
    async with box.shell() as shell:
        result = await shell.run("head -c 3000000 /dev/zero; echo end >&2", max_output_bytes=1000)
        assert (len(result.stdout), result.stderr, result.truncated) == (1000, b"end\n", True)
        pieces = list[bytes]()
        await shell.run("echo one", on_output=lambda stream, data: pieces.append(data))
        assert b"".join(pieces) == b"one\n", pieces


@check_box
async def background_processes_of_a_shell_run_on(box: Box) -> None:
    async with box.shell() as shell:
        result = await shell.run("sleep 600 & echo $!")
        pid = int(result.stdout)
        assert (await shell.run(f"kill -0 {pid}")).exit_code == 0
    assert (await box.exec(f"kill -0 {pid}")).exit_code != 0


@check_box
async def a_shell_that_was_restarted_is_new(box: Box) -> None:
    async with box.shell(program="sh") as shell:
        await shell.run("left=1")
        await shell.restart()
        assert (await shell.run("echo ${left-none}")).stdout == b"none\n"
    with raises(ValueError, text="fish"):
        box.shell(program="fish")  # pyright: ignore[reportArgumentType] - on purpose
    with raises(FileNotFoundError, text="gone"):
        await box.shell(cwd="gone").run("true")
    with raises(ValueError, text="NUL"):
        await box.shell().run("a\0b")


@check_box
async def a_shell_goes_on_after_a_copy_of_the_box(box: Box) -> None:
    async with box.shell() as shell:
        await shell.run("cd /tmp; export KEPT=1; greet() { echo hi; }")
        with raises(CheckpointError, text="bash"):
            await box.checkpoint()
        await box.drop(await box.checkpoint(end_commands=True))
        result = await shell.run("pwd; echo $KEPT; greet")
        assert (result.exit_code, result.stdout) == (0, b"/tmp\n1\nhi\n"), result
