"""On macOS and Windows, what needs no Linux can be imported, and the rest says what to use instead.

No such machine is at hand: child processes of these tests do without what only Linux has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cellblock
from tests.command_server import CommandProcess
from tests.suite.tiers import exhaustive

PACKAGE = Path(cellblock.__file__).parent
ROOT = Path(__file__).parents[1]

# Only `cellblock` sees the other system: the standard library and the other packages have their own
# code for each, and are imported before. AF_UNIX stays: the loop of asyncio needs it here.
PRETEND = """
import asyncio, builtins, importlib, importlib.util, json, os, select, signal, socket, sys
import concurrent.futures.process, multiprocessing

for package in sys.argv[2:]:
    if importlib.util.find_spec(package.partition(".")[0]):
        importlib.import_module(package)

MISSING = {
    "darwin": {
        os: "EFD_CLOEXEC O_PATH P_PIDFD copy_file_range eventfd eventfd_read eventfd_write "
            "getresuid getxattr memfd_create pidfd_open sched_getaffinity setns setresuid splice "
            "unshare",
        select: "epoll",
        signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
        socket: "AF_NETLINK SCM_CREDENTIALS SOCK_CLOEXEC SOCK_NONBLOCK SO_PASSCRED SO_PEERCRED "
                "TCP_QUICKACK",
    },
    "win32": {
        os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WEXITED WIFEXITED WIFSIGNALED WNOHANG "
            "WNOWAIT chown chroot fchdir fchown fork forkpty getegid geteuid getgid getpgid "
            "getuid killpg mkfifo nice openpty pipe2 posix_fallocate pread pwrite readv "
            "register_at_fork sendfile setgid setpgid setsid setuid statvfs sysconf uname wait3 "
            "wait4 waitid writev",
        select: "poll",
        signal: "SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGSYS "
                "SIGTRAP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH SIGXCPU SIGXFSZ SIG_BLOCK SIG_SETMASK "
                "SIG_UNBLOCK pthread_kill pthread_sigmask setitimer sigpending sigwait",
        socket: "CMSG_LEN CMSG_SPACE MSG_DONTWAIT MSG_NOSIGNAL SCM_RIGHTS "
                "SOCK_SEQPACKET recv_fds send_fds",
    },
}
MISSING["win32"] = {
    module: f"{names} {MISSING['darwin'][module]}" for module, names in MISSING["win32"].items()
}
MODULES = {
    "darwin": set[str](),
    "win32": {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog",
              "termios", "tty"},
}
sys.platform = sys.argv[1]
for module, names in MISSING[sys.platform].items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
if sys.platform == "win32":
    os.O_BINARY = 0
import_module = builtins.__import__

