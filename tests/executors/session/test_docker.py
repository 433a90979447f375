"""A live session in a container: it does what a sandbox session does, with less isolation."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    BackendLost,
    CheckpointError,
    DockerSessionCodeExecutor,
    Limits,
)
from tests.containers import docker_engine
from tests.executors.session import session_image
from tests.executors.session.live_session import LiveSession, forked, meet, run_async
from tests.executors.session.test_saved_values import NATIVE_THREAD
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        yield session_image.use_session_image(patch)


def session(image: str, **options: Any) -> LiveSession:
    options.setdefault("timeout", 15)
    return LiveSession(DockerSessionCodeExecutor(image, **options))


def container(live: LiveSession) -> str:
    """Return the name of the session's container."""
    assert isinstance(live.executor, DockerSessionCodeExecutor)
    assert live.executor.container is not None
    return live.executor.container


@pytest.fixture(scope="module")
def shared(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSession]:
    with session(image, work_dir=tmp_path_factory.mktemp("work")) as live:
        yield live


@pytest.fixture(scope="module")
def keeping(image: str) -> Iterator[LiveSession]:
    """Yield a session that keeps the processes of its blocks."""
    with session(image, keep_processes=True) as live:
        yield live


@pytest.fixture
def live(shared: LiveSession) -> LiveSession:
    """Return a running session. It has the state that earlier tests left behind."""
    return shared


# requirements of the image


@pytest.mark.slow
def test_what_an_image_misses_is_reported_with_a_remedy(image: str) -> None:
    for name, reason in (("python", ""), ("shell", "the image has no Python.*")):
        executor = DockerSessionCodeExecutor(docker_engine.shared_engine().test_image(name))
        with pytest.raises(BackendError, match=f"{reason}pip install ipython"):
            run_async(executor.start())


# blocks, displays, variables


def test_rich_values_are_displayed_and_saved(live: LiveSession) -> None:
    result = live.run("class Rich:\n    def _repr_html_(self): return '<b>bold</b>'\nRich()")
    assert result.displays[0]["text/html"] == "<b>bold</b>"
    [file] = result.output_files
    assert (file.parent, file.read_text()) == (live.folder, "<b>bold</b>")


def test_variables_can_be_set_and_read(live: LiveSession) -> None:
    for value in ({"a": [1, None, "ü"]}, b"\0bytes", 1.5):
        live.set("value", value)
        assert live.get("value") == value
    assert "value" in {variable.name for variable in run_async(live.executor.variables())}
    with pytest.raises(KeyError):
        live.get("nothing_of_the_kind")


def test_shell_blocks_share_the_work_folder(live: LiveSession) -> None:
    live.run_ok("open('shared', 'w').write('from python') and None")
    assert live.run_ok("cat shared; pwd", "sh") == "from python/workspace"
    assert (live.folder / "shared").read_text() == "from python"


@pytest.mark.slow
def test_functions_are_imported_and_input_is_answered_by_the_callback(image: str) -> None:
    def double(number: int) -> int:
        return 2 * number

    def answer(prompt: str) -> str:
        return f"answer to {prompt}"

    with session(image, functions=[double], input_callback=answer) as live:
        assert live.run_ok("from functions import double\ndouble(21)") == "42"
        assert live.run_ok("input('who? ')") == "'answer to who? '"


# recovery

ENDINGS = {
    "os._exit(3)": 3,
    "import ctypes; ctypes.string_at(0)": 139,
    "import os; os.kill(os.getpid(), 9)": 137,
    "import os; os.execv('/bin/sh', ['sh', '-c', 'exit 7'])": 7,
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass": 124,
}


@pytest.mark.slow
def test_a_block_that_kills_its_process_only_fails_itself(image: str) -> None:
    with session(image, timeout=1) as live:
        live.run_ok("import os\nx = 1")
        for code, exit_code in ENDINGS.items():
            result = live.run(f"x = 2\n{code}")
            assert (result.exit_code, result.session_restored) == (exit_code, True), (code, result)
            assert live.run_ok("x") == "1", code


