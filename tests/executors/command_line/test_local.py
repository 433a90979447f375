"""LocalCommandLineCodeExecutor: AutoGen's parameters and warnings, environments, virtualenvs."""

import asyncio
import os
import sys
import venv
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from cellblock import (
    CodeBlock,
    CommandLineCodeResult,
    LocalCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    sync,
)

pytestmark = pytest.mark.depends_on_user

WARNING = (
    "Using LocalCommandLineCodeExecutor may execute code on the local machine which can be unsafe. "
    "For security, it is recommended to use SandboxCommandLineCodeExecutor instead."
)


@pytest.fixture(autouse=True)
def _ignore_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", WARNING[:40])
        yield


def run(code: str, language: str = "python", **parameters: Any) -> CommandLineCodeResult:
    async def main() -> CommandLineCodeResult:
        async with LocalCommandLineCodeExecutor(**parameters) as executor:
            result = await executor.execute_code_blocks([CodeBlock(code, language)])
            assert isinstance(result, CommandLineCodeResult)
            return result

    return asyncio.run(main())


def test_a_shell_block_does_not_list_its_own_file(tmp_path: Path) -> None:
    async def in_a_session() -> str:
        async with SandboxSessionCodeExecutor(work_dir=tmp_path) as executor:
            return (await executor.execute_code_blocks([CodeBlock(code, "sh")])).output

    code = "ls; echo *"
    assert run(code, "sh", work_dir=tmp_path).output == "*\n"
    assert asyncio.run(in_a_session()) == "*\n"
    assert os.listdir(tmp_path) == []


def test_a_shell_block_says_which_python_pip_served(tmp_path: Path) -> None:
    pip = tmp_path / "bin" / "pip"
    pip.parent.mkdir()
    pip.write_text("#!/somewhere/python3\n")
    pip.chmod(0o755)
    installed = "echo Successfully installed x"
    for command, is_told in (
        (f"pip install x || {installed}", True),
        (f": {sys.executable} -m pip install x; {installed}", False),
    ):
        output = run(command, "sh", env={"PATH": f"{pip.parent}:/usr/bin:/bin"}).output
        assert ("pip serves /somewhere/python3" in output) == is_told
        assert (f"Use {sys.executable} -m pip" in output) == is_told


def test_creating_it_warns_that_there_is_no_sandbox() -> None:
    with pytest.warns(UserWarning, match="unsafe") as caught:
        LocalCommandLineCodeExecutor()
    assert [str(warning.message) for warning in caught] == [WARNING]
    assert caught[0].filename == __file__


def test_the_current_folder_as_work_dir_is_deprecated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.warns(
        DeprecationWarning, match=r"^Using the current directory as work_dir is deprecated\.$"
    ):
        LocalCommandLineCodeExecutor(work_dir=".")


def test_parameters_and_defaults_are_those_of_autogen(tmp_path: Path) -> None:
    one, other = (
        LocalCommandLineCodeExecutor(),
        LocalCommandLineCodeExecutor(5, tmp_path, [], "tools", False, None),
    )
    assert (one.timeout, one.functions_module, one.cleanup_temp_files) == (60, "functions", True)
    assert (other.timeout, other.functions_module, other.cleanup_temp_files) == (5, "tools", False)
    assert other.work_dir == tmp_path
    assert {"bash", "shell", "sh", "pwsh", "powershell", "ps1", "python"} <= set(
        one.SUPPORTED_LANGUAGES
    )


def test_invalid_arguments_are_refused() -> None:
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"timeout": 0}, "Timeout must be greater than or equal to 1."),
        ({"functions_module": "no name"}, "Module name must be a valid Python identifier"),
        ({"packages": "pandas"}, "packages must be a list of strings"),
        ({"execution_policies": {"klingon": "save"}}, "klingon"),
    ]
    for parameters, message in wrongs:
        with pytest.raises(ValueError, match=message):
            LocalCommandLineCodeExecutor(**parameters)


def test_work_dir_is_created_with_its_parents_and_files_stay(tmp_path: Path) -> None:
    result = run("# filename: a.py\nprint('hi')", work_dir=tmp_path / "new" / "deep")
    assert (result.output, result.code_file) == ("hi\n", str(tmp_path / "new" / "deep" / "a.py"))
    assert (tmp_path / "new" / "deep" / "a.py").exists()


