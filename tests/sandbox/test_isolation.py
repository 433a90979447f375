"""What a block must not read, write or reach. Each probe succeeds without a sandbox."""

from __future__ import annotations

import os
import pty
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.runtime import protocol
from cellblock.runtime.linux.process_tree import descendants
from cellblock.sandbox.setup import namespaces
from cellblock.sync import SyncCodeExecutor
from tests.sandbox.probes import MARK, checked_output, local, output_of, sandbox

pytestmark = pytest.mark.depends_on_user
VARIABLE = "CELLBLOCK_TEST_MARK"


@dataclass(frozen=True)
class Host:
    """What exists on the host outside of the work folders, and both executors."""

    folder: Path
    pid: int
    port: int
    sandbox: SyncCodeExecutor
    local: SyncCodeExecutor

    def fill(self, probe: str) -> str:
        """Return `probe` with the names of this host defined."""
        values = f"{str(self.folder)!r}, {self.pid}, {self.port}, {MARK!r}"
        return f"folder, pid, port, mark = {values}\n{probe}"


def serve(listener: socket.socket) -> None:
    """Send the mark to every client until the socket is closed."""
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer:
            peer.sendall(MARK.encode())


def listeners(folder: Path) -> list[socket.socket]:
    """Listen on the loopback device, under an abstract name and under a path."""
    found = [socket.create_server(("127.0.0.1", 0))]
    for name in (f"\0{folder}", f"{folder}/s"):
        found.append(socket.socket(socket.AF_UNIX))
        found[-1].bind(name)
        found[-1].listen()
    for listener in found:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("o")
    (folder / "secret").write_text(MARK)
    sleeper = [sys.executable, "-c", "import time; print(flush=True); time.sleep(100)", MARK]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, MARK)
        open_sockets = listeners(folder)
        with (
            subprocess.Popen(sleeper, stdout=subprocess.PIPE) as process,
            sandbox(tmp_path_factory.mktemp("sandbox")) as sandboxed,
            local(tmp_path_factory.mktemp("local")) as unprotected,
        ):
            assert process.stdout is not None
            process.stdout.readline()
            yield Host(
                folder, process.pid, open_sockets[0].getsockname()[1], sandboxed, unprotected
            )
            process.kill()
        for listener in open_sockets:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


# Each prints the mark if it succeeds.
READS = {
    "file": "print(open(f'{folder}/secret').read())",
    "file by a symbolic link": "import os; os.symlink(folder, 'l'); print(open('l/secret').read())",
    "file by a hard link": "import os; os.link(f'{folder}/secret', 'h'); print(open('h').read())",
    "file by dots": "print(open('../' * 30 + folder + '/secret').read())",
    "file by /proc/self/root": "print(open(f'/proc/self/root{folder}/secret').read())",
    "file by another process's root": "print(open(f'/proc/{pid}/root{folder}/secret').read())",
    "names of files": "import os; 'secret' in os.listdir(folder) and print(mark)",
    "existence of a folder": "import os; os.path.exists(folder) and print(mark)",
    "write": "open(f'{folder}/made', 'w'); print(mark)",
    "write by a link": "import os; os.symlink(folder, 'm'); open('m/made', 'w'); print(mark)",
    "rename into a folder": (
        "import os; open('r', 'w'); os.rename('r', f'{folder}/made'); print(mark)"
    ),
    "environment": f"import os; print(os.environ.get({VARIABLE!r}))",
    "environment of a process": "print(open(f'/proc/{pid}/environ').read())",
    "environment of the parent": "import os; print(open(f'/proc/{os.getppid()}/environ').read())",
    "memory map of the parent": "import os; open(f'/proc/{os.getppid()}/maps').read(); print(mark)",
    "descriptors of the parent": "import os; os.listdir(f'/proc/{os.getppid()}/fd'); print(mark)",
    "folder of the parent": "import os; os.readlink(f'/proc/{os.getppid()}/cwd'); print(mark)",
    "processes": """
import contextlib, glob
for name in glob.glob('/proc/[0-9]*/cmdline'):
    with contextlib.suppress(OSError):  # it has ended meanwhile
        print(open(name).read())
""",
    "signal": "import os; os.kill(pid, 0); print(mark)",
    "handle of a process": "import os; os.pidfd_open(pid); print(mark)",
    "limits of a process": (
        "import resource; resource.prlimit(pid, resource.RLIMIT_NOFILE); print(mark)"
    ),
    "priority of a process": "import os; os.getpriority(os.PRIO_PROCESS, pid); print(mark)",
    "loopback": "import socket; print(socket.create_connection(('127.0.0.1', port), 5).recv(99))",
    "loopback of version 6": (
        "import socket; print(socket.create_connection(('::ffff:127.0.0.1', port), 5).recv(99))"
    ),
    "abstract socket": (
        "import socket; s = socket.socket(1); s.connect(chr(0) + folder); print(s.recv(99))"
    ),
    "socket in a folder": (
        "import socket; s = socket.socket(1); s.connect(f'{folder}/s'); print(s.recv(99))"
    ),
    "times of a device": "import os; os.utime('/dev/null'); print(mark)",
    "kernel settings": "import os; os.stat('/sys/kernel'); print(mark)",
    "control groups": "import os; os.stat('/sys/fs/cgroup'); print(mark)",
    "name of the host": "import os; print(mark if os.uname().nodename != 'cellblock' else '')",
}


