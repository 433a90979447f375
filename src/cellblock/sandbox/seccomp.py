"""Seccomp: the system calls that running code does not need are not there for it.

Every call up to the newest one that was looked at is allowed unless this table takes it away; every call that came later is
"not implemented". Numbers: Linux's ``asm/unistd.h`` for x86_64 and aarch64. Program format: ``linux/filter.h``.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Callable, Mapping
from typing import Final

_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEWEST: Final = 450
_LATER_BUT_FINE: Final = (451, 453, 454, 455, 456)  # cachestat, map_shadow_stack, futex_*

_Numbers = tuple[int | None, int | None]

# name: number on x86_64, number on aarch64 (None: no such call there)
_REFUSED: Final[dict[str, _Numbers]] = {
    # other processes' memory and descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # mounts and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    # namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # programs in the kernel, its keys, its log, its measuring
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    # modules, other kernels, the machine
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "vhangup": (153, 58),
    # the clock
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    # placement of other processes' memory
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # long obsolete
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
}

# Libraries try these and go another way when the kernel is too old for them.
_NOT_IMPLEMENTED: Final[dict[str, _Numbers]] = {
    "clone3": (435, 435),  # its flags lie in memory, where a filter cannot look; clone's do not
    "openat2": (437, 437),  # so does the mode of the file that it makes
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "io_submit": (209, 2),
}

_MAKING_CELLS: Final = (
    "mount",
    "umount2",
    "move_mount",
    "unshare",
    "setns",
)  # and clone with flags for namespaces

_NEW_NAMESPACES: Final = 0x7E020000  # the CLONE_NEW* flags of clone
_SET_ID_BITS: Final = 0o6000
_O_CREAT_OR_TMPFILE: Final = 0o100 | 0o20000000
_TIOCSTI, _TIOCLINUX, _FIONBIO = 0x5412, 0x541C, 0x5421
_F_SETFL, _O_NONBLOCK = 4, 0o4000
_OUTPUT: Final = (1, 2)  # stdout and stderr
_EVERYBODY: Final = 0xFFFFFFFF  # -1 as the process to be sent a signal
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_PROTOCOLS: Final = (0, 1, 6, 17, 58)  # any, ICMP (and "unix"), TCP, UDP, ICMP of version 6

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _GREATER, _SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # where the kernel has them; see `struct seccomp_data`

Instruction = tuple[int, int, int, int]


def program(*, sockets: bool = True) -> bytes:
    """Give the filter for this machine. Without `sockets` there are none but pairs: no network, no service of the host.

    Raises `OSError` on an architecture for which there is no table.
    """
    return _assemble(
        _REFUSED, _NOT_IMPLEMENTED, lambda column: _clone(column) + _conditions(column, sockets)
    )


def zygote_program() -> bytes:
    """Give the filter of the process that makes cells: all of `program` but what it still needs itself.

    To install a filter is dear, since the kernel walks it for every call there is; cells inherit this one.
    """
    kept = {name: numbers for name, numbers in _REFUSED.items() if name not in _MAKING_CELLS}
    return _assemble(kept, _NOT_IMPLEMENTED, lambda column: _conditions(column, sockets=True))


def cell_program() -> bytes:
    """Give the rest, for a cell below `zygote_program`."""
    return _assemble({name: _REFUSED[name] for name in _MAKING_CELLS}, {}, _clone)


def session_program() -> bytes:
    """Give the rest, for a live session below `zygote_program`.

    It may step into namespaces, of which there are none but those that are made for its own branches; and it may not end all
    processes around it at one stroke, since its checkpoints are among them.
    """
    refused = {name: _REFUSED[name] for name in _MAKING_CELLS if name != "setns"}
    return _assemble(
        refused,
        {},
        lambda column: _clone(column) + _when((62, 129)[column], _never(0, (_EVERYBODY,))),
    )


def output_program() -> bytes:
    """Give a filter that is no wall, for any machine: stdout and stderr stay as they are when code asks them not to block.

    A pipe of ours holds one packet (see `cell.pump`). Who does not wait for room would be refused at the second write, where
    a usual pipe takes 64 KB: Node keeps the rest for later, and loses it when code calls `process.exit`. The filters that are
    walls hold this as well.
    """
    code = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for column, audit in _ARCHITECTURES.values():
        code += _when(
            audit, [(_LOAD, 0, 0, _NUMBER), *_ioctl(column, ()), *_fcntl(column), _give(_ALLOW)]
        )
    return _packed([*code, _give(_ALLOW)])


def _assemble(
    refused: Mapping[str, _Numbers],
    missing: Mapping[str, _Numbers],
    conditions: Callable[[int], list[Instruction]],
) -> bytes:
    try:
        column, audit = _ARCHITECTURES[platform.machine()]
    except KeyError:
        raise OSError(f"there is no seccomp table for {platform.machine()}") from None
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, audit),
        _give(_KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for table, action in ((refused, errno.EPERM), (missing, errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                code += [(_EQUAL, 0, 1, number), _give(_ERRNO | action)]
    code += conditions(column)
    for number in _LATER_BUT_FINE:
        code += [(_EQUAL, 0, 1, number), _give(_ALLOW)]
    # Above the newest: later calls, and on x86_64 the second set of numbers, that of x32.
    code += [(_GREATER, 0, 1, _NEWEST), _give(_ERRNO | errno.ENOSYS), _give(_ALLOW)]
    return _packed(code)


def _packed(code: list[Instruction]) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _give(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _clone(column: int) -> list[Instruction]:
    return _when((56, 220)[column], _refuse_bits(0, _NEW_NAMESPACES))


def _conditions(column: int, sockets: bool) -> list[Instruction]:
    """Give the checks of calls that depend on an argument. Each begins with the number loaded, and leaves it so."""
    families = (_UNIX, _INET, _INET6, _NETLINK) if sockets else ()
    # Each family and each protocol that is asked for makes the kernel load the module for it.
    code = _when((41, 198)[column], _only_protocols() + _only(0, families, errno.EAFNOSUPPORT))
    code += _when((53, 199)[column], _only(0, (_UNIX,), errno.EAFNOSUPPORT))
    code += _ioctl(column, (_TIOCSTI, _TIOCLINUX)) + _fcntl(column)
    code += _when((135, 92)[column], _only(0, (0, 8, 0x20000, 0xFFFFFFFF), errno.EPERM))
    # A process's limits are its own user's to lower: those of the first process hold for the blocks after this one.
    code += _when((302, 261)[column], _only(0, (0,), errno.EPERM))
    # Takes space on the disk that nobody counts as written; who is refused writes zeros instead.
    code += _when((285, 47)[column], [_give(_ERRNO | errno.EOPNOTSUPP)])
    # Nobody makes a program that runs with the rights of its owner: outside, that owner is the caller.
    modes = {
        "fchmod": ((91, 52), 1),
        "fchmodat": ((268, 53), 2),
        "mknodat": ((259, 33), 2),
        "mkdirat": ((258, 34), 2),
    }
    old = {
        "chmod": ((90, None), 1),
        "creat": ((85, None), 1),
        "mknod": ((133, None), 1),
        "mkdir": ((83, None), 1),
    }
    for numbers, argument in (*modes.values(), *old.values()):
        if (number := numbers[column]) is not None:
            code += _when(number, _refuse_bits(argument, _SET_ID_BITS))
    code += _when((257, 56)[column], _refuse_new_file(2, 3))
    if column == 0:
        code += _when(2, _refuse_new_file(1, 2))
    return code


def _ioctl(column: int, refused: tuple[int, ...]) -> list[Instruction]:
    """Give the checks of what is asked of a device, or of a stream: to block or not to. Whether it is to is not seen here."""
    return _when(
        (16, 29)[column],
        [*_never(1, refused)[:-1], (_EQUAL, 1, 0, _FIONBIO), _give(_ALLOW), *_ignore_for_output()],
    )


def _fcntl(column: int) -> list[Instruction]:
    is_command = [_argument(1), (_EQUAL, 1, 0, _F_SETFL), _give(_ALLOW)]
    is_asked = [_argument(2), (_SET, 1, 0, _O_NONBLOCK), _give(_ALLOW)]
    return _when((72, 25)[column], [*is_command, *is_asked, *_ignore_for_output()])


def _ignore_for_output() -> list[Instruction]:
    """Do nothing for stdout and stderr, and say that it was done."""
    checks = [step for number in _OUTPUT for step in ((_EQUAL, 0, 1, number), _give(_ERRNO | 0))]
    return [_argument(0), *checks, _give(_ALLOW)]


def _when(number: int, body: list[Instruction]) -> list[Instruction]:
    return [(_EQUAL, 0, len(body), number), *body]


def _argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * index)


def _refuse_bits(argument: int, mask: int) -> list[Instruction]:
    return [_argument(argument), (_SET, 0, 1, mask), _give(_ERRNO | errno.EPERM), _give(_ALLOW)]


def _refuse_new_file(flags: int, mode: int) -> list[Instruction]:
    return [
        _argument(flags),
        (_SET, 1, 0, _O_CREAT_OR_TMPFILE),
        _give(_ALLOW),
        *_refuse_bits(mode, _SET_ID_BITS),
    ]


def _only(argument: int, values: tuple[int, ...], number: int) -> list[Instruction]:
    checks = [step for value in values for step in ((_EQUAL, 0, 1, value), _give(_ALLOW))]
    return [_argument(argument), *checks, _give(_ERRNO | number)]


def _only_protocols() -> list[Instruction]:
    """Give the checks of a new socket's protocol; those that are let through go on to the checks of its family."""
    netlink = [
        (_EQUAL, 0, 3, _NETLINK),
        _argument(2),
        (_EQUAL, 1, 0, 0),
        _give(_ERRNO | errno.EPROTONOSUPPORT),
    ]
    others = [
        _argument(2),
        *[(_EQUAL, len(_PROTOCOLS) - index, 0, number) for index, number in enumerate(_PROTOCOLS)],
    ]
    return [_argument(0), *netlink, *others, _give(_ERRNO | errno.EPROTONOSUPPORT)]


def _never(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    checks = [
        step for value in values for step in ((_EQUAL, 0, 1, value), _give(_ERRNO | errno.EPERM))
    ]
    return [_argument(argument), *checks, _give(_ALLOW)]
