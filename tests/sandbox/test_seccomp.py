"""The seccomp filters: evaluated as the kernel does, and tried on a real kernel."""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator, Mapping

import pytest

from cellblock import CodeBlock
from cellblock.sandbox import seccomp
from cellblock.sync import SyncCodeExecutor
from tests.sandbox.probes import checked_output, sandbox, without_filter

pytestmark = pytest.mark.depends_on_user

ALLOWED = 0
KILLED = -1
IGNORED = -2  # not executed, but reported as successful
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
X32 = 0x40000000


def evaluate(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """Return the result of a filter for a call: an errno, `ALLOWED`, `IGNORED` or `KILLED`."""
    data = struct.pack("<iIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    loaded = step = 0
    while True:
        operation, yes, no, value = code[step]
        step += 1
        match operation:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, value)
            case 0x15:
                step += yes if loaded == value else no
            case 0x25:
                step += yes if loaded > value else no
            case 0x45:
                step += yes if loaded & value else no
            case 0x06:
                return {
                    0x7FFF0000: ALLOWED,
                    0x00050000: value & 0xFFFF or IGNORED,
                    0x80000000: KILLED,
                }[value & 0xFFFF0000]
            case _:
                raise AssertionError(f"instruction {operation:#x} is unknown")


@pytest.fixture(params=sorted(AUDIT_ARCHITECTURES))
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    return request.param


def evaluate_here(program: bytes, machine: str, number: int, *arguments: int) -> int:
    """Return the result of a filter for a call of the machine's own architecture."""
    return evaluate(program, AUDIT_ARCHITECTURES[machine], number, *arguments)


def evaluate_for_cell(machine: str, number: int, *arguments: int) -> int:
    """Return the result of both filters of a cell: the kernel takes the stricter one."""
    programs = (seccomp.zygote_program(), seccomp.cell_program())
    answers = [evaluate_here(program, machine, number, *arguments) for program in programs]
    return next((answer for answer in (KILLED, IGNORED) if answer in answers), max(answers))


def numbers_of(table: Mapping[str, tuple[int | None, ...]], machine: str) -> dict[str, int]:
    """Return the numbers of the calls that the machine has."""
    column = list(seccomp._ARCHITECTURES).index(machine)
    return {name: found for name, row in table.items() if (found := row[column]) is not None}


def test_cell_is_refused_the_calls_in_the_tables(machine: str) -> None:
    tables = ((seccomp.REFUSED, errno.EPERM), (seccomp.NOT_IMPLEMENTED, errno.ENOSYS))
    for table, answer in tables:
        for name, number in numbers_of(table, machine).items():
            assert evaluate_for_cell(machine, number) == answer, name
            assert evaluate_here(seccomp.program(), machine, number) == answer, name


def test_zygote_keeps_the_calls_that_make_cells(machine: str) -> None:
    program = seccomp.zygote_program()
    kept = [
        name
        for name, number in numbers_of(seccomp.REFUSED, machine).items()
        if evaluate_here(program, machine, number) == ALLOWED
    ]
    assert kept == ["mount", "umount2", "chroot", "move_mount", "unshare", "setns"]


def test_calls_of_other_architectures_kill(machine: str) -> None:
    for audit in {*AUDIT_ARCHITECTURES.values(), I386} - {AUDIT_ARCHITECTURES[machine]}:
        assert evaluate(seccomp.zygote_program(), audit, 1) == KILLED
        assert evaluate(seccomp.program(), audit, 1) == KILLED


def test_unreviewed_calls_are_not_implemented(machine: str) -> None:
    for number in (452, 457, 461, 500, X32 + 1, X32 + 59):
        assert evaluate_for_cell(machine, number) == errno.ENOSYS, number


NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)


def test_clone_makes_threads_and_processes_but_no_namespaces(machine: str) -> None:
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    for flags in (17, 0x3D0F00, 0x1200011, 0x4111):  # fork, a thread, glibc's fork, vfork
        assert evaluate_for_cell(machine, clone, flags) == ALLOWED
    for flag in NAMESPACES:
        assert evaluate_for_cell(machine, clone, flag | 17) == errno.EPERM, hex(flag)