def test_block_reaches_nothing_of_the_host_that_it_reaches_without_sandbox(host: Host) -> None:
    found = dict[str, tuple[bool, bool]]()
    for name, probe in READS.items():
        inside = MARK in output_of(host.sandbox, host.fill(probe))
        inside |= (host.folder / "made").exists()
        found[name] = inside, MARK in output_of(host.local, host.fill(probe))
        (host.folder / "made").unlink(missing_ok=True)
    assert found == dict.fromkeys(READS, (False, True)), "in the sandbox, and without"


def test_block_cannot_open_a_terminal_of_the_host(host: Host) -> None:
    ours, theirs = pty.openpty()
    try:
        name = os.ttyname(theirs)
        probe = host.fill(f"import os; os.open({name!r}, os.O_RDWR | os.O_NOCTTY); print(mark)")
        assert MARK not in output_of(host.sandbox, probe)
        assert MARK in output_of(host.local, probe)
    finally:
        os.close(ours)
        os.close(theirs)


# Each tries to create a file `made` with a set-user-ID or set-group-ID bit.
SET_USER_ID = {
    "chmod": "open('made', 'w'); os.chmod('made', 0o4755)",
    "chmod of the group": "open('made', 'w'); os.chmod('made', 0o2755)",
    "fchmod": "file = open('made', 'w'); os.fchmod(file.fileno(), 0o4755)",
    "fchmodat": "open('made', 'w'); os.chmod('made', 0o4755, dir_fd=os.open('.', 0))",
    "fchmodat2": "open('made', 'w'); libc.syscall(452, -100, b'made', 0o4755, 0)",
    "open": "os.open('made', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "open below a folder": (
        "os.open('made', os.O_CREAT | os.O_WRONLY, 0o6755, dir_fd=os.open('.', 0))"
    ),
    "openat2": (
        "libc.syscall(437, -100, b'made', struct.pack('3Q', os.O_CREAT | os.O_WRONLY, 0o4755, 0), "
        "24)"
    ),
    "creat": "libc.creat(b'made', 0o4755)",
    "mknod": "os.mknod('made', stat.S_IFREG | 0o4755)",
    "an unnamed file, linked": """
handle = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)
libc.linkat(-100, f'/proc/self/fd/{handle}'.encode(), -100, b'made', 0x400)
""",
    "a command": "subprocess.run(['install', '-m', '4755', '/bin/true', 'made'])",
}
PREPARE = "import ctypes, os, stat, struct, subprocess\nlibc = ctypes.CDLL(None)\nos.umask(0)\n"


def makes_set_id_file(executor: SyncCodeExecutor, probe: str) -> bool:
    """Return True if `probe` creates a file with a set-ID bit in the work folder."""
    file = Path(executor.work_dir) / "made"
    output_of(executor, PREPARE + probe)
    try:
        return bool(file.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID))
    except FileNotFoundError:
        return False
    finally:
        file.unlink(missing_ok=True)


def test_block_cannot_create_a_set_user_id_file_as_without_sandbox(host: Host) -> None:
    missing = {"fchmodat2", "openat2"}  # of older kernels
    inside = [name for name in SET_USER_ID if makes_set_id_file(host.sandbox, SET_USER_ID[name])]
    outside = {name for name in SET_USER_ID if makes_set_id_file(host.local, SET_USER_ID[name])}
    assert (inside, {*SET_USER_ID} - outside - missing) == ([], set())