@pytest.mark.slow
def test_processes_of_a_block_are_killed_unless_kept(
    live: LiveSession, keeping: LiveSession
) -> None:
    for one in (live, keeping):
        one.run_ok("import subprocess; p = subprocess.Popen(['sleep', '100'])")
    assert live.run_ok("print(p.wait(5))") == "-9"
    assert keeping.run_ok("print(p.poll()); p.kill(); p.wait()") == "None\n-9"


@pytest.mark.slow
def test_a_block_that_kills_all_processes_loses_the_session_and_is_reported(image: str) -> None:
    with session(image) as live:
        live.run_ok("x = 1; open('kept', 'w').write('kept') and None")
        for code in ("os.kill(-1, 9)", "os.kill(os.getppid(), 9)"):
            result = live.run(f"import os; x = 1\n{code}\nimport time; time.sleep(60)")
            assert (result.exit_code, result.session_restored) == (137, False), result
            assert "The session was restarted: its variables are gone." in result.notice
            assert live.run("x").exit_code == 1
            assert live.run_ok("print(open('kept').read())") == "kept"


@pytest.mark.slow
def test_without_checkpoints_a_lost_session_is_restarted(image: str) -> None:
    with session(image, checkpoints=False) as live:
        live.run_ok("x = 1")
        result = live.run("import os; os._exit(3)")
        restarted = "The session was restarted: its variables are gone."
        assert (result.exit_code, result.notice) == (3, restarted)
        assert live.run("x").exit_code == 1


# checkpoints


def test_restore_brings_back_memory_and_work_folder(live: LiveSession) -> None:
    live.run_ok("x = [1]; open('f', 'w').write('one') and None")
    checkpoint = live.checkpoint()
    for _ in range(2):
        live.run_ok("x.append(2); open('f', 'w').write('two'); open('g', 'w').close()")
        live.restore(checkpoint)
        found = live.run_ok("import os; print(x, open('f').read(), os.path.exists('g'))")
        assert found == "[1] one False"
    run_async(live.executor.drop(checkpoint))
    with pytest.raises(CheckpointError, match="dropped"):
        live.restore(checkpoint)


@pytest.mark.slow
def test_state_that_cannot_be_copied_is_refused_and_named(keeping: LiveSession) -> None:
    keeping.run_ok("import threading; end = threading.Event()")
    keeping.run_ok("t = threading.Thread(target=end.wait, name='counter'); t.start()")
    for copy in (keeping.checkpoint, keeping.fork):
        with pytest.raises(CheckpointError, match="the Python thread 'counter'"):
            copy()
    keeping.run_ok("end.set(); t.join()")


# branches


def test_branches_start_from_the_complete_state_and_are_independent(live: LiveSession) -> None:
    live.run_ok(
        "x = [1]; open('w', 'w').write('w'); out = open('log', 'w'); "
        "out.write('held back\\n') and None"
    )
    with forked(live, 2) as (one, other):
        assert one.folder != other.folder != live.folder
        one.run_ok("x.append('one'); open('w', 'w').write('one'); out.write('of one'); out.flush()")
        show = "print(x, open('w').read(), open('log').read())"
        assert one.run_ok(show) == "[1, 'one'] one held back\nof one"
        for unaware in (other, live):
            assert unaware.run_ok(show) == "[1] w held back"
        assert one.run_ok("cat w", "sh") == "one"
        assert (one.folder / "w").read_text() == "one"
        assert one.run("import os; open('made', 'w').close()").files == ["made"]
    assert live.run_ok("out.close(); x") == "[1]"


