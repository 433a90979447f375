"""Seccomp filters: running code cannot make system calls that it does not need.

Every call up to the newest one that was reviewed is allowed unless a table below refuses it. Every
later call fails with ENOSYS. Numbers: Linux's ``asm/unistd.h`` for x86_64 and aarch64. Program
format: ``linux/filter.h``.

Containers get the same tables as a profile for their engine: see `containers.seccomp_profile`.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Callable, Mapping
from typing import Final

_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEWEST: Final = 450
_ALLOWED_ABOVE_NEWEST: Final = (451, 453, 454, 455, 456)  # cachestat, map_shadow_stack, futex_*

_Numbers = tuple[int | None, int | None]

# name: number on x86_64, number on aarch64 (None: no such call there)
REFUSED: Final[dict[str, _Numbers]] = {
    # memory and descriptors of other processes
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
    # programs in the kernel, keys, the log, performance counters
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    # kernel modules, other kernels, hardware
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
    # obsolete calls
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
}

# Libraries try these and fall back when the kernel does not have them.
NOT_IMPLEMENTED: Final[dict[str, _Numbers]] = {
    "clone3": (435, 435),  # a filter cannot read its flags, which are in memory
    "openat2": (437, 437),  # nor the mode of the file that this one creates
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "io_submit": (209, 2),
}

# Memory that belongs to no process. Without control groups nothing counts it.
_SHMGET: Final = (29, 194)
_MEMORY_FILES: Final[dict[str, _Numbers]] = {"memfd_create": (319, 279), "shmget": _SHMGET}
_PAGE: Final = 4096  # bytes

# And clone with flags for namespaces.
_NEEDED_TO_MAKE_CELLS: Final = ("mount", "umount2", "chroot", "move_mount", "unshare", "setns")

NEW_NAMESPACES: Final = 0x7E020000  # the CLONE_NEW* flags of clone
SET_ID_BITS: Final = 0o6000
CREATES_FILE: Final = 0o100 | 0o20000000
_TIOCSTI, _TIOCLINUX, _FIONBIO, _TIOCSETD = 0x5412, 0x541C, 0x5421, 0x5423
_F_SETFL, _O_NONBLOCK = 4, 0o4000
_OUTPUT: Final = (1, 2)  # stdout and stderr
_ALL_PROCESSES: Final = 0xFFFFFFFF  # -1 as the argument of kill(2)
UNIX, NETLINK = 1, 16
FAMILIES: Final = (UNIX, 2, 10)  # and IP of versions 4 and 6
PROTOCOLS: Final = (0, 1, 6, 17, 58)  # any, ICMP (and "unix"), TCP, UDP, ICMP of version 6
PERSONALITIES: Final = (0, 8, 0x20000, 0xFFFFFFFF)  # Linux, without version or 32 bit; query
# name: its numbers, and which argument is the mode of the file
FILE_MODES: Final[dict[str, tuple[_Numbers, int]]] = {
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "mknodat": ((259, 33), 2),
    "mkdirat": ((258, 34), 2),
    "chmod": ((90, None), 1),
    "creat": ((85, None), 1),
    "mknod": ((133, None), 1),
    "mkdir": ((83, None), 1),
}
# name: its numbers, and which argument has the flags; the next one is the mode of a new file
OPENS: Final[dict[str, tuple[_Numbers, int]]] = {"openat": ((257, 56), 2), "open": ((2, None), 1)}

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _GREATER, _SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in `struct seccomp_data`

Instruction = tuple[int, int, int, int]


def program(*, sockets: bool = True, memory_files: bool = True) -> bytes:
    """Return the filter for this machine.

    Without `sockets`, code can only create socket pairs: no network, and no services of the host.
    Without `memory_files`, memory can only be part of a process or a file with a name.

    Raise `OSError` on an architecture for which there is no table.
    """
    return _assemble(
        REFUSED,
        NOT_IMPLEMENTED if memory_files else NOT_IMPLEMENTED | _MEMORY_FILES,
        lambda column: _clone_checks(column) + _argument_checks(column, sockets),
    )


def zygote_program(*, memory_files: bool = True) -> bytes:
    """Return the filter of the zygote: `program` without what it needs to make cells.

    Cells inherit this filter. Installing a filter is slow, because the kernel evaluates it for
    every system call number.
    """
    kept = {name: numbers for name, numbers in REFUSED.items() if name not in _NEEDED_TO_MAKE_CELLS}
    missing = NOT_IMPLEMENTED if memory_files else NOT_IMPLEMENTED | _MEMORY_FILES
    return _assemble(kept, missing, lambda column: _argument_checks(column, sockets=True))


def cell_program() -> bytes:
    """Return the rest of the filter, for a cell that has inherited `zygote_program`."""
    return _assemble({name: REFUSED[name] for name in _NEEDED_TO_MAKE_CELLS}, {}, _clone_checks)


def session_program(*, memory_segments: bool = True) -> bytes:
    """Return the rest of the filter, for a live session that has inherited `zygote_program`.

    Without `memory_segments`, those of System V, which stay when all processes that used them have
    ended, have one page: PostgreSQL needs that. There can be 4096 of them.

    A session may enter namespaces: it can only reach those that are made for its own branches. It
    may not signal all processes with one call, because its checkpoints are among them.
    """
    refused = {name: REFUSED[name] for name in _NEEDED_TO_MAKE_CELLS if name != "setns"}

    def checks(column: int) -> list[Instruction]:
        code = _clone_checks(column)
        if not memory_segments:
            code += _if_call(_SHMGET[column], _refuse_above(1, _PAGE, errno.ENOSPC))
        return code + _if_call((62, 129)[column], _refuse_values(0, (_ALL_PROCESSES,)))

    return _assemble(refused, {}, checks)


def output_program() -> bytes:
    """Return a filter for any machine that keeps stdout and stderr blocking. It protects nothing.

    Our output pipes hold one packet (see `runtime.server.pipes`), where a usual pipe holds 64 KB.
    A program with non-blocking output would fail at its second write; Node keeps the rest in memory
    and loses it when the code calls `process.exit`. The other filters contain these checks too.
    """
    code = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for column, audit in _ARCHITECTURES.values():
        code += _if_call(
            audit,
            [
                (_LOAD, 0, 0, _NUMBER),
                *_ioctl_checks(column, ()),
                *_fcntl_checks(column),
                _return(_ALLOW),
            ],
        )
    return _pack([*code, _return(_ALLOW)])


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
        _return(_KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for table, action in ((refused, errno.EPERM), (missing, errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                code += [(_EQUAL, 0, 1, number), _return(_ERRNO | action)]
    code += conditions(column)
    for number in _ALLOWED_ABOVE_NEWEST:
        code += [(_EQUAL, 0, 1, number), _return(_ALLOW)]
    # Higher numbers: later calls, and on x86_64 the second set of numbers, for x32.
    code += [(_GREATER, 0, 1, _NEWEST), _return(_ERRNO | errno.ENOSYS), _return(_ALLOW)]
    return _pack(code)


def _pack(code: list[Instruction]) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _clone_checks(column: int) -> list[Instruction]:
    return _if_call((56, 220)[column], _refuse_bits(0, NEW_NAMESPACES))


def _argument_checks(column: int, sockets: bool) -> list[Instruction]:
    """Return the checks that depend on an argument.

    The call number is loaded before and after each check.
    """
    families = (*FAMILIES, NETLINK) if sockets else ()
    # A request for a family or a protocol makes the kernel load its module.
    code = _if_call(
        (41, 198)[column], _check_protocol() + _allow_values(0, families, errno.EAFNOSUPPORT)
    )
    code += _if_call((53, 199)[column], _allow_values(0, (UNIX,), errno.EAFNOSUPPORT))
    code += _ioctl_checks(column, (_TIOCSTI, _TIOCLINUX, _TIOCSETD)) + _fcntl_checks(column)
    code += _if_call((135, 92)[column], _allow_values(0, PERSONALITIES, errno.EPERM))
    # A user can lower the limits of its processes: a lower limit of the cell's first process would
    # also apply to later blocks.
    code += _if_call((302, 261)[column], _allow_values(0, (0,), errno.EPERM))
    # Takes disk space that is not counted as written. Programs that get this error write zeros.
    code += _if_call((285, 47)[column], [_return(_ERRNO | errno.EOPNOTSUPP)])
    # Refuse set-user-ID files: outside the sandbox, their owner is the caller.
    for numbers, argument in FILE_MODES.values():
        if (number := numbers[column]) is not None:
            code += _if_call(number, _refuse_bits(argument, SET_ID_BITS))
    for numbers, argument in OPENS.values():
        if (number := numbers[column]) is not None:
            code += _if_call(number, _refuse_new_file(argument, argument + 1))
    return code


def _ioctl_checks(column: int, refused: tuple[int, ...]) -> list[Instruction]:
    """Return the checks of ioctl requests.

    A filter cannot see whether FIONBIO turns blocking on or off.
    """
    return _if_call(
        (16, 29)[column],
        [
            *_refuse_values(1, refused)[:-1],
            (_EQUAL, 1, 0, _FIONBIO),
            _return(_ALLOW),
            *_ignore_for_output(),
        ],
    )


def _fcntl_checks(column: int) -> list[Instruction]:
    is_command = [_load_argument(1), (_EQUAL, 1, 0, _F_SETFL), _return(_ALLOW)]
    is_asked = [_load_argument(2), (_SET, 1, 0, _O_NONBLOCK), _return(_ALLOW)]
    return _if_call((72, 25)[column], [*is_command, *is_asked, *_ignore_for_output()])


def _ignore_for_output() -> list[Instruction]:
    """Return checks that ignore the call for stdout and stderr, and report success."""
    checks = [step for number in _OUTPUT for step in ((_EQUAL, 0, 1, number), _return(_ERRNO | 0))]
    return [_load_argument(0), *checks, _return(_ALLOW)]


def _if_call(number: int, body: list[Instruction]) -> list[Instruction]:
    return [(_EQUAL, 0, len(body), number), *body]


def _load_argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * index)


def _refuse_bits(argument: int, mask: int) -> list[Instruction]:
    return [
        _load_argument(argument),
        (_SET, 0, 1, mask),
        _return(_ERRNO | errno.EPERM),
        _return(_ALLOW),
    ]


def _refuse_new_file(flags: int, mode: int) -> list[Instruction]:
    return [
        _load_argument(flags),
        (_SET, 1, 0, CREATES_FILE),
        _return(_ALLOW),
        *_refuse_bits(mode, SET_ID_BITS),
    ]


def _allow_values(argument: int, values: tuple[int, ...], number: int) -> list[Instruction]:
    checks = [step for value in values for step in ((_EQUAL, 0, 1, value), _return(_ALLOW))]
    return [_load_argument(argument), *checks, _return(_ERRNO | number)]


def _check_protocol() -> list[Instruction]:
    """Return the checks of a new socket's protocol. An allowed one continues after them."""
    netlink = [
        (_EQUAL, 0, 3, NETLINK),
        _load_argument(2),
        (_EQUAL, 1, 0, 0),
        _return(_ERRNO | errno.EPROTONOSUPPORT),
    ]
    others = [
        _load_argument(2),
        *[(_EQUAL, len(PROTOCOLS) - index, 0, number) for index, number in enumerate(PROTOCOLS)],
    ]
    return [_load_argument(0), *netlink, *others, _return(_ERRNO | errno.EPROTONOSUPPORT)]


def _refuse_above(argument: int, most: int, number: int) -> list[Instruction]:
    return [
        (_LOAD, 0, 0, 16 + 8 * argument + 4),  # the upper half
        (_GREATER, 2, 0, 0),
        _load_argument(argument),
        (_GREATER, 0, 1, most),
        _return(_ERRNO | number),
        _return(_ALLOW),
    ]


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    checks = [
        step for value in values for step in ((_EQUAL, 0, 1, value), _return(_ERRNO | errno.EPERM))
    ]
    return [_load_argument(argument), *checks, _return(_ALLOW)]