def test_files_of_blocks_without_a_name_are_removed_unless_requested_otherwise(
    tmp_path: Path,
) -> None:
    run("print(1)", work_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    result = run("print(1)", work_dir=tmp_path, cleanup_temp_files=False)
    assert [str(path) for path in tmp_path.iterdir()] == [result.code_file]


def test_blocks_run_with_the_callers_python_in_the_work_dir(tmp_path: Path) -> None:
    code = "import os, sys\nprint(sys.executable, sys.prefix, os.getcwd(), os.getuid())"
    assert (
        run(code, work_dir=tmp_path).output
        == f"{sys.executable} {sys.prefix} {tmp_path} {os.getuid()}\n"
    )


def test_the_environment_is_the_callers_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = LocalCommandLineCodeExecutor()
    monkeypatch.setenv("CELLBLOCK_TRIED", "at start")

    async def main() -> str:
        async with executor:
            os.environ["CELLBLOCK_TRIED"] = "later"
            block = CodeBlock("echo $CELLBLOCK_TRIED; echo $PATH", "sh")
            return (await executor.execute_code_blocks([block])).output

    assert asyncio.run(main()) == f"at start\n{os.environ['PATH']}\n"


def test_env_is_the_complete_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_TRIED", "caller's")
    code = "import os\nprint(sorted(set(os.environ) - {'LC_CTYPE'}), os.environ['A'])"
    assert run(code, env={"A": "1", "PATH": "/nowhere"}).output == "['A', 'PATH'] 1\n"


def test_an_empty_env_does_not_inherit_the_callers() -> None:
    assert run("import os\nprint(sorted(set(os.environ) - {'LC_CTYPE'}))", env={}).output == "[]\n"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return the context of a virtual environment without pip, as in AutoGen's documentation."""
    folder = tmp_path_factory.mktemp("venv") / "env"
    builder = venv.EnvBuilder(with_pip=False)
    builder.create(folder)
    return builder.ensure_directories(folder)


@pytest.mark.pythons
def test_a_venv_context_sets_python_and_path(context: SimpleNamespace, tmp_path: Path) -> None:
    code = "import os, sys\nprint(sys.executable, sys.prefix, os.environ['VIRTUAL_ENV'])"
    result = run(code, work_dir=tmp_path, virtual_env_context=context)
    assert result.output == f"{context.env_exe} {context.env_dir} {context.env_dir}\n"
    code, env = "command -v python; echo $PATH", {"PATH": "/usr/bin:/bin"}
    result = run(code, "sh", virtual_env_context=context, env=env)
    assert result.output == f"{context.bin_path}/python\n{context.bin_path}:/usr/bin:/bin\n"


def test_modules_in_the_work_dir_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 3")
    assert run("import mine\nprint(mine.x)", work_dir=tmp_path).output == "3\n"


def test_a_result_is_printed_as_autogen_prints_it(tmp_path: Path) -> None:
    result = str(run("print('hi')", "py", work_dir=tmp_path))
    assert result.startswith(f"exit_code=0 output='hi\\n' code_file='{tmp_path}/tmp_code_")


_SHARE = "kept = shared_memory.SharedMemory({name!r}, create=True, size=1 << 20)"
_SHARING = {
    "the program": _SHARE,
    "a program with a fork": _SHARE + "\nif os.fork() == 0: time.sleep(100)",
    "a process that is left": (
        "done, share = os.pipe()\nif os.fork() == 0:\n  "
        + _SHARE
        + "\n  os.write(share, b'x')\n  time.sleep(100)\nos.read(done, 1)"
    ),
}


@pytest.mark.parametrize("who", _SHARING)
def test_shared_memory_left_by_a_block_is_removed(tmp_path: Path, who: str) -> None:
    name = f"cellblock_test_{uuid4().hex}"
    code = "import os, time\nfrom multiprocessing import shared_memory\n"
    code += _SHARING[who].format(name=name)
    with sync.LocalCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        for _ in range(5):
            result = executor.execute_code_blocks([CodeBlock(code, "python")])
            assert result.exit_code == 0, result.output
            assert not os.path.exists(f"/dev/shm/{name}")


# In the middle of its exec, a process has no command line. This one stays so until another process
# that the block leaves behind has been killed.
_TRACKER_IN_ITS_EXEC = """import ctypes, os, struct, sys, time
libc, (killed, other) = ctypes.CDLL(None), os.pipe()
libc.sbrk.restype = ctypes.c_void_p
ready, child = os.pipe()
if os.fork() == 0:
    os.close(other)
    field = (0, 0, 0, 0, *map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[1:]))
    ends = field[50:52]
    layout = *field[26:28], *field[45:48], libc.sbrk(0), field[28], ends[0], ends[0], *ends, 0
    memory_map = struct.pack("12QII", *layout, 0, 0xFFFFFFFF)
    assert libc.prctl(35, 14, memory_map, len(memory_map), 0) == 0  # PR_SET_MM, PR_SET_MM_MAP
    assert open("/proc/self/cmdline").read() == ""
    os.write(child, b"x")
    os.read(killed, 1)
    program = "open('tracked', 'w')"
    os.execv(sys.executable, [sys.executable, "-c", program, "multiprocessing.resource_tracker"])
os.close(child)
assert os.read(ready, 1)
if os.fork() == 0:
    time.sleep(100)
"""


def test_a_resource_tracker_that_is_starting_is_awaited(tmp_path: Path) -> None:
    result = run(_TRACKER_IN_ITS_EXEC, work_dir=tmp_path)
    assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "tracked").exists()
