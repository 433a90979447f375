"""Commands: their arguments, input, output, folder, environment and user."""

from __future__ import annotations

import asyncio
import os

from ...box.base import Box
from ...box.results import CommandResult
from ...errors import UserUnsupported
from ..target import CheckSkipped
from .endings import wait_for_no_commands
from .registry import check_box, raises

MIB = 1 << 20


@check_box
async def text_is_run_by_a_shell(box: Box) -> None:
    result = await box.exec("echo one; echo two >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"one\n", b"two\n"), result
    assert (result.truncated, result.timed_out) == (False, False), result


@check_box
async def arguments_are_literal(box: Box) -> None:
    odd = ["", " ", "$HOME", "*", "a\nb", "'\"`", "\\", "-n", "ä", "\udcff"]
    result = await box.exec(["printf", "%s|", *odd])
    assert result.stdout == "|".join([*odd, ""]).encode(errors="surrogateescape"), result


@check_box
async def a_mebibyte_of_arguments_arrives(box: Box) -> None:
    pieces = [f"{number:064d}" * 1000 for number in range(16)]
    result = await box.exec(["printf", "%s", *pieces])
    assert result.stdout == "".join(pieces).encode(), len(result.stdout)


@check_box
async def an_argument_that_is_too_long_is_an_oserror(box: Box) -> None:
    for size in (4 * MIB, 20 * MIB):
        with raises(OSError, text="rgument list too long"):
            await box.exec(["true", "x" * size])
    assert (await box.exec(["true"])).exit_code == 0


@check_box
async def a_long_shell_text_runs(box: Box) -> None:
    text = "cat <<'END' | wc -c\n" + "ä" * 150_000 + '\nEND\necho $0 $# "${c-}"\nexit 5'
    result = await box.exec(text)
    assert (result.exit_code, result.stdout) == (5, b"300001\nsh 0 \n"), result


@check_box
async def input_is_empty_by_default(box: Box) -> None:
    assert (await box.exec("cat; readlink /proc/self/fd/0")).stdout == b"/dev/null\n"


@check_box
async def given_input_arrives_as_it_is(box: Box) -> None:
    everything = bytes(range(256))
    assert (await box.exec(["cat"], stdin=everything)).stdout == everything
    assert (await box.exec(["cat"], stdin="ä\n")).stdout == "ä\n".encode()
    given = await box.exec("cat; test -c /dev/stdin && echo none", stdin=b"")
    assert given.stdout == b"", "an empty input is an input"


@check_box
async def a_large_input_arrives(box: Box) -> None:
    data = bytes(50 * MIB)
    assert int((await box.exec("wc -c", stdin=data)).stdout) == len(data)


@check_box
async def input_that_nobody_reads_is_no_error(box: Box) -> None:
    result = await box.exec(["true"], stdin=bytes(5 * MIB))
    assert (result.exit_code, result.stderr) == (0, b""), result


@check_box
async def a_missing_program_is_exit_code_127(box: Box) -> None:
    for command in (["no-such-program"], ["./no/such"], "no-such-program"):
        result = await box.exec(command)
        assert result.exit_code == 127, result
        assert result.stderr_text.strip() or isinstance(command, list), result


@check_box
async def a_program_that_may_not_be_executed_raises(box: Box) -> None:
    await box.files.write("plain", "text", mode=0o644)
    for program in ("./plain", f"{box.inner_work_dir}/plain", "/tmp"):
        with raises(PermissionError, text=program):
            await box.exec([program])
    assert (await box.exec("./plain")).exit_code == 126


@check_box
async def death_by_signal_is_exit_code_128_plus_signal(box: Box) -> None:
    for number in (15, 9, 11):
        assert (await box.exec(["sh", "-c", f"kill -{number} $$"])).exit_code == 128 + number


@check_box
async def output_is_bytes_and_text_has_replacements(box: Box) -> None:
    result = await box.exec(r"printf 'a\377\303\244'; printf '\377' >&2")
    assert (result.stdout, result.stderr) == (b"a\xff\xc3\xa4", b"\xff"), result
    assert (result.stdout_text, result.stderr_text) == ("a\ufffdä", "\ufffd"), result


@check_box
async def streams_are_merged_on_request(box: Box) -> None:
    text = "for n in 1 2 3; do echo out$n; echo err$n >&2; done"
    result = await box.exec(text, merge_stderr=True)
    assert result.stdout == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n", result
    assert result.stderr == b"", result


@check_box
async def ten_mebibytes_of_each_stream_are_kept(box: Box) -> None:
    size = 10 * MIB
    result = await box.exec(f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2")
    assert (len(result.stdout), len(result.stderr), result.truncated) == (size, size, False)


@check_box
async def output_over_the_limit_is_cut_and_the_command_runs_on(box: Box) -> None:
    result = await box.exec(
        "printf 0123456789; head -c 1000000 /dev/zero; echo done >&2; touch ended",
        max_output_bytes=10,
    )
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"0123456789", b"done\n"), result
    assert result.truncated
    assert await box.files.exists("ended")
    exact = await box.exec("printf 0123456789", max_output_bytes=10)
    assert (exact.stdout, exact.truncated) == (b"0123456789", False), exact
    assert (await box.exec("echo x", max_output_bytes=0)).truncated


@check_box
async def output_is_unlimited_on_request(box: Box) -> None:
    result = await box.exec("head -c 30000000 /dev/zero", max_output_bytes=None)
    assert (len(result.stdout), result.truncated) == (30_000_000, False)


@check_box
async def output_is_reported_while_the_command_runs(box: Box) -> None:
    pieces = list[tuple[int, bytes]]()
    arrived = asyncio.Event()

    def on_output(stream: int, data: bytes) -> None:
        pieces.append((stream, data))
        arrived.set()

    text = "echo begun; while ! test -e go; do sleep 0.01; done; echo ended >&2"
    running = asyncio.ensure_future(box.exec(text, on_output=on_output))
    await asyncio.wait_for(arrived.wait(), 60)
    assert pieces == [(1, b"begun\n")], pieces
    await box.files.write("go", b"")
    result = await running
    assert (result.stdout, result.stderr) == (b"begun\n", b"ended\n"), result
    assert pieces == [(1, b"begun\n"), (2, b"ended\n")], pieces


@check_box
async def an_error_of_the_callback_ends_the_command(box: Box) -> None:
    def on_output(stream: int, data: bytes) -> None:
        raise KeyError("mine")

    with raises(KeyError, text="mine"):
        await box.exec("echo x; sleep 600", on_output=on_output)
    await wait_for_no_commands(box)


@check_box
async def a_command_starts_in_the_work_folder(box: Box) -> None:
    assert (await box.exec("pwd -P")).stdout_text == f"{box.inner_work_dir}\n"
    await box.files.make_dir("a/b")
    inner = f"{box.inner_work_dir}/a/b"
    assert (await box.exec(["pwd"], cwd="a/b")).stdout_text == f"{inner}\n"
    assert (await box.exec(["pwd"], cwd=inner)).stdout_text == f"{inner}\n"
    assert (await box.exec("pwd -P", cwd="/tmp")).stdout == b"/tmp\n"


@check_box
async def a_missing_folder_raises(box: Box) -> None:
    await box.files.write("file", b"")
    for cwd, kind in (("gone", FileNotFoundError), ("file", NotADirectoryError)):
        for command in (["true"], "true", ["no-such-program"]):
            with raises(kind, text=cwd):
                await box.exec(command, cwd=cwd)


@check_box
async def variables_are_added_to_those_of_the_box(box: Box) -> None:
    os.environ["CELLBLOCK_CHECK_HOST"] = "of the host"
    try:
        result = await box.exec(["env"], env={"MINE": "a = b\nc", "EMPTY": ""})
    finally:
        del os.environ["CELLBLOCK_CHECK_HOST"]
    lines = result.stdout_text.split("\n")
    assert "MINE=a = b" in lines and "c" in lines and "EMPTY=" in lines, lines  # noqa: PT018
    assert any(line.startswith("PATH=/") for line in lines), lines
    assert "of the host" not in result.stdout_text
    assert b"MINE" not in (await box.exec(["env"])).stdout


@check_box
async def a_user_that_cannot_be_had_is_named(box: Box) -> None:
    for user in ("no-such-user", "", "a\0b", "a:b", -1, 1.5, True):
        with raises(UserUnsupported):
            await box.exec(["true"], user=user)  # pyright: ignore[reportArgumentType] - on purpose
    with raises(UserUnsupported, text="no-such-user"):
        await box.exec(["true"], user="no-such-user")
    with raises(UserUnsupported, text="no-such-user"):
        await box.files.read("x", user="no-such-user")


@check_box
async def a_command_runs_as_the_user_that_is_named(box: Box) -> None:
    own = (await box.exec(["id", "-u"])).stdout_text.strip()
    assert (await box.exec(["id", "-u"], user=int(own))).stdout_text.strip() == own
    try:
        result = await box.exec(["id", "-u"], user="root")
    except UserUnsupported as error:
        raise CheckSkipped(str(error)) from error
    assert result.stdout == b"0\n", result
    await box.files.write("of-root", "1", mode=0o600, user="root")
    assert await box.files.read("of-root", user="root") == b"1"
    assert (await box.exec(["cat", "of-root"], user=0)).stdout == b"1"
    assert (await box.exec(["cat", "of-root"])).exit_code == 1
    await box.files.remove("of-root", user="root")


@check_box
async def commands_run_at_once(box: Box) -> None:
    text = "touch here$N; for n in 1 2 3 4 5; do while ! test -e here$n; do sleep 0.01; done; done"
    running = [box.exec(f"{text}; echo $N", env={"N": str(n)}) for n in range(1, 6)]
    results = await asyncio.gather(*running)
    assert [result.stdout for result in results] == [b"%d\n" % n for n in range(1, 6)], results


@check_box
async def much_output_of_several_commands_is_kept_apart(box: Box) -> None:
    sizes = [500_000 + n for n in range(5)]
    results = await asyncio.gather(*(box.exec(f"head -c {size} /dev/zero") for size in sizes))
    assert [len(result.stdout) for result in results] == sizes


@check_box
async def a_command_keeps_no_state_of_the_shell(box: Box) -> None:
    await box.exec("cd /tmp; export LEFT=1")
    result = await box.exec("pwd -P; echo ${LEFT-none}")
    assert result.stdout_text == f"{box.inner_work_dir}\nnone\n", result


@check_box
async def usage_is_reported(box: Box) -> None:
    usage = (await box.exec("i=0; while test $i -lt 20000; do i=$((i+1)); done")).usage
    assert usage.wall_seconds > 0, usage
    assert usage.cpu_seconds > 0, usage


@check_box
async def a_stream_that_nobody_reads_holds_up_its_command_only(box: Box) -> None:
    text = "head -c 500000000 /dev/zero; touch ended"
    stream = box.exec_stream(text, max_output_bytes=None)
    assert await anext(stream) != b""
    for _ in range(10):
        assert len((await box.exec("head -c 1000000 /dev/zero")).stdout) == 1_000_000
    assert not await box.files.exists("ended")
    await stream.aclose()
    await wait_for_no_commands(box)
    pieces = [piece async for piece in box.exec_stream("cat; exit 3", stdin=b"given")]
    assert [piece for piece in pieces if isinstance(piece, tuple)] == [(1, b"given")], pieces
    assert isinstance(pieces[-1], CommandResult), pieces
    assert pieces[-1].exit_code == 3, pieces
