"""Tests of the sandbox again: as a user without an account and as two unusual kinds of root.

The one is root of a user namespace, as in a rootless container. The other cannot mount, as in other
containers. An ordinary user runs all tests of the sandbox in `.ci/run`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock.sandbox.setup import namespaces
from tests.plain_user import unprivileged_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_KEPT_CAPABILITIES = (
    "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw "
    "sys_chroot mknod setfcap"
)
CONTAINER_ROOT = [
    "setpriv",
    f"--bounding-set=-all,{','.join(f'+{name}' for name in _KEPT_CAPABILITIES.split())}",
    "--inh-caps=-all",
]
AS_ROOT = ["unshare", "--map-root-user"]
# Root outside, and no other user is mapped. The first owner of /proc/sys inside:
STILL_ROOT = {
    "root": AS_ROOT,
    "an unprivileged user": ["unshare", "--user", "--map-user=1000", "--map-group=1000"],
}
START = """
from cellblock import CodeBlock, SandboxUnavailable
from cellblock.sync import SandboxCommandLineCodeExecutor
try:
    with SandboxCommandLineCodeExecutor() as executor:
        probe = "import os; os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY); print('opened')"
        print(executor.execute_code_blocks([CodeBlock(probe, "python")]).output)
except SandboxUnavailable as error:
    print(error)
"""


def test_as_a_user_without_an_account() -> None:
    _run_tests(["test_isolation.py"], *_unprivileged_python(), [])


def test_as_root_of_a_user_namespace() -> None:
    _run_tests(["test_isolation.py", "test_programs.py"], *_unprivileged_python(), AS_ROOT)


def test_as_root_without_mount_rights() -> None:
    if not namespaces.can_use_outer_users():
        pytest.skip("not root")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    names = ["test_isolation.py", "test_programs.py", "test_leftovers.py"]
    _run_tests(names, [sys.executable], environment, CONTAINER_ROOT)


@pytest.mark.parametrize("inside", STILL_ROOT)
def test_code_is_never_root_outside_of_a_user_namespace(inside: str) -> None:
    if not namespaces.is_host_root():
        pytest.skip("not root")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [*STILL_ROOT[inside], sys.executable, "-c", START]
    output = subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=False
    ).stdout
    assert "is root outside of its user namespace" in output
    assert "Run as an unprivileged user, or map more users" in output


def _unprivileged_python() -> tuple[list[str], dict[str, str]]:
    """Return what starts Python as an unprivileged user, and its environment."""
    if os.geteuid() != 0:
        pytest.skip("the tests themselves run without root")
    made = unprivileged_command()
    if made is None:
        pytest.skip("no Python that an unprivileged user can start")
    return made


def _run_tests(
    names: list[str], python: list[str], environment: dict[str, str], wrapper: list[str]
) -> None:
    """Run the tests of some files. `wrapper` is inserted before the program of `python`."""
    here = Path(__file__).parent
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not network"]
    argv = [
        *python[:-1],
        *wrapper,
        python[-1],
        "-m",
        "pytest",
        *options,
        "-c",
        str(here.parents[1] / "pyproject.toml"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        environment = {**environment, "PYTEST_DEBUG_TEMPROOT": folder}
        done = subprocess.run(
            [*argv, *(str(here / name) for name in names)],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