def test_block_cannot_create_a_device(host: Host) -> None:
    probe = (
        "import os, stat; os.mknod('null', stat.S_IFCHR | 0o666, os.makedev(1, 3)); print('made')"
    )
    assert "made" not in output_of(host.sandbox, probe).splitlines()
    if namespaces.can_use_outer_users():
        assert "made" in output_of(host.local, probe).splitlines()


# Each tries to change the sandbox itself, and prints the mark if it can.
CHANGES = {
    "root": "open('/made', 'w')",
    "programs": "open('/usr/made', 'w')",
    "programs' rights": "os.chmod('/usr/bin/env', 0o755)",
    "users": "open('/etc/passwd', 'a')",
    "Python": "open(os.path.join(sys.base_prefix, 'made'), 'w')",
    "our own source": "open('/opt/cellblock/runtime/cell/init.py', 'a')",
    "devices": "open('/dev/made', 'w')",
    "core dumps": "open('/proc/sys/kernel/core_pattern', 'w')",
    "process numbers": "os.write(os.open('/proc/sys/kernel/ns_last_pid', os.O_WRONLY), b'99')",
    "loopback's settings": "open('/proc/sys/net/ipv4/ip_forward', 'w')",
    "first process's memory": "open('/proc/1/mem', 'r+b')",
    "first process's chance to be killed": "open('/proc/1/oom_score_adj', 'w')",
    "first process's output": "open('/proc/1/fd/1', 'w')",
    "first process's control": "[open(f'/proc/1/fd/{n}', 'w') for n in range(3, 9)]",
    "first process's processors": "os.sched_setaffinity(1, {0})",
    "first process's priority": "os.setpriority(os.PRIO_PROCESS, 1, 5)",
}


def test_block_cannot_change_the_sandbox(host: Host) -> None:
    faults = list[object]()
    for name, change in CHANGES.items():
        output = output_of(host.sandbox, f"import os, sys\n{change}\nprint({MARK!r})")
        refused = "PermissionError" in output or "Read-only file system" in output
        if f"\n{MARK}" in f"\n{output}" or not refused:
            faults.append((name, output))
    assert faults == []


def test_block_has_only_three_descriptors(host: Host, tmp_path: Path) -> None:
    probe = "import os; print([n for n in range(4096) if os.path.lexists(f'/proc/self/fd/{n}')])"
    assert checked_output(host.sandbox, probe) == "[0, 1, 2]"
    with (tmp_path / "open").open("w") as file:
        argv, kept = [sys.executable, "-c", probe], file.fileno()
        seen = subprocess.run(argv, pass_fds=[kept], capture_output=True, text=True, check=True)
        assert str(kept) in seen.stdout


def test_block_cannot_forge_its_result(host: Host) -> None:
    ending = {"status": 0, "why": None, "wall": 0.0, "cpu": 0.0, "peak": 0, "queued": 0.0}
    forged = b"".join(protocol.encode_json(protocol.ENDED, run, ending) for run in range(1, 100))
    assert {frame.kind for frame in protocol.Decoder().feed(forged)} == {protocol.ENDED}
    probe = (
        f"import os; [os.write(n, {forged!r}) for n in (1, 2)]; print('after', flush=True); "
        "os._exit(3)"
    )
    for number in (1, 2):
        result = host.sandbox.execute_code_blocks([CodeBlock(probe, "python")])
        assert result.exit_code == 3, number
        assert result.output.count('"queued"') == 2 * 99
        assert "after" in result.output


def test_block_has_no_capabilities_and_cannot_gain_any(host: Host) -> None:
    status = checked_output(host.sandbox, "print(open('/proc/self/status').read())")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(lines[name], 16) == 0, name
    assert lines["NoNewPrivs"] == "1"
    assert lines["Uid"].split() == ["1000"] * 4


def test_no_process_of_the_sandbox_is_root_outside(host: Host) -> None:
    if not namespaces.can_use_outer_users():
        pytest.skip("not root")
    checked_output(host.sandbox, "pass")
    users = {int(user) for pid in descendants(os.getpid()) for user in _host_user_ids(pid)}
    assert users
    assert users <= set(namespaces.OUTER_USERS)
    assert int(checked_output(host.local, "import os; print(os.getuid())")) == 0


def _host_user_ids(pid: int) -> list[str]:
    """Return the user IDs of process `pid` on the host, if it is in its own process namespace.

    The list is empty if the process has ended.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return lines["Uid"].split() if len(lines["NSpid"].split()) > 1 else []