def test_sockets_have_known_families_and_protocols(machine: str) -> None:
    call, pair = {"x86_64": (41, 53), "aarch64": (198, 199)}[machine]
    for family, protocol in ((1, 0), (1, 1), (2, 0), (2, 6), (2, 17), (10, 58), (16, 0)):
        assert evaluate_for_cell(machine, call, family, 1, protocol) == ALLOWED, (family, protocol)
    for family in (3, 9, 17, 29, 30, 38, 40, 44):
        assert evaluate_for_cell(machine, call, family, 1, 0) == errno.EAFNOSUPPORT, family
        assert evaluate_for_cell(machine, pair, family, 1, 0) == errno.EAFNOSUPPORT, family
    for family, protocol in ((2, 132), (2, 262), (10, 115), (16, 4), (16, 6), (16, 12)):
        answer = evaluate_for_cell(machine, call, family, 1, protocol)
        assert answer == errno.EPROTONOSUPPORT, (family, protocol)
    assert evaluate_for_cell(machine, pair, 1, 1, 0) == ALLOWED


def test_without_sockets_only_socket_pairs_remain(machine: str) -> None:
    call, pair = {"x86_64": (41, 53), "aarch64": (198, 199)}[machine]
    program = seccomp.program(sockets=False)
    for family in (1, 2, 10, 16):
        assert evaluate_here(program, machine, call, family, 1, 0) == errno.EAFNOSUPPORT
    assert evaluate_here(program, machine, pair, 1, 1, 0) == ALLOWED


def test_only_output_stays_blocking(machine: str) -> None:
    ioctl, fcntl = {"x86_64": (16, 72), "aarch64": (29, 25)}[machine]
    fionbio, fionread, get_flags, set_flags = 0x5421, 0x541B, 3, 4
    append, not_blocking = 0o2000, 0o4000
    expected = {(ioctl, 2, fionbio, 0): IGNORED}
    for stream, answer in ((0, ALLOWED), (1, IGNORED), (2, IGNORED), (3, ALLOWED)):
        expected[fcntl, stream, set_flags, append | not_blocking] = answer
        expected[ioctl, stream, fionbio, 1] = answer
    expected |= {
        (ioctl, 1, fionread, 1): ALLOWED,
        (fcntl, 1, set_flags, append): ALLOWED,
        (fcntl, 1, get_flags, not_blocking): ALLOWED,
        (1, 1, 4, 0o4000): ALLOWED,
    }
    for call, answer in expected.items():
        assert evaluate_for_cell(machine, *call) == answer, call
        for program in (seccomp.program(), seccomp.output_program()):
            assert evaluate_here(program, machine, *call) == answer, call


def test_output_filter_allows_every_other_call(machine: str) -> None:
    for audit in (*AUDIT_ARCHITECTURES.values(), I386):
        for number in (X32 + 1, 500, 165, 0x7FFFFFFF):
            assert evaluate(seccomp.output_program(), audit, number, 1, 4, 0o4000) == ALLOWED


def test_an_unknown_architecture_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(OSError, match="pdp11"):
        seccomp.program()


# on this kernel

