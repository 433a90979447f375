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
    install = [
        find_uv_bin(),
        "pip",
        "install",
        "--python",
        found.env_exe,
        str(wheel(tmp_path / "wheels", "other", word="two")),
    ]
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


def test_commands_of_packages_run_with_the_blocks_python(kind: str, tmp_path: Path) -> None:
    packages = [requirement(wheel(tmp_path / "wheels"))]
    code = "tiny; tiny-sh; python -m tiny; sh -c tiny"
    [shell, [from_python]] = outputs(
        kind, [("sh", code), ("python", _FROM_PYTHON)], packages=packages
    )
    command, by_sh, module, again = shell
    assert by_sh == "one by sh"
    word, program, sees_other, executable = from_python.split()
    assert (word, sees_other, program) == ("one", "False", executable)
    assert {command, module, again} == {f"one {executable} False"}


def test_commands_are_files_beside_python(kind: str, tmp_path: Path) -> None:
    packages = [requirement(wheel(tmp_path / "wheels"))]
    code = (
        "import os, sys, sysconfig\n"
        "for folder in os.path.dirname(sys.executable), sysconfig.get_path('scripts'):\n"
    )
    code += (
        "    print(os.access(folder + '/tiny', os.X_OK), os.access(folder + '/tiny-sh', os.X_OK))"
    )
    assert outputs(kind, [("python", code)], packages=packages) == [["True True"] * 2]


@pytest.mark.parametrize("kind", BLOCKS)
def test_commands_of_a_virtual_environment_run_with_the_blocks_python(
    kind: str, context: SimpleNamespace
) -> None:
    blocks = [
        ("sh", "other; other-sh"),
        ("python", "import sys; print('two', sys.executable, True)"),
    ]
    shell, python = outputs(kind, blocks, virtual_env_context=context)
    assert shell == [*python, "two by sh"]


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_virtual_environment_may_have_a_relative_path(
    kind: str, context: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = venv.EnvBuilder(with_pip=False).ensure_directories("own")
    assert not os.path.isabs(relative.env_exe)
    blocks = [
        ("sh", "other; other-sh"),
        ("python", "import sys; print('two', sys.executable, True)"),
    ]
    shell, python = outputs(kind, blocks, virtual_env_context=relative, work_dir="work")
    assert shell == [*python, "two by sh"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_virtual_environment_is_refused(kind: str) -> None:
    cls, own = KINDS[kind]
    parameters: dict[str, Any] = {**own, "virtual_env_context": "venv"}
    with pytest.raises(ValueError, match=r"virtual_env_context must be .*create_virtual_env"):
        cls(**parameters)


@pytest.mark.parametrize("kind", BLOCKS)
def test_commands_of_a_virtual_environment_see_the_packages_too(
    kind: str, context: SimpleNamespace, tmp_path: Path
) -> None:
    packages = [
        requirement(wheel(tmp_path / "wheels")),
        requirement(wheel(tmp_path / "wheels", "other", word="newer")),
    ]
    blocks = [("sh", "tiny; other; other-sh"), ("python", "import sys; print(sys.executable)")]
    shell, [executable] = outputs(kind, blocks, packages=packages[:1], virtual_env_context=context)
    assert shell == [f"one {executable} True", f"two {executable} True", "two by sh"]
    shell, [executable] = outputs(kind, blocks, packages=packages, virtual_env_context=context)
    assert shell == [f"one {executable} True", f"newer {executable} True", "newer by sh"], (
        "the commands are not those of the imported packages"
    )


# Not with Landlock: pip lists a folder that is not visible there.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "landlock"])
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
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "local"])
def test_commands_of_the_caller_s_python_run_with_the_blocks_python(
    kind: str, tmp_path: Path
) -> None:
    code = "pytest --version; head -n 1 $(command -v pytest); tiny"
    from_python = "import subprocess, sys\nsubprocess.run(['pytest', '--version'])\n"
    packages = [requirement(wheel(tmp_path / "wheels", word="given"))]
    [version, first_line, tiny], [again, executable] = outputs(
        kind,
        [("sh", code), ("python", f"{from_python}print(sys.executable)")],
        packages=packages,
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


@pytest.mark.parametrize("name", ["with a blank", "long" * 40], ids=["blank", "long"])
@pytest.mark.parametrize("kind", ["local", "landlock"])
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
    environment = run_async(environment_for(packages))
    before = {path: path.read_bytes() for path in (environment / "bin").iterdir() if path.is_file()}
    outputs(
        "sandbox",
        [("sh", "tiny; echo x > $(command -v tiny); ! (echo x >> $(command -v tiny-sh)) 2>&-")],
        packages=packages,
    )
    assert {
        path: path.read_bytes() for path in (environment / "bin").iterdir() if path.is_file()
    } == before


@pytest.mark.parametrize(
    "shebang",
    [
        "#!/a/b/bin/python\n",
        "#!/a/b/bin/python3.12 -E\n",
        "#!/usr/bin/env python3\n",
        "#!/bin/sh\n'''exec' '/a b/bin/python' \"$0\" \"$@\"\n' '''\n",
        (
            "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' "
            "\"$0\" \"$@\"\n' '''\n"
        ),
    ],
)
def test_python_scripts_are_recognised_by_their_first_lines(shebang: str) -> None:
    assert (
        with_shebang("/c/python", f"{shebang}import sys\n".encode()) == b"#!/c/python\nimport sys\n"
    )


@pytest.mark.parametrize(
    "text", [b"#!/bin/sh\necho python\n", b"#!/opt/python/bin/ruby\n", b"\x7fELF#!python\n", b""]
)
def test_other_programs_are_not_changed(text: bytes) -> None:
    assert with_shebang("/c/python", text) == text


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
