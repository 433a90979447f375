"""System calls that Python's `os` module does not have. Each function raises `OSError`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

if sys.platform != "win32":
    import fcntl

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_SET_SECUREBITS: Final = 28
SECBIT_NO_SETUID_FIXUP: Final = 1 << 2
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
CAP_CHOWN: Final = 0
CAP_DAC_OVERRIDE: Final = 1
CAP_FOWNER: Final = 3
CAP_KILL: Final = 5
CAP_SETGID: Final = 6
CAP_SETUID: Final = 7
CAP_SETPCAP: Final = 8
CAP_NET_ADMIN: Final = 12
CAP_SYS_CHROOT: Final = 18
CAP_SYS_PTRACE: Final = 19
CAP_SYS_ADMIN: Final = 21
CAP_SETFCAP: Final = 31
CAP_LAST: Final = 63
DEVPTS: Final = "/dev/pts"
ZYGOTE_SOCKET_FD: Final = 3  # the socket of a zygote that is a separate program
# Makes the linker look up all functions at the start, not each in every cell again: ld.so(8).
BIND_NOW: Final = ("LD_BIND_NOW", "cellblock")
# What a zygote in a sandbox needs to create cells, and what it needs to create their networks.
# Cells drop these capabilities.
CELL_CAPABILITIES: Final = (CAP_DAC_OVERRIDE, CAP_SETPCAP, CAP_SYS_CHROOT, CAP_SYS_ADMIN)
NETWORK_CAPABILITIES: Final = (*CELL_CAPABILITIES, CAP_NET_ADMIN)
# What root has in a box with several users, only in the user namespace of its box: to give files
# away, to use and change files of all users there, to end their processes, to become one of them.
ROOT_CAPABILITIES: Final = (
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_FOWNER,
    CAP_KILL,
    CAP_SETGID,
    CAP_SETUID,
)
# What the first process of such a box needs besides: to map root, and to see processes of others.
USER_CAPABILITIES: Final = (*ROOT_CAPABILITIES, CAP_SETFCAP, CAP_SYS_PTRACE)

# Numbers that differ between architectures. From 424 on they are the same.
_NUMBERS: Final = {
    "x86_64": {"pivot_root": 155, "seccomp": 317, "capset": 126, "clone": 56},
    "aarch64": {"pivot_root": 41, "seccomp": 277, "capset": 91, "clone": 220},
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
_MMAP_THRESHOLD_BYTES = 32 << 20  # the highest value that glibc would reach by itself
_libc = ctypes.CDLL(None, use_errno=True)
_flush = _libc.fflush
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)
_fork = _libc_with_gil.fork
_READ_WRITE, _MAP_SHARED, _MAP_FIXED = 0x3, 0x01, 0x10
_MAP_FAILED = ctypes.c_void_p(-1).value
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)


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
    """Let glibc keep freed memory instead of returning it to the kernel, see mallopt(3).

    glibc would adapt its thresholds to these values, but a short program ends before that, and pays
    a page fault for each page that it frees and allocates again.
    """
    if (mallopt := getattr(_libc, "mallopt", None)) is not None:  # musl does not have it
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MMAP_THRESHOLD_BYTES)


def syscall(
    number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None, name: str
) -> int:
    """Make system call `number`. Integers are passed as 64-bit values."""
    words = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words), name)


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace that `descriptor` refers to."""
    _check(_libc.setns(descriptor, kind), "setns")


