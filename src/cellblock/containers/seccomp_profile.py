"""The sandbox's system call filter as a profile for a container engine.

An engine replaces its own profile by this one. So this one also refuses what Docker's refuses to a
container without capabilities. Calls are named, not numbered: an engine translates the names for
the architecture of its machine, and skips those that its libraries do not know.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final

from ..sandbox.seccomp import (
    CREATES_FILE,
    FAMILIES,
    FILE_MODES,
    NETLINK,
    NEW_NAMESPACES,
    NOT_IMPLEMENTED,
    OPENS,
    PERSONALITIES,
    PROTOCOLS,
    SET_ID_BITS,
    UNIX,
)

# What the tables of `sandbox.seccomp` do not mention, up to the newest call that was reviewed.
# Without those that place memory on NUMA nodes, which Docker's profile refuses, and those that no
# kernel implements.
ALLOWED: Final[Sequence[str]] = """
    accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chown
    clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
    clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range dup
    dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2
    epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat
    faccessat2 fadvise64 fallocate fchdir fchown fchownat fcntl fdatasync fgetxattr
    flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
    futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list
    get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups
    getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid
    getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
    getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel
    io_destroy io_getevents io_pgetevents io_pgetevents_time64 ioctl ioprio_get ioprio_set
    kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr
    link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise
    map_shadow_stack membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
    mq_timedsend_time64 mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock
    munlockall munmap nanosleep newfstatat pause pidfd_open pidfd_send_signal pipe pipe2
    pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2
    pselect6 pselect6_time64 pwrite64 pwritev pwritev2 read readahead readlink readlinkat
    readv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr rename
    renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
    rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
    sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop
    semtimedop_time64 sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area
    set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority
    setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat
    shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx
    symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
    timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
    timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime
    timerfd_settime64 times tkill truncate umask uname unlink unlinkat utime utimensat
    utimensat_time64 utimes vfork vmsplice wait4 waitid write writev
""".split()
# A filter of the sandbox returns ENOSYS for every later call, an engine only for those that its
# libraries do not know. Programs fall back after ENOSYS, but not after EPERM.
_LATER: Final[Sequence[str]] = """
    file_getattr file_setattr fchmodat2 getxattrat listmount listns listxattrat lsm_get_self_attr
    lsm_list_modules lsm_set_self_attr mseal open_tree_attr removexattrat setxattrat statmount
""".split()
_ENGINES_OWN: Final = (
    "To use the engine's own filter, which allows more, pass "
    "create_kwargs={'HostConfig': {'SecurityOpt': ['no-new-privileges']}}."
)
REFUSED_ADVICE: Final = f"The engine does not take Cellblock's system call filter. {_ENGINES_OWN}"
IGNORED_ADVICE: Final = (
    "The engine ignores Cellblock's system call filter: no filter is in force in the container. "
    f"Use another runtime. {_ENGINES_OWN}"
)
_INT: Final = 0xFFFFFFFF  # the kernel ignores the upper half of an argument that is an int

Rule = dict[str, Any]


@contextlib.contextmanager
def given_to(*, is_podman: bool) -> Generator[str]:
    """Yield the profile in the form that an engine takes when it creates a container.

    Docker takes the JSON itself, Podman the path of a file on its machine.
    """
    if not is_podman:
        yield profile_json()
        return
    with tempfile.NamedTemporaryFile("w", prefix="cellblock-seccomp-", suffix=".json") as file:
        os.chmod(file.name, 0o644)  # the engine can run as another user
        file.write(profile_json())
        file.flush()
        yield file.name


def is_replaced(create_kwargs: Mapping[str, Any]) -> bool:
    """Return True if the caller's entries for the create request replace the filter."""
    return "SecurityOpt" in create_kwargs.get("HostConfig", {})


@functools.cache
def profile_json() -> str:
    """Return `profile` as compact JSON."""
    return json.dumps(profile(), separators=(",", ":"))


def profile() -> dict[str, Any]:
    """Return the profile, in the format of Docker and Podman. The default is to refuse a call.

    It leaves out rules that are not needed around a container: checks of ioctl and fcntl, because
    the caller's terminal is outside and the runtime keeps output blocking itself; and fallocate,
    which the runtime needs for its memory reserve.
    """
    missing = {
        "names": [*NOT_IMPLEMENTED, *_LATER],
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": errno.ENOSYS,
    }
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        # Without the 32-bit entries of these machines: the kernel kills who uses them.
        "archMap": [
            {"architecture": name, "subArchitectures": []}
            for name in ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
        ],
        "syscalls": [_allow(ALLOWED), *_allowed_by_arguments(), missing],
    }


def _allowed_by_arguments() -> Iterator[Rule]:
    """Yield rules for calls that depend on arguments. One rule that applies is enough."""
    yield _allow(["clone"], _masked(0, NEW_NAMESPACES, 0))
    for family in FAMILIES:
        for protocol in PROTOCOLS:
            yield _allow(["socket"], _masked(0, _INT, family), _masked(2, _INT, protocol))
    yield _allow(["socket"], _masked(0, _INT, NETLINK), _masked(2, _INT, 0))
    yield _allow(["socketpair"], _masked(0, _INT, UNIX))
    for value in PERSONALITIES:
        yield _allow(["personality"], _masked(0, _INT, value))
    yield _allow(["prlimit64"], _masked(0, _INT, 0))
    for name, (_, mode) in FILE_MODES.items():
        yield _allow([name], _masked(mode, SET_ID_BITS, 0))
    for name, (_, flags) in OPENS.items():
        yield _allow([name], _masked(flags, CREATES_FILE, 0))
        yield _allow([name], _masked(flags + 1, SET_ID_BITS, 0))


def _allow(names: Sequence[str], *conditions: Mapping[str, Any]) -> Rule:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", "args": list(conditions)}


def _masked(argument: int, mask: int, value: int) -> Mapping[str, Any]:
    """Return the condition that the bits `mask` of an argument are `value`."""
    return {"index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