@pytest.mark.slow
def test_each_branch_keeps_open_folders_in_its_own_work_folder(image: str) -> None:
    with session(image) as live:
        live.run_ok("import sys, os")
        known = live.run_ok("sys.argv, sys.orig_argv[1:], [*map(str, _dh)] == [os.getcwd()]")
        assert known == "([''], [], True)"
        live.run_ok("%mkdir in\n%cd -q in\n%cd -q /\n%cd -q -")
        with forked(live) as (branch,):
            here = branch.run_ok("print(os.getcwd())")
            assert here != "/workspace"
            assert branch.run_ok("print(*_dh)") == f"{here} {here}/in / {here}/in {here}"
            assert branch.run_ok("%cd -") == f"{here}/in"
            assert branch.run_ok("%%bash\npwd") == f"{here}/in"
            branch.checkpoint()
            folders = live.run_ok("print(os.getcwd(), *_dh)")
            assert folders == "/workspace/in /workspace /workspace/in / /workspace/in"


def owner(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


@pytest.mark.slow
def test_files_of_branches_belong_to_the_owner_of_the_work_folder(
    image: str, tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 54321, 54322)
    with session(image, work_dir=tmp_path) as live:
        live.run_ok("open('made', 'w').close()")
        with forked(live) as (branch,):
            branch.run_ok("open('made', 'a').write('x'); open('own', 'w').close()")
            for name in (".", "made", "own"):
                path = branch.folder / name
                assert owner(path) == owner(tmp_path), name


@pytest.mark.slow
def test_checkpoints_and_branches_can_be_forked(live: LiveSession) -> None:
    live.run_ok("x = 1; open('f', 'w').write('one') and None")
    checkpoint = live.checkpoint()
    live.run_ok("x = 2; open('f', 'w').write('two') and None")
    with forked(live, 2, checkpoint) as (one, other):
        one.run_ok("x = 3; open('f', 'w').write('three') and None")
        assert other.run_ok("print(x, open('f').read())") == "1 one"
        with forked(one) as (below,):
            assert below.run_ok("print(x, open('f').read())") == "3 three"
            below.run_ok("x = 4")
        assert one.run_ok("x") == "3"
    assert live.run_ok("print(x, open('f').read())") == "2 two"


@pytest.mark.slow
@pytest.mark.parametrize("checkpoints", exhaustive([True, False]))
def test_a_branch_recovers_and_has_its_own_checkpoints(image: str, checkpoints: bool) -> None:
    with session(image, checkpoints=checkpoints) as live:
        live.run_ok("import os; x = 1")
        with forked(live) as (branch,):
            for _ in range(2):
                result = branch.run("x = 2; os._exit(3)")
                assert (result.exit_code, result.session_restored) == (3, True), result
                assert branch.run_ok("print(x, os.getcwd() == '/workspace')") == "1 False"
                result = branch.run("os.kill(os.getpid(), 9)")
                assert (result.exit_code, result.session_restored) == (137, checkpoints), result
            checkpoint = branch.checkpoint()
            branch.run_ok("x = 5; open('f', 'w').close()")
            branch.restore(checkpoint)
            assert branch.run_ok("print(x, os.path.exists('f'))") == "1 False"
        assert live.run_ok("x") == "1"


@pytest.mark.slow
def test_branches_outlive_their_parent_and_the_container_ends_with_the_last(image: str) -> None:
    parent, docker = session(image), docker_engine.shared_engine().docker
    parent.run_ok("x = 1")
    with forked(parent, 2) as (one, other):
        name = container(one)
        parent.stop()
        assert one.run_ok("x") == "1"
        one.stop()
        assert other.run_ok("x") == "1"
        assert docker("ps", "--filter", f"name={name}", "--quiet")
    assert docker("ps", "--all", "--filter", f"name={name}", "--quiet") == ""


@pytest.mark.slow
def test_a_branch_that_restarts_gets_its_own_container(image: str) -> None:
    with session(image) as live:
        live.run_ok("x = 1; open('f', 'w').write('kept') and None")
        with forked(live) as (branch,):
            run_async(branch.executor.restart())
            assert container(branch) != container(live)
            show = "import os; print('x' in globals(), open('f').read(), os.getcwd())"
            assert branch.run_ok(show) == "False kept /workspace"
        assert live.run_ok("x") == "1"


@pytest.mark.slow
def test_a_branch_that_kills_all_processes_is_lost_and_its_parent_is_restarted(image: str) -> None:
    with session(image) as live:
        live.run_ok("x = 1")
        with forked(live) as (branch,):
            with pytest.raises(BackendLost, match="The branch is lost"):
                branch.run("import os; os.kill(-1, 9)")
            assert "restarted" in live.run("1").notice
            assert live.run_ok("1") == "1"


@pytest.mark.slow
def test_a_branch_that_kills_its_session_init_is_lost_alone(live: LiveSession) -> None:
    live.run_ok("x = 1")
    with forked(live, 2) as (one, other):
        with pytest.raises(BackendLost, match="The branch is lost"):
            one.run("import os, time; os.kill(os.getppid(), 9); time.sleep(60)")
        assert [each.run_ok("x") for each in (live, other)] == ["1", "1"]
        assert [each.run("x").notice for each in (live, other)] == ["", ""]


@pytest.mark.slow
def test_branches_run_at_the_same_time(live: LiveSession) -> None:
    with forked(live, 3) as branches:
        run_async(meet([branch.executor for branch in branches]))


@pytest.mark.slow
def test_a_stopped_first_process_holds_up_no_block(image: str) -> None:
    with session(image) as live:
        live.run_ok("import os, subprocess\nx = 1")
        live.run_ok("subprocess.Popen(['sleep', '60'])\nos.kill(os.getppid(), 19)")
        assert live.run("os.kill(os.getpid(), 9)").session_restored
        assert live.run_ok("x") == "1"


@pytest.mark.slow
def test_with_copied_files_state_is_kept_and_checkpoints_are_refused(
    image: str, tmp_path: Path
) -> None:
    with session(image, work_dir=tmp_path, transfer="copy") as live:
        live.run_ok("x = 1; open('f', 'w').write('made inside') and None")
        assert (tmp_path / "f").read_text() == "made inside"
        assert live.run("import os; os._exit(3)").session_restored
        for copy in (live.checkpoint, live.fork):
            with pytest.raises(CheckpointError, match="copy"):
                copy()
        assert live.run_ok("x") == "1"


@pytest.mark.slow
@pytest.mark.parametrize("options", exhaustive([{"stop_container": False}, {"bind_dir": "work"}]))
def test_branches_that_cannot_be_mounted_are_refused(
    image: str, options: dict[str, Any], tmp_path: Path
) -> None:
    if "bind_dir" in options:
        options = {"bind_dir": tmp_path}
    with session(image, work_dir=tmp_path, **options) as live:
        name = container(live)
        live.run_ok("x = 1")
        checkpoint = live.checkpoint()
        with pytest.raises(CheckpointError, match="must be mounted"):
            live.fork()
        live.restore(checkpoint)
        assert live.run_ok("x") == "1"
    if "bind_dir" not in options:
        docker_engine.shared_engine().docker("rm", "--force", name)


# differences from the sandbox


@pytest.mark.slow
def test_branches_share_the_container(keeping: LiveSession) -> None:
    with forked(keeping, 2) as (one, other):
        one.run_ok("open('/tmp/left', 'w').close()")
        assert other.run_ok("import os; os.path.exists('/tmp/left')") == "True"
        one.run_ok("import subprocess; p = subprocess.Popen(['sleep', '4321'])")
        found = "subprocess.run(['pgrep', '-f', 'sleep 4321']).returncode"
        assert other.run_ok(f"import subprocess; {found}").endswith("0")


@pytest.mark.slow
def test_a_saved_configuration_creates_the_same_executor(image: str) -> None:
    executor = DockerSessionCodeExecutor(
        image, checkpoints=False, keep_processes=True, timeout=7, network="bridge"
    )
    model = executor.dump_component()
    again = DockerSessionCodeExecutor.load_component(model)
    assert model.provider == "cellblock.DockerSessionCodeExecutor"
    assert again.dump_component() == model


@pytest.mark.slow
def test_a_session_with_threads_keeps_the_values_of_its_variables(
    image: str, tmp_path: Path
) -> None:
    with session(image, work_dir=tmp_path) as live:
        live.run_ok("def f(): return x\nx = [1]; y = x; odd = (n for n in [1])")
        live.run(NATIVE_THREAD)
        result = live.run("import os; os._exit(3)")
        assert "could not be saved: odd (generator)." in result.notice, result
        assert live.run_ok("f() is y, x, 'odd' in globals()") == "(True, [1], False)"
        live.run(NATIVE_THREAD)
        checkpoint = live.checkpoint()
        live.run_ok("x = 2")
        with pytest.raises(CheckpointError, match="holds values of variables only"):
            live.fork()
        live.restore(checkpoint)
        assert live.run_ok("x, f() is y") == "([1], True)"


# memory


@pytest.mark.slow
def test_out_of_memory_is_reported_and_the_session_is_restored(image: str) -> None:
    with session(image, limits=Limits(memory_bytes=200 << 20)) as live:
        live.run_ok("x = 1")
        result = live.run("y = []\nwhile True: y.append(bytearray(1 << 22))")
        found = (result.exit_code, result.outcome, result.session_restored)
        assert found == (137, "out_of_memory", True), result
        assert live.run_ok("x") == "1"


# The server is stopped, so that the kernel's OOM killer acts before it.
MEMORY_RUNS_OUT = """import os, select
ancestors = [os.getpid()]
while len(ancestors) < 4:
    ancestors.append(int(open(f"/proc/{ancestors[-1]}/stat").read().rpartition(")")[2].split()[1]))
server, this = ancestors[-1], select.poll()
this.register(os.pidfd_open(os.getpid()))
if os.fork() == 0:
    os.setsid()
    open("/proc/self/oom_score_adj", "w").write("0")
    this.poll()
    os.kill(server, 18)
    os._exit(0)
os.kill(server, 19)
y = []
while True: y.append(b"x" * (1 << 22))"""
WAIT_FOR_OOM_RESERVE = """import glob, os, time
def held(link):
    try:
        is_reserve = os.readlink(link).startswith("/memfd:reserve")
        return os.stat(link).st_blocks * 512 if is_reserve else 0
    except OSError:
        return 0
while sum(map(held, glob.glob("/proc/[0-9]*/fd/*"))) < 8 << 20: time.sleep(0.01)"""
# A process that reads smaps_rollup keeps the memory of the other process alive meanwhile.
READ_MEMORY = """import sys
while True:
    for pid in sys.argv[1:]:
        try: open(f"/proc/{pid}/smaps_rollup").read()
        except OSError: pass"""


@pytest.mark.slow
def test_memory_that_is_freed_late_only_affects_the_session(image: str) -> None:
    with (
        session(image, timeout=100, limits=Limits(memory_bytes=128 << 20)) as live,
        contextlib.ExitStack() as stack,
    ):
        live.run_ok("x = 1")
        live.run_ok(WAIT_FOR_OOM_RESERVE)
        processes = docker_engine.shared_engine().docker("top", container(live))
        pids = [line.split()[1] for line in processes.splitlines()[1:]]
        if not all(os.access(f"/proc/{pid}/smaps_rollup", os.R_OK) for pid in pids):
            pytest.skip("the memory maps of the engine's processes are not readable")
        for _ in range(3):
            reader = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", READ_MEMORY, *pids])
            )
            stack.callback(reader.kill)
        result = live.run(MEMORY_RUNS_OUT)
        found = (result.exit_code, result.outcome, result.session_restored)
        assert found == (137, "out_of_memory", True), result
        assert live.run_ok("x") == "1"
