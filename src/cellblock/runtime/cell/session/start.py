"""Start the first process of a session's cell, and from it the session.

The zygote loads this module only if its server has sessions.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from typing import NoReturn

from ... import handshake
from ...linux import syscalls
from ...messages import StartSession
from ...spec import ZygoteSpec
from ..confinement import Confinement
from ..filesystem import CellFilesystem
from ..init import enter_network_namespace
from .init import SessionInit, mount_proc
from .session import Session
from .shell import Shell

_shells: list[Shell] = []


def run_session_init(link: socket.socket, spec: ZygoteSpec, confinement: Confinement) -> NoReturn:
    """In a fork of the zygote: run as the first process of a session's cell."""
    fork_session = functools.partial(_fork_session, spec, confinement)
    init = SessionInit(
        link, spec, fork_session, functools.partial(confinement.apply, is_hidden=True)
    )
    try:
        if spec.namespaces:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            enter_network_namespace(spec, "session")
            mount_proc()
        else:
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        filesystem = CellFilesystem(spec)
        filesystem.reset()
        filesystem.close_handles()  # all blocks of a session share one filesystem
        confinement.prepare()
        init.send_hello()
    except BaseException as error:
        with contextlib.suppress(OSError):
            link.sendall(handshake.ERROR + f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    init.serve()


def zygote_shell() -> Shell:
    """Return the shell of this process. The first call creates it; forks inherit it."""
    if not _shells:
        _shells.append(Shell())
    return _shells[0]


def _fork_session(
    spec: ZygoteSpec,
    confinement: Confinement,
    init: SessionInit,
    descriptors: list[int],
    order: StartSession,
) -> None:
    """Fork a confined session that uses a control stream and two output pipes.

    A fourth descriptor is that from which it loads its variables."""
    if os.fork() != 0:
        return
    try:
        init.release()
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        control, out, err, *saved = descriptors
        for target, source in enumerate((out, err), 1):
            os.dup2(source, target)
            os.close(source)
        confinement.apply()
        session = Session(zygote_shell(), control, spec.cwd)
        if order.in_work_folder:
            session.enter_work_folder()
        if saved:
            session.load_variables(saved[0], reseed=order.reseed)
        session.serve()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