def sync_filesystem(descriptor: int) -> None:
    """Wait until all of the filesystem that has the open file is on its disk."""
    _check(_libc.syncfs(descriptor), "syncfs")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a filesystem, or change the flags of a mount."""
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


def mount_devpts() -> None:
    """Mount an empty filesystem for pseudo-terminals, see pts(4)."""
    mount("devpts", DEVPTS, "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=666,mode=620")


def bring_up_loopback() -> None:
    """Bring up the loopback interface of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(probe, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def attach_mount(descriptor: int, target: str) -> None:
    """Attach the detached mount `descriptor`, of a folder or a file, to `target`."""
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
    """Unmount the filesystem on `target`."""
    _check(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root directory, and move the old root to `old`."""
    syscall(_number("pivot_root"), os.fsencode(new), os.fsencode(old), name="pivot_root")


def prctl(option: int, *arguments: int) -> None:
    """Change an attribute of this process."""
    words = [ctypes.c_ulong(item) for item in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *words), f"prctl {option}")


def set_oom_score(value: int) -> None:
    """Set ``oom_score_adj``: the OOM killer picks processes with high values first, see proc(5)."""
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"%d" % value)
    finally:
        os.close(descriptor)


def fork_without_hooks() -> int:
    """Fork without the hooks of Python and its libraries: the child's memory is unchanged.

    The process must have only one thread. The hooks (new locks, new random seeds) write to hundreds
    of pages of the child, each of which would be copied.
    """
    pid = _fork()
    return pid if pid >= 0 else _check(pid, "fork")


def fork_into(namespaces: int) -> int:
    """Fork without hooks, with a child that starts in new namespaces. `unshare` cannot do that
    twice for processes."""
    words = [
        ctypes.c_long(word) for word in (_number("clone"), namespaces | signal.SIGCHLD, *[0] * 4)
    ]
    pid = _libc_with_gil.syscall(*words)
    return pid if pid >= 0 else _check(pid, "clone")


def map_shared(descriptor: int, address: int, size: int, offset: int = 0) -> None:
    """Map a file at `address`, readable and writable, instead of the current mapping."""
    flags = _MAP_SHARED | _MAP_FIXED
    if _mmap(address, size, _READ_WRITE, flags, descriptor, offset) == _MAP_FAILED:
        _check(-1, "mmap")


def become_subreaper() -> bool:
    """Adopt orphans below this process. Return False if the kernel does not support it."""
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def flush_c_streams() -> None:
    """Flush the streams of the C library: `os._exit` does not."""
    _flush(None)


def drop_from_bounding_set(capability: int) -> None:
    """Remove `capability` from the bounding set. Ignore one that the kernel does not know."""
    with contextlib.suppress(OSError):
        prctl(PR_CAPBSET_DROP, capability)


class PreparedCall:
    """A call of the C library with its arguments already converted, so that it costs little."""

    def __init__(
        self, function: str, name: str, *arguments: int | ctypes.Array[ctypes.c_char]
    ) -> None:
        self._function = getattr(_libc, function)
        self._arguments = [
            ctypes.c_long(item) if isinstance(item, int) else item for item in arguments
        ]
        self._name = name

    def __call__(self) -> None:
        """Make the call. Raise `OSError` if it fails."""
        if self._function(*self._arguments) < 0:
            _check(-1, self._name)


def capset_call(effective: int, permitted: int, inheritable: int) -> PreparedCall:
    """Return the call that sets the capability sets of this process, each a 64-bit mask."""
    header = ctypes.create_string_buffer((0x20080522).to_bytes(4, "little") + bytes(4), 8)
    low, high = 0xFFFFFFFF, 32
    words = [mask & low for mask in (effective, permitted, inheritable)]
    words += [mask >> high for mask in (effective, permitted, inheritable)]
    data = ctypes.create_string_buffer(b"".join(word.to_bytes(4, "little") for word in words), 24)
    return PreparedCall("syscall", "capset", _number("capset"), header, data)


class _SockFprog(ctypes.Structure):
    """`struct sock_fprog` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def seccomp_call(program: bytes) -> Callable[[], None]:
    """Return the call that installs a seccomp program for this process and its children.

    `program` consists of 8-byte BPF instructions.
    """
    head = ctypes.create_string_buffer(
        bytes(_SockFprog(len(program) // 8, program)), ctypes.sizeof(_SockFprog)
    )
    head.program = program  # pyright: ignore[reportAttributeAccessIssue] - the struct holds its address
    mode_filter, allow_speculation = 1, 4  # older kernels slow down numeric code without the latter
    with_flag, without_flag = (
        PreparedCall("syscall", "seccomp", _number("seccomp"), mode_filter, flags, head)
        for flags in (allow_speculation, 0)
    )

    def install() -> None:
        try:
            with_flag()
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            without_flag()  # gVisor knows no such flag

    return install
