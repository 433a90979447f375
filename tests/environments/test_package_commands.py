"""Commands of packages come first in PATH and run with the Python of the blocks."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from uv import find_uv_bin

from cellblock import (
    CodeBlock,
    CodeExecutor,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
)
from cellblock.environments.interpreter import Interpreter, own_commands
from cellblock.environments.shebang import shebang_for, with_shebang
from cellblock.environments.virtualenv import environment_for
from tests.executors.session.live_session import run_async
from tests.suite.tiers import exhaustive

# Its command prints which Python runs it, and whether it can import another package.
_PROGRAM = """\
import importlib.util, sys
word = {word!r}
def main():
    print(word, sys.executable, importlib.util.find_spec("other") is not None)
if __name__ == "__main__":
    main()
"""
_FROM_PYTHON = """\
import subprocess, sys
print(subprocess.run(["tiny"], capture_output=True, text=True).stdout.strip(), sys.executable)
"""
KINDS: dict[str, tuple[type[CodeExecutor], dict[str, Any]]] = {
    "sandbox": (SandboxCommandLineCodeExecutor, {}),
    "landlock": (SandboxCommandLineCodeExecutor, {"isolation": "landlock"}),
    "local": (LocalCommandLineCodeExecutor, {}),
    "session": (SandboxSessionCodeExecutor, {}),
}
BLOCKS = ("sandbox", "landlock", "local")  # a session needs IPython in the virtual environment
pytestmark = [
    pytest.mark.pythons,
    pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor"),
]


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_OFFLINE", "1")


def wheel(folder: Path, name: str = "tiny", *, word: str = "one", version: str = "1.0") -> Path:
    """Create a wheel with a module and a command `name`, and the shell script `name`-sh."""
    folder.mkdir(exist_ok=True)
    made, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}"
    files = {
        f"{name}.py": _PROGRAM.format(word=word),
        f"{info}.data/scripts/{name}-sh": f"#!/bin/sh\necho {word} by sh\n",
        f"{info}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{info}.dist-info/RECORD"] = "".join(
        f"{path},,\n" for path in [*files, f"{info}.dist-info/RECORD"]
    )
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            mode = 0o100755 if "/scripts/" in path else 0o100644
            entry.external_attr = mode << 16  # pip uses it
            archive.writestr(entry, text)
    return made


def requirement(made: Path) -> str:
    return f"{made.name.partition('-')[0]} @ {made.as_uri()}"


@pytest.fixture
def context(tmp_path: Path) -> SimpleNamespace:
    """Return the context of a virtual environment that contains `other`."""
    builder = venv.EnvBuilder(with_pip=False)
    builder.create(tmp_path / "own")
    found = builder.ensure_directories(tmp_path / "own")
    other = wheel(tmp_path / "wheels", "other", word="two")
    install = [find_uv_bin(), "pip", "install", "--python", found.env_exe, str(other)]
    subprocess.run(install, check=True, capture_output=True)
    return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def outputs(kind: str, blocks: Sequence[tuple[str, str]], **parameters: Any) -> list[list[str]]:
    """Run blocks, which must succeed, and return the output lines of each."""
    cls, own = KINDS[kind]

    async def main() -> list[list[str]]:
        async with cls(**own, **parameters) as executor:
            found: list[list[str]] = []
            for language, code in blocks:
                result = await executor.execute_code_blocks([CodeBlock(code, language)])
                assert result.exit_code == 0, result.output
                found.append(result.output.splitlines())
            return found

    return run_async(main())


LISTS_COMMANDS = """
import os, sys, sysconfig
for folder in os.path.dirname(sys.executable), sysconfig.get_path('scripts'):
    print(os.access(folder + '/tiny', os.X_OK), os.access(folder + '/tiny-sh', os.X_OK))
