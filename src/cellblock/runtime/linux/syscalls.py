"""System calls that Python's `os` does not offer, each a thin function that raises `OSError`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
CAP_SETPCAP: Final = 8
CAP_NET_ADMIN: Final = 12
CAP_SYS_ADMIN: Final = 21
CAP_LAST: Final = 63
TERMINALS: Final = "/dev/pts"
ZYGOTE_LINK: Final = (
    3  # the descriptor under which a zygote that is a program of its own finds its socket
)
# Has the linker find all functions of the C libraries at once, and not each at its first call, in each cell again: ld.so(8).
LINK_NOW: Final = ("LD_BIND_NOW", "cellblock")
# What a zygote in a sandbox holds, and a cell gives up: to make cells, and, where each has a network of its own, that too.
CELL_CAPABILITIES: Final = (CAP_SETPCAP, CAP_SYS_ADMIN)
NETWORK_CAPABILITIES: Final = (*CELL_CAPABILITIES, CAP_NET_ADMIN)

# Numbers that are not the same on every machine; those from 424 on are.
_NUMBERS: Final = {
    "x86_64": {"pivot_root": 155, "seccomp": 317, "capset": 126},
    "aarch64": {"pivot_root": 41, "seccomp": 277, "capset": 91},
}
OPEN_TREE: Final = 428
CLOSE_RANGE: Final = 436
MOVE_MOUNT: Final = 429
MOUNT_SETATTR: Final = 442
LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_ADD_RULE: Final = 445
LANDLOCK_RESTRICT_SELF: Final = 446

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_AT_FDCWD = -100
_MOVE_MOUNT_F_EMPTY_PATH = 4

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = (
    32 << 20
)  # the most that the C library comes to by itself: what is larger goes back at once
_libc = ctypes.CDLL(None, use_errno=True)
_flush = _libc.fflush
_fork = ctypes.PyDLL(None, use_errno=True).fork  # lets no other thread of Python run meanwhile


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _number(name: str) -> int:
    try:
        return _NUMBERS[os.uname().machine][name]
    except KeyError:
        raise OSError(f"{name}: unknown on {os.uname().machine}") from None


def keep_freed_memory() -> None:
    """Have the C library keep what is freed for what comes next, as far as it would learn to by itself; see mallopt(3).

    In a short program it has no time to learn, and gives it back again and again: each page that comes anew costs a fault.
    """
    if (mallopt := getattr(_libc, "mallopt", None)) is not None:  # musl has none
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_BYTES)


def syscall(
    number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None, name: str
) -> int:
    """Call system call `number`. Integers are passed as 64-bit values."""
    words = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words), name)


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace that `descriptor` stands for."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a filesystem, or change how one is mounted."""
    _check(
        _libc.mount(
            source.encode(),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        ),
        f"mount {kind or ''} on {target}",
    )


def mount_terminals() -> None:
    """Make a filesystem for pseudo-terminals, without any yet; see pts(4)."""
    mount("devpts", TERMINALS, "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=666,mode=620")


def bring_up_loopback() -> None:
    """Switch on the loopback of a new network namespace: asyncio and multiprocessing talk over it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(probe, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def attach(descriptor: int, target: str) -> None:
    """Mount what `descriptor` holds, a copy of a mounted folder or file, on `target`."""
    name = f"move_mount {target}"
    syscall(
        MOVE_MOUNT,
        descriptor,
        b"",
        _AT_FDCWD,
        os.fsencode(target),
        _MOVE_MOUNT_F_EMPTY_PATH,
        name=name,
    )


def unmount(target: str, flags: int = 0) -> None:
    """Unmount what is mounted on `target`."""
    _check(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root and move the old one to `old`."""
    syscall(_number("pivot_root"), os.fsencode(new), os.fsencode(old), name="pivot_root")


def prctl(option: int, *arguments: int) -> None:
    """Change a property of this process."""
    words = [ctypes.c_ulong(item) for item in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *words), f"prctl {option}")


def adjust_memory_score(value: int) -> None:
    """Set how soon this process is ended when memory runs out: ``oom_score_adj`` in proc(5). Raises `OSError`."""
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"%d" % value)
    finally:
        os.close(descriptor)


def fork_untouched() -> int:
    """Fork, as `os.fork` does, but without what Python and libraries do at forks: the child is the same to the last byte.

    Only where there is one thread. What is left out (locks made anew, random numbers reseeded) writes to hundreds of the
    child's pages, each of which would have to be copied. Raises `OSError`.
    """
    pid = _fork()
    return pid if pid >= 0 else _check(pid, "fork")


def adopt_orphans() -> bool:
    """Have whatever loses its parent below this process become its child; tell whether this kernel can do that."""
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def flush_c_streams() -> None:
    """Write out what the C library's own streams hold; the end by `os._exit` would drop it."""
    _flush(None)


def drop_from_bounding_set(capability: int) -> None:
    """Let no program started from here on ever have `capability`; one that this kernel does not know is no matter."""
    with contextlib.suppress(OSError):
        prctl(PR_CAPBSET_DROP, capability)


class Call:
    """A call of the C library with its arguments made ready: no more than the call itself is left to do."""

    def __init__(
        self, function: str, name: str, *arguments: int | ctypes.Array[ctypes.c_char]
    ) -> None:
        self._function = getattr(_libc, function)
        self._arguments = [
            ctypes.c_long(item) if isinstance(item, int) else item for item in arguments
        ]
        self._name = name

    def __call__(self) -> None:
        """Do it. Raises `OSError`."""
        if self._function(*self._arguments) < 0:
            _check(-1, self._name)


def capability_call(effective: int, permitted: int, inheritable: int) -> Call:
    """Give the call that sets this process's capability sets, each a mask of 64 bits."""
    header = ctypes.create_string_buffer((0x20080522).to_bytes(4, "little") + bytes(4), 8)
    low, high = 0xFFFFFFFF, 32
    words = [mask & low for mask in (effective, permitted, inheritable)]
    words += [mask >> high for mask in (effective, permitted, inheritable)]
    data = ctypes.create_string_buffer(b"".join(word.to_bytes(4, "little") for word in words), 24)
    return Call("syscall", "capset", _number("capset"), header, data)


class _Program(ctypes.Structure):
    """Linux's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_call(program: bytes) -> Call:
    """Give the call that installs a seccomp program (8-byte BPF instructions) for this process and its children."""
    head = ctypes.create_string_buffer(
        bytes(_Program(len(program) // 8, program)), ctypes.sizeof(_Program)
    )
    head.program = program  # pyright: ignore[reportAttributeAccessIssue] - the address in it must stay valid
    mode_filter, allow_speculation = (
        1,
        4,
    )  # the second keeps numeric code at full speed on older kernels
    return Call("syscall", "seccomp", _number("seccomp"), mode_filter, allow_speculation, head)
