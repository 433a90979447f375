"""Branches share a user namespace. One of them attacks another one, in vain.

Each attack succeeds where its protection is missing: in the session itself, which is above its
branches. What seccomp refuses everywhere succeeds outside of the sandbox.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator

import pytest

from cellblock import SandboxSessionServer
from tests.executors.session.live_session import LiveSession, forked, open_session
from tests.sandbox.probes import MARK

pytestmark = pytest.mark.depends_on_user

# In all processes, so that each attack knows where to look. The victim overwrites it.
START = """
import ctypes, os, signal, sys
libc, secret, hits = ctypes.CDLL(None, use_errno=True), bytearray(32), []
address = (ctypes.c_char * 32).from_buffer(secret)
where = ctypes.addressof(address)
signal.signal(signal.SIGUSR1, lambda *_: hits.append(1))
def others(): return [pid for pid in range(1, 3000) if pid != os.getpid()]
class Piece(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
"""
VICTIM = f"secret[:] = {MARK!r}.encode().ljust(32)"
# Each prints the mark if it reads the victim's memory, or else what it has reached.
ATTACKS = {
    "read its memory in /proc": """
for pid in others():
    try:
        with open(f'/proc/{pid}/mem', 'rb', 0) as memory:
            memory.seek(where)
            print(memory.read(32).decode())
    except OSError: pass
""",
    "see its namespaces": f"""
own = os.readlink('/proc/self/ns/pid')
for pid in others():
    try:
        os.readlink(f'/proc/{{pid}}/ns/pid') == own or print({MARK!r})
    except OSError: pass
""",
    "enter its namespaces": f"""
for pid in others():
    if not os.path.exists(f'/proc/{{pid}}'): continue
    if (child := os.fork()) == 0:
        try:
            names = [f'/proc/{{pid}}/ns/{{name}}' for name in ('user', 'mnt')]
            opened = [os.open(name, os.O_RDONLY) for name in names]
            entered = [libc.setns(descriptor, 0) for descriptor in opened]
            os._exit(entered != [0, 0])
        finally:
            os._exit(1)
    os.waitpid(child, 0)[1] or print({MARK!r})
""",
}
SIGNAL = """
for pid in others():
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError: pass
for everybody in (-1, 0):
    try:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        os.kill(everybody, signal.SIGUSR2)
    except OSError: pass
"""
REFUSED = {
    "process_vm_readv": """
found = ctypes.create_string_buffer(32)
here, there = Piece(ctypes.addressof(found), 32), Piece(where, 32)
for pid in pids:
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0:
        print(found.raw.decode())
""",
    "ptrace": f"""
for pid in pids:
    if libc.ptrace(16, pid, 0, 0) == 0:
        print({MARK!r})
        os.waitpid(pid, 0)
        libc.ptrace(17, pid, 0, 0)
""",
    "pidfd_getfd": f"""
for pid in pids:
    try:
        if libc.syscall(438, os.pidfd_open(pid), 1, 0) >= 0: print({MARK!r})
    except OSError: pass
""",
}


@pytest.fixture
def family(shared: SandboxSessionServer) -> Generator[tuple[LiveSession, LiveSession, LiveSession]]:
    """A session, and two of its branches: the attacker and the victim."""
    with open_session(shared) as parent:
        parent.run_ok(START)
        with forked(parent, 2) as (attacker, victim):
            victim.run_ok(VICTIM)
            yield parent, attacker, victim


Family = tuple[LiveSession, LiveSession, LiveSession]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_branch_cannot(name: str, family: Family) -> None:
    parent, attacker, victim = family
    # The victim's process may not be readable yet, while it is still being prepared.
    found = (MARK in parent.output_of(ATTACKS[name]) for _ in range(100))
    assert any(found), "the attack does not work where it could"
    assert MARK not in attacker.output_of(ATTACKS[name])
    assert victim.run_ok("print(secret.decode())") == MARK


def test_a_branch_cannot_signal_another(family: Family) -> None:
    parent, attacker, victim = family
    attacker.run(SIGNAL)
    assert victim.run_ok("print(hits)") == "[]"
    parent.run(SIGNAL)
    assert victim.run_ok("print(hits)") == "[1]", "the attack does not work where it could"


@pytest.mark.parametrize("name", REFUSED)
def test_a_branch_cannot_use(name: str, family: Family) -> None:
    parent, attacker, _ = family
    with subprocess.Popen(
        [sys.executable, "-c", f"{START}{VICTIM}\nprint(where, flush=True)\nsignal.pause()"],
        stdout=subprocess.PIPE,
        text=True,
    ) as outside:
        assert outside.stdout is not None
        place = f"pids, where = [{outside.pid}], {outside.stdout.readline()}"
        done = subprocess.run(
            [sys.executable, "-c", f"{START}{place}{REFUSED[name]}"], capture_output=True, text=True
        )
        outside.send_signal(signal.SIGKILL)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine restricts it for all processes")
    assert MARK in done.stdout, "the attack does not work where it could"
    for session in (attacker, parent):
        assert MARK not in session.output_of(f"pids = others(){REFUSED[name]}")


def test_a_branch_has_no_capability_and_no_descriptor_of_another(family: Family) -> None:
    parent, attacker, _ = family
    status = (
        "print([line for line in open('/proc/self/status') if line[:3] in ('Cap', 'NoN')])",
        "print(sorted(os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in os.listdir("
        "'/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{n}')))",
    )
    for look in status:
        assert attacker.run_ok(look) == parent.run_ok(look)
    assert "CapEff:\\t0000000000000000" in attacker.run_ok(status[0])
    assert "CapBnd:\\t0000000000000000" in attacker.run_ok(status[0])