"""


def test_commands_of_packages_are_files_beside_python_and_run_with_it(
    kind: str, tmp_path: Path
) -> None:
    packages = [requirement(wheel(tmp_path / "wheels"))]
    code = "tiny; tiny-sh; python -m tiny; sh -c tiny"
    blocks = [("sh", code), ("python", _FROM_PYTHON), ("python", LISTS_COMMANDS)]
    [shell, [from_python], listed] = outputs(kind, blocks, packages=packages)
    command, by_sh, module, again = shell
    assert by_sh == "one by sh"
    word, program, sees_other, executable = from_python.split()
    assert (word, sees_other, program) == ("one", "False", executable)
    assert {command, module, again} == {f"one {executable} False"}
    assert listed == ["True True"] * 2


OF_ENVIRONMENT = [
    ("sh", "other; other-sh"),
    ("python", "import sys; print('two', sys.executable, True)"),
]


@pytest.mark.parametrize("kind", exhaustive(BLOCKS))
def test_commands_of_a_virtual_environment_run_with_the_blocks_python(
    kind: str, context: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = venv.EnvBuilder(with_pip=False).ensure_directories("own")
    assert not os.path.isabs(relative.env_exe)
    for given, work in ((context, {}), (relative, {"work_dir": "work"})):
        shell, python = outputs(kind, OF_ENVIRONMENT, virtual_env_context=given, **work)
        assert shell == [*python, "two by sh"]


def test_what_is_no_virtual_environment_is_refused() -> None:
    for cls, own in KINDS.values():
        parameters: dict[str, Any] = {**own, "virtual_env_context": "venv"}
        with pytest.raises(ValueError, match=r"virtual_env_context must be .*create_virtual_env"):
            cls(**parameters)


@pytest.mark.parametrize("kind", exhaustive(BLOCKS))
def test_commands_of_a_virtual_environment_see_the_packages_too(
    kind: str, context: SimpleNamespace, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    packages = [requirement(wheel(wheels)), requirement(wheel(wheels, "other", word="newer"))]
    blocks = [("sh", "tiny; other; other-sh"), ("python", "import sys; print(sys.executable)")]
    for given, word in ((packages[:1], "two"), (packages, "newer")):
        shell, [executable] = outputs(kind, blocks, packages=given, virtual_env_context=context)
        assert shell == [f"one {executable} True", f"{word} {executable} True", f"{word} by sh"]


# Not with Landlock: pip lists a folder that is not visible there.
@pytest.mark.parametrize("kind", exhaustive(["sandbox", "local", "session"]))
def test_command_installed_by_a_block_comes_first(kind: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    newer = wheel(work, word="newer", version="2.0")
    blocks = [
        ("sh", f"pip install -q --no-index --disable-pip-version-check {newer.name}"),
        ("sh", "tiny; tiny-sh"),
    ]
    packages = [requirement(wheel(tmp_path / "wheels"))]
    _, (command, by_sh) = outputs(kind, blocks, packages=packages, work_dir=work)
    assert (command.split()[0], by_sh) == ("newer", "newer by sh")


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the tests need a virtual environment")
@pytest.mark.parametrize("kind", exhaustive(["sandbox", "landlock", "session"]))
def test_commands_of_the_caller_s_python_run_with_the_blocks_python(
    kind: str, tmp_path: Path
) -> None:
    code = "pytest --version; head -n 1 $(command -v pytest); tiny"
    from_python = "import subprocess, sys\nsubprocess.run(['pytest', '--version'])\n"
    packages = [requirement(wheel(tmp_path / "wheels", word="given"))]
    [version, first_line, tiny], [again, executable] = outputs(
        kind, [("sh", code), ("python", f"{from_python}print(sys.executable)")], packages=packages
    )
    assert version == again == f"pytest {pytest.__version__}"
    assert first_line == f"#!{executable}"
    assert tiny.startswith(f"given {executable}")


def test_large_and_binary_scripts_of_the_caller_s_python_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").touch()
    (programs := tmp_path / "bin").mkdir()
    start = f"#!{programs}/python\n"
    for name, rest in (("small", b"1"), ("large", b"#" * 100_000), ("archive", b"PK\xff")):
        (programs / name).write_bytes(start.encode() + rest)
        (programs / name).chmod(0o755)
    packages = (f"{tmp_path}/lib/python3/site-packages",)
    scripts, links = own_commands(Interpreter("/python", (), packages, "3"), "/env/python")
    assert scripts == {"small": "#!/env/python\n1"}
    assert links == {name: f"{programs}/{name}" for name in ("large", "archive")}


def test_commands_come_before_the_caller_s_path(tmp_path: Path) -> None:
    (own_folder := tmp_path / "mine").mkdir()
    (own_folder / "tiny").write_text("#!/bin/sh\necho mine\n")
    (own_folder / "tiny").chmod(0o755)
    path = f"{own_folder}:{os.environ['PATH']}"
    packages = [requirement(wheel(tmp_path / "wheels"))]
    [[line]] = outputs("local", [("sh", "tiny")], packages=packages, env={"PATH": path})
    assert line.startswith("one ")


@pytest.mark.parametrize("name", exhaustive(["with a blank", "long" * 40]), ids=["blank", "long"])
@pytest.mark.parametrize("kind", exhaustive(["local", "landlock"]))
def test_commands_run_wherever_temporary_files_are(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    packages = [requirement(wheel(tmp_path / "wheels"))]
    [[command, *_]] = outputs(kind, [("sh", "tiny; pip --version")], packages=packages)
    assert command.startswith(f"one {folder}/")


def test_cached_environment_is_not_changed(tmp_path: Path) -> None:
    packages = [requirement(wheel(tmp_path / "wheels"))]
    programs = run_async(environment_for(packages)) / "bin"

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in programs.iterdir() if path.is_file()}

    before = contents()
    code = "tiny; echo x > $(command -v tiny); ! (echo x >> $(command -v tiny-sh)) 2>&-"
    outputs("sandbox", [("sh", code)], packages=packages)
    assert contents() == before


OF_PYTHON = [
    "#!/a/b/bin/python\n",
    "#!/a/b/bin/python3.12 -E\n",
    "#!/usr/bin/env python3\n",
    "#!/bin/sh\n'''exec' '/a b/bin/python' \"$0\" \"$@\"\n' '''\n",
    (
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' "
        "\"$0\" \"$@\"\n' '''\n"
    ),
]
OF_OTHERS = [b"#!/bin/sh\necho python\n", b"#!/opt/python/bin/ruby\n", b"\x7fELF#!python\n", b""]


def test_only_scripts_of_python_by_their_first_lines_are_changed() -> None:
    found = [with_shebang("/c/python", f"{one}import sys\n".encode()) for one in OF_PYTHON]
    assert found == [b"#!/c/python\nimport sys\n"] * len(OF_PYTHON)
    assert [with_shebang("/c/python", text) for text in OF_OTHERS] == OF_OTHERS


def test_shebang_for_an_unusual_path_uses_a_shell(tmp_path: Path) -> None:
    (folder := tmp_path / f"it's {'long' * 30}").mkdir()
    (folder / "python").symlink_to(sys.executable)
    (program := tmp_path / "program").write_text(
        f"{shebang_for(str(folder / 'python'))}import sys; print(sys.argv[1:])\n"
    )
    program.chmod(0o755)
    assert (
        subprocess.run([program, "a b", "c"], capture_output=True, text=True).stdout
        == "['a b', 'c']\n"
    )
