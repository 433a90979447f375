"""A live session in a container: what the sandbox's sessions do, without a namespace of its own; and what is less there."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import BackendError, BackendLost, CheckpointError, DockerSessionCodeExecutor
from tests.containers import docker_engine
from tests.executors.session import session_image
from tests.executors.session.live_session import Live, forked, wait


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        yield session_image.prepare(patch)


def session(image: str, **options: Any) -> Live:
    options.setdefault("timeout", 15)
    return Live(DockerSessionCodeExecutor(image, **options))


def container(live: Live) -> str:
    """Give the name of the container that it lives in."""
    assert isinstance(live.executor, DockerSessionCodeExecutor)
    assert live.executor.container is not None
    return live.executor.container


@pytest.fixture(scope="module")
def shared(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with session(image, work_dir=tmp_path_factory.mktemp("work")) as live:
        yield live


@pytest.fixture
def live(shared: Live) -> Live:
    """A session that runs; what tests before this one left in it is still there."""
    return shared


# what the image needs


def test_an_image_without_ipython_is_told_with_what_to_install(image: str) -> None:
    with pytest.raises(BackendError, match=r"pip install ipython"):
        wait(DockerSessionCodeExecutor(docker_engine.running().image("python")).start())


def test_an_image_without_python_is_told(image: str) -> None:
    with pytest.raises(BackendError, match=r"the image has no Python.*pip install ipython"):
        wait(DockerSessionCodeExecutor(docker_engine.running().image("shell")).start())


# blocks, displays, values


def test_state_stays_and_values_show(live: Live) -> None:
    live.done("def f(): return x + 1\nx = 41")
    assert live.done("f()") == "42"
    assert live.done("_ + 1") == "43"


def test_rich_values_are_displayed_and_saved(live: Live) -> None:
    result = live.run("class Rich:\n    def _repr_html_(self): return '<b>bold</b>'\nRich()")
    assert result.displays[0]["text/html"] == "<b>bold</b>"
    [file] = result.output_files
    assert (file.parent, file.read_text()) == (live.folder, "<b>bold</b>")


def test_values_go_in_and_out(live: Live) -> None:
    for value in ({"a": [1, None, "ü"]}, b"\0bytes", 1.5):
        live.set("value", value)
        assert live.get("value") == value
    assert "value" in {variable.name for variable in wait(live.executor.variables())}
    with pytest.raises(KeyError):
        live.get("nothing_of_the_kind")


def test_shell_blocks_share_the_work_folder(live: Live) -> None:
    live.done("open('shared', 'w').write('from python') and None")
    assert live.done("cat shared; pwd", "sh") == "from python/workspace"
    assert (live.folder / "shared").read_text() == "from python"


def test_functions_can_be_imported(image: str) -> None:
    def double(number: int) -> int:
        return 2 * number

    with session(image, functions=[double]) as live:
        assert live.done("from functions import double\ndouble(21)") == "42"


def test_input_is_answered_by_the_callback(image: str) -> None:
    def answer(prompt: str) -> str:
        return f"answer to {prompt}"

    with session(image, input_callback=answer) as live:
        assert live.done("input('who? ')") == "'answer to who? '"


# no block takes it down

ENDINGS = {
    "os._exit(3)": 3,
    "import ctypes; ctypes.string_at(0)": 139,
    "import os; os.kill(os.getpid(), 9)": 137,
    "import os; os.execv('/bin/sh', ['sh', '-c', 'exit 7'])": 7,
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass": 124,
}


def test_a_block_that_ends_the_process_costs_itself_alone(image: str) -> None:
    with session(image, timeout=1) as live:
        live.done("import os\nx = 1")
        for code, exit_code in ENDINGS.items():
            result = live.run(f"x = 2\n{code}")
            assert (result.exit_code, result.session_restored) == (exit_code, True), (code, result)
            assert live.done("x") == "1", code


def test_an_interrupt_keeps_what_the_block_has_done_so_far(image: str) -> None:
    with session(image, timeout=1) as live:
        result = live.run("x = 2\nprint('so far')\nwhile True: pass")
        assert (result.exit_code, result.output, result.session_restored) == (
            124,
            "so far\n\nTimeout",
            False,
        )
        assert live.done("x") == "2"


def test_processes_of_a_block_end_with_it_unless_they_may_stay(image: str) -> None:
    start = "import subprocess; p = subprocess.Popen(['sleep', '100'])"
    with session(image) as live, session(image, keep_processes=True) as keeping:
        for one in (live, keeping):
            one.done(start)
        assert live.done("print(p.wait(5))") == "-9"
        assert keeping.done("print(p.poll())") == "None"


def test_a_block_that_ends_all_there_is_costs_the_session_and_says_so(image: str) -> None:
    with session(image) as live:
        live.done("x = 1; open('kept', 'w').write('kept') and None")
        for code in ("os.kill(-1, 9)", "os.kill(os.getppid(), 9)"):
            result = live.run(f"import os; x = 1\n{code}\nimport time; time.sleep(5)")
            assert (result.exit_code, result.session_restored) == (137, False), result
            assert "The session was started afresh: its variables are gone." in result.notice
            assert live.run("x").exit_code == 1
            assert live.done("print(open('kept').read())") == "kept"


def test_without_copies_a_lost_session_begins_afresh(image: str) -> None:
    with session(image, checkpoints=False) as live:
        live.done("x = 1")
        result = live.run("import os; os._exit(3)")
        assert (result.exit_code, result.notice) == (
            3,
            "The session was started afresh: its variables are gone.",
        )
        assert live.run("x").exit_code == 1


# checkpoints


def test_restoring_brings_memory_and_work_folder_back(live: Live) -> None:
    live.done("x = [1]; open('f', 'w').write('one') and None")
    mark = live.checkpoint()
    for _ in range(2):
        live.done("x.append(2); open('f', 'w').write('two'); open('g', 'w').close()")
        live.restore(mark)
        assert (
            live.done("import os; print(x, open('f').read(), os.path.exists('g'))")
            == "[1] one False"
        )
    wait(live.executor.drop(mark))
    with pytest.raises(CheckpointError, match="dropped"):
        live.restore(mark)


def test_what_cannot_be_copied_is_refused_by_name(image: str) -> None:
    with session(image, keep_processes=True) as live:
        live.done(
            "import threading, time; t = threading.Thread(target=time.sleep, args=(30,), name='counter'); t.start()"
        )
        for copy in (live.checkpoint, live.fork):
            with pytest.raises(CheckpointError, match="the Python thread 'counter'"):
                copy()
        assert live.done("1") == "1"


# branches


def test_branches_start_from_all_there_is_and_see_nothing_of_each_other(live: Live) -> None:
    live.done(
        "x = [1]; open('w', 'w').write('w'); out = open('log', 'w'); out.write('held back\\n') and None"
    )
    with forked(live, 2) as (one, other):
        assert one.folder != other.folder != live.folder
        one.done("x.append('one'); open('w', 'w').write('one'); out.write('of one'); out.flush()")
        assert (
            one.done("print(x, open('w').read(), open('log').read())")
            == "[1, 'one'] one held back\nof one"
        )
        for unaware in (other, live):
            assert (
                unaware.done("print(x, open('w').read(), open('log').read())") == "[1] w held back"
            )
        assert one.done("cat w", "sh") == "one"
        assert (one.folder / "w").read_text() == "one"
        assert one.run("import os; open('made', 'w').close()").files == ["made"]
    assert live.done("out.close(); x") == "[1]"


def test_each_branch_has_the_folders_of_before_in_its_own_work_folder(image: str) -> None:
    with session(image) as live:
        assert (
            live.done(
                "import sys, os\nsys.argv, sys.orig_argv[1:], [*map(str, _dh)] == [os.getcwd()]"
            )
            == "([''], [], True)"
        )
        live.done("%mkdir in\n%cd -q in\n%cd -q /\n%cd -q -")
        with forked(live) as (branch,):
            here = branch.done("print(os.getcwd())")
            assert here != "/workspace"
            assert branch.done("print(*_dh)") == f"{here} {here}/in / {here}/in {here}"
            assert branch.done("%cd -") == f"{here}/in"
            assert branch.done("%%bash\npwd") == f"{here}/in"
            branch.checkpoint()
            assert (
                live.done("print(os.getcwd(), *_dh)")
                == "/workspace/in /workspace /workspace/in / /workspace/in"
            )


def test_files_of_branches_belong_to_the_owner_of_the_work_folder(
    image: str, tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 54321, 54322)
    with session(image, work_dir=tmp_path) as live:
        live.done("open('made', 'w').close()")
        with forked(live) as (branch,):
            branch.done("open('made', 'a').write('x'); open('own', 'w').close()")
            for name in (".", "made", "own"):
                status = (branch.folder / name).stat()
                assert (status.st_uid, status.st_gid) == (
                    tmp_path.stat().st_uid,
                    tmp_path.stat().st_gid,
                ), name


def test_branches_of_a_checkpoint_and_of_branches(live: Live) -> None:
    live.done("x = 1; open('f', 'w').write('one') and None")
    mark = live.checkpoint()
    live.done("x = 2; open('f', 'w').write('two') and None")
    with forked(live, 2, mark) as (one, other):
        one.done("x = 3; open('f', 'w').write('three') and None")
        assert other.done("print(x, open('f').read())") == "1 one"
        with forked(one) as (below,):
            assert below.done("print(x, open('f').read())") == "3 three"
            below.done("x = 4")
        assert one.done("x") == "3"
    assert live.done("print(x, open('f').read())") == "2 two"


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_branch_recovers_and_has_checkpoints_of_its_own(image: str, checkpoints: bool) -> None:
    with session(image, checkpoints=checkpoints) as live:
        live.done("import os; x = 1")
        with forked(live) as (branch,):
            for _ in range(2):
                result = branch.run("x = 2; os._exit(3)")
                assert (result.exit_code, result.session_restored) == (3, True), result
                assert branch.done("print(x, os.getcwd() == '/workspace')") == "1 False"
                result = branch.run("os.kill(os.getpid(), 9)")
                assert (result.exit_code, result.session_restored) == (137, checkpoints), result
            mark = branch.checkpoint()
            branch.done("x = 5; open('f', 'w').close()")
            branch.restore(mark)
            assert branch.done("print(x, os.path.exists('f'))") == "1 False"
        assert live.done("x") == "1"


def test_branches_outlive_their_parent_and_the_container_ends_with_the_last(image: str) -> None:
    parent = session(image)
    parent.done("x = 1")
    with forked(parent, 2) as (one, other):
        name = container(one)
        parent.stop()
        assert one.done("x") == "1"
        one.stop()
        assert other.done("x") == "1"
        assert docker_engine.running().docker("ps", "--filter", f"name={name}", "--quiet")
    assert (
        docker_engine.running().docker("ps", "--all", "--filter", f"name={name}", "--quiet") == ""
    )


def test_a_branch_that_restarts_gets_a_container_of_its_own(image: str) -> None:
    with session(image) as live:
        live.done("x = 1; open('f', 'w').write('kept') and None")
        with forked(live) as (branch,):
            wait(branch.executor.restart())
            assert container(branch) != container(live)
            assert (
                branch.done("import os; print('x' in globals(), open('f').read(), os.getcwd())")
                == "False kept /workspace"
            )
        assert live.done("x") == "1"


def test_a_branch_that_ends_all_there_is_is_gone_and_its_parent_begins_afresh(image: str) -> None:
    with session(image) as live:
        live.done("x = 1")
        with forked(live) as (branch,):
            with pytest.raises(BackendLost, match="The branch is gone"):
                branch.run("import os; os.kill(-1, 9)")
            assert "started afresh" in live.run("1").notice
            assert live.done("1") == "1"


def test_a_branch_that_ends_its_own_guard_is_gone_alone(live: Live) -> None:
    live.done("x = 1")
    with forked(live, 2) as (one, other):
        with pytest.raises(BackendLost, match="The branch is gone"):
            one.run("import os, time; os.kill(os.getppid(), 9); time.sleep(5)")
        assert [each.done("x") for each in (live, other)] == ["1", "1"]
        assert [each.run("x").notice for each in (live, other)] == ["", ""]


def test_branches_run_at_the_same_time(live: Live) -> None:
    from cellblock import CodeBlock

    live.done("import time")
    with forked(live, 3) as branches:

        async def together() -> list[str]:
            block = [CodeBlock("time.sleep(4); 'done'", "python")]
            results = await asyncio.gather(
                *(branch.executor.execute_code_blocks(block) for branch in branches)
            )
            return [result.output.strip() for result in results]

        began = time.monotonic()
        assert wait(together()) == ["'done'"] * 3
        assert time.monotonic() - began < 10


def test_with_files_that_are_copied_state_stays_and_copies_are_refused(
    image: str, tmp_path: Path
) -> None:
    with session(image, work_dir=tmp_path, transfer="copy") as live:
        live.done("x = 1; open('f', 'w').write('made inside') and None")
        assert (tmp_path / "f").read_text() == "made inside"
        assert live.run("import os; os._exit(3)").session_restored
        for copy in (live.checkpoint, live.fork):
            with pytest.raises(CheckpointError, match="copy"):
                copy()
        assert live.done("x") == "1"


@pytest.mark.parametrize("options", [{"stop_container": False}, {"bind_dir": "work"}])
def test_branches_that_the_engine_could_not_see_are_refused(
    image: str, options: dict[str, Any], tmp_path: Path
) -> None:
    if "bind_dir" in options:
        options = {"bind_dir": tmp_path}
    with session(image, work_dir=tmp_path, **options) as live:
        name = container(live)
        live.done("x = 1")
        mark = live.checkpoint()
        with pytest.raises(CheckpointError, match="the engine sees"):
            live.fork()
        live.restore(mark)
        assert live.done("x") == "1"
    if "bind_dir" not in options:
        docker_engine.running().docker("rm", "--force", name)


# what is less than in the sandbox

SEEN = {
    "a file in /tmp": (
        "open('/tmp/left', 'w').close()",
        "import os; print(os.path.exists('/tmp/left'))",
    ),
    "the process list": (
        "import subprocess; p = subprocess.Popen(['sleep', '4321'])",
        "import glob; print(any('4321' in open(f).read() for f in glob.glob('/proc/[0-9]*/cmdline')))",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_branches_share_what_is_the_containers(name: str, image: str) -> None:
    leave, find = SEEN[name]
    with session(image, keep_processes=True) as live, forked(live, 2) as (one, other):
        one.done(leave)
        assert other.done(find) == "True"


def test_a_saved_configuration_makes_the_same(image: str) -> None:
    executor = DockerSessionCodeExecutor(
        image, checkpoints=False, keep_processes=True, timeout=7, network="bridge"
    )
    model = executor.dump_component()
    again = DockerSessionCodeExecutor.load_component(model)
    assert model.provider == "cellblock.DockerSessionCodeExecutor"
    assert again.dump_component() == model