def import_hidden(name, globals=None, locals=None, fromlist=(), level=0):
    importer = str((globals or {}).get("__name__"))
    if level == 0 and name in MODULES[sys.platform] and importer.startswith("cellblock"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return import_module(name, globals, locals, fromlist, level)

builtins.__import__ = import_hidden
"""

# The packages that a program uses.
PACKAGES = (
    "IPython aiodocker aiohttp anthropic azure.identity diskcache httpx ipykernel.kernelapp "
    "jupyter_client jupyter_client.provisioning.local_provisioner jupyter_server.serverapp mcp "
    "openai prompt_toolkit pydantic readline rich"
)

IMPORT_ALL = """
failed = {}
for module in json.load(sys.stdin):
    try:
        importlib.import_module(module)
    except BaseException as error:
        failed[module] = repr(error)
print(json.dumps(failed))
"""

START_ALL = """
import warnings
import cellblock

async def start_all():
    errors = []
    for name in json.load(sys.stdin):
        with warnings.catch_warnings(action="ignore"):
            made = getattr(cellblock, name)()
            try:
                await made.__aenter__()
            except Exception as error:
                errors.append((name, type(error).__name__, str(error)))
    print(json.dumps(errors))

asyncio.run(start_all())
"""


def run_elsewhere(system: str, program: str, names: list[str], packages: str) -> Any:
    """Return what `program` prints on `system`, which reads `names` and uses `packages`."""
    command = [sys.executable, "-W", "ignore", "-c", PRETEND + program, system]
    run = subprocess.run(
        [*command, *packages.split()],
        input=json.dumps(names),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def checked_modules() -> list[str]:
    """Return the modules that pyright checks for other systems."""
    text = (ROOT / "pyright-elsewhere.json").read_text(encoding="utf-8")
    settings = json.loads(re.sub(r"^//.*$", "", text, flags=re.MULTILINE))
    excluded = [ROOT / name for name in settings["exclude"]]
    assert all(path.exists() for path in excluded)
    return [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if not any(path == other or other in path.parents for other in excluded)
        and path.name != "__main__.py"
        and path.parent != PACKAGE / "integrations"  # each needs its framework
    ]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_what_needs_no_linux_can_be_imported_on(system: str) -> None:
    assert run_elsewhere(system, IMPORT_ALL, checked_modules(), PACKAGES) == {}


START_PACKAGES = "IPython jupyter_client jupyter_client.provisioning.local_provisioner pydantic"
SANDBOXES = "SandboxCommandLineCodeExecutor SandboxSessionCodeExecutor SandboxSessionServer"


@pytest.mark.parametrize(("system", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_what_needs_linux_names_a_container_and_a_server_on(system: str, name: str) -> None:
    names = SANDBOXES.split()
    text = (
        f"The sandbox needs Linux, and this is {name}.\n"
        "Use a container: DockerCommandLineCodeExecutor(), with the extra docker.\n"
        "Or use AzureContainerCodeExecutor('https://MACHINE:8000', KEY), with `cellblock serve` "
        "on a Linux machine or in a container."
    )
    expected = [[name, "SandboxUnavailable", text] for name in names]
    plain = ["LocalCommandLineCodeExecutor", "JupyterCodeExecutor"] * (system == "darwin")
    errors = run_elsewhere(system, START_ALL, [*names, *plain], START_PACKAGES)
    assert errors[: len(names)] == expected
    assert [error[:2] for error in errors[len(names) :]] == [
        [name, "BackendError"] for name in plain
    ]
    for _, _, text in errors[len(names) :]:
        assert text.startswith("Blocks and kernels run on this machine only with Linux")
        assert "DockerCommandLineCodeExecutor()" in text
        assert "cellblock serve" in text


RUN_BLOCKS = """
from cellblock import AzureContainerCodeExecutor, CodeBlock
from cellblock.sync import AzureContainerCodeExecutor as PlainExecutor

picture = (
    "import base64, IPython.display as d; d.display(d.Image(base64.b64decode("
    "'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg==')))"
)

async def saved_pictures(endpoint):
    async with AzureContainerCodeExecutor(endpoint, "no key") as executor:
        result = await executor.execute_code_blocks([CodeBlock(picture, "python")])
        return [path.suffix for path in result.output_files if path.exists()]

[endpoint] = json.load(sys.stdin)
pictures = asyncio.run(saved_pictures(endpoint))
with PlainExecutor(endpoint, "no key") as executor:
    result = executor.execute_code_blocks([CodeBlock("print(6 * 7)", "python")])
print(json.dumps([pictures, result.output]))
"""


@pytest.mark.parametrize("system", exhaustive(["darwin", "win32"]))
def test_clients_of_a_server_run_blocks_and_save_pictures_on(system: str, tmp_path: Path) -> None:
    arguments, pipe = ["serve", "--no-auth", "--port", "0"], subprocess.PIPE
    with CommandProcess[str](arguments, cwd=str(tmp_path), stderr=pipe, text=True) as server:
        try:
            assert server.stderr is not None
            endpoint = next(line for line in server.stderr if "serving on" in line).split()[-1]
            assert run_elsewhere(system, RUN_BLOCKS, [endpoint], "aiohttp pydantic") == [
                [".png"],
                "42\n",
            ]
        finally:
            server.terminate()