NUMBERS = {"x86_64": 0, "aarch64": 1}
# Each prints the errno of one call (0: it succeeded), and does no harm if it succeeds.
CALLS = {
    "ptrace": "call({ptrace}, 0, 0, 0, 0)",
    "user namespace": "call({unshare}, 0x10000000)",
    "user namespace by clone": "call({clone}, 0x10000000 | 17, 0, 0, 0, 0, over=True)",
    "entering a namespace": "call({setns}, os.open('/proc/self/ns/uts', 0), 0)",
    "reading memory": "call({process_vm_readv}, os.getpid(), 0, 0, 0, 0, 0)",
    "comparing processes": "call({kcmp}, os.getpid(), os.getpid(), 1, 0, 0)",
    "taking a descriptor": "call({pidfd_getfd}, os.pidfd_open(os.getpid()), 1, 0)",
    "keys": "call({keyctl}, 0, -3, 1)",
    "asking for keys": "call({request_key}, 0, 0, 0, 0)",
    "io_uring": "call({io_uring_setup}, 1, ctypes.create_string_buffer(120))",
    "userfaultfd": "call({userfaultfd}, 1)",
    "performance counters": (
        "call({perf_event_open}, struct.pack('IIQ', 1, 128, 0) + bytes(112), 0, -1, -1, 0)"
    ),
    "file handles": "call({name_to_handle_at}, -100, b'/', bytes(200), bytes(8), 0)",
    "quota": "call({quotactl}, 0, 0, 0, 0)",
    "fanotify": "call({fanotify_init}, 0x200, 0)",
    "old asynchronous input": "call({io_setup}, 1, ctypes.create_string_buffer(8))",
    "reading the clock's rate": "call({adjtimex}, bytes(208))",
    "moving pages": "call({move_pages}, 0, 0, 0, 0, 0, 0)",
    "terminal input": "call({ioctl}, 0, 0x5412, b'x')",
    "line discipline of a terminal": "call({ioctl}, os.openpty()[1], 0x5423, bytes(4))",
    "personality": "call({personality}, 0x0040000)",
    "limits of the first process": "call({prlimit64}, 1, 7, 0, bytes(16))",
    "space on the disk": "call({fallocate}, os.open('made', os.O_CREAT | os.O_RDWR), 0, 0, 4096)",
    "packet sockets of a pair": "call({socketpair}, 40, 1, 0, bytes(8))",
    "other protocols": "call({socket}, 16, 3, 16)",
}
OTHERS = {
    "clone": (56, 220),
    "ioctl": (16, 29),
    "personality": (135, 92),
    "prlimit64": (302, 261),
    "fallocate": (285, 47),
    "socketpair": (53, 199),
    "socket": (41, 198),
}
CALL = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words, over=False):
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    result = libc.syscall(ctypes.c_long(number), *words)
    if over and result == 0:
        os._exit(0)
    return ctypes.get_errno() if result < 0 else 0
print({probe})
"""


def errno_of(executor: SyncCodeExecutor, probe: str) -> int:
    """Return the errno of `probe`'s call in a block."""
    tables = {**seccomp.REFUSED, **seccomp.NOT_IMPLEMENTED, **OTHERS}
    column = NUMBERS[platform.machine()]
    call = probe.format(**{name: numbers[column] for name, numbers in tables.items()})
    return int(checked_output(executor, CALL.replace("{probe}", call)))


@pytest.fixture(scope="module")
def filtered() -> Iterator[SyncCodeExecutor]:
    with sandbox() as executor:
        yield executor


@pytest.fixture(scope="module")
def unfiltered() -> Iterator[SyncCodeExecutor]:
    executor = sandbox()
    with without_filter():
        executor.start()
    yield executor
    executor.stop()


REFUSALS = (
    *(errno.EPERM, errno.ENOSYS),
    *(errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EOPNOTSUPP),
)


def test_filter_refuses_what_works_without_it(
    filtered: SyncCodeExecutor, unfiltered: SyncCodeExecutor
) -> None:
    faults, untested = list[object](), list[str]()
    for name, probe in CALLS.items():
        found, without = errno_of(filtered, probe), errno_of(unfiltered, probe)
        if found not in REFUSALS:
            faults.append((name, found))
        elif found == without:  # this kernel itself refuses it
            untested.append(name)
    assert faults == []
    assert len(untested) < len(CALLS) / 2, untested


OTHER_ENTRY = """
import ctypes, mmap, os
page = mmap.mmap(-1, 4096, prot=7)
page.write({code!r})
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
# The number of getpid for 32-bit programs and for x32, each by its own entry.
ENTRIES = {
    "32 bit": b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3",
    "x32": b"\xb8\x27\x00\x00\x40\x0f\x05\xc3",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86_64 has other entries")
@pytest.mark.parametrize("name", ENTRIES)
def test_other_system_call_entries_are_refused(
    name: str, filtered: SyncCodeExecutor, unfiltered: SyncCodeExecutor
) -> None:
    block = CodeBlock(OTHER_ENTRY.format(code=ENTRIES[name]), "python")
    done, without = (each.execute_code_blocks([block]) for each in (filtered, unfiltered))
    assert (done.exit_code, done.output) in ((128 + 31, ""), (0, f"{-errno.ENOSYS}\n"))
    if without.exit_code != 0 or int(without.output) < 0:
        pytest.skip(f"this kernel has no entry for {name} programs")
    assert int(without.output) > 0
