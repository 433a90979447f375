"""Start the first process of a session's cell, and from it the session.

The zygote loads this module only if its server has sessions.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from pathlib import Path
from typing import NoReturn

from ... import handshake
from ...linux import syscalls
from ...messages import StartSession
from ...spec import ConfinementSpec, LandlockSpec, ZygoteSpec
from ..box.users import BoxUser
from ..confinement import Confinement
from ..filesystem import CellFilesystem, give_to_root
from ..init import enter_network_namespace
from .init import SessionInit, mount_proc, protect_settings
from .session import Session
from .shell import Shell

_shells: list[Shell] = []


def run_session_init(link: socket.socket, spec: ZygoteSpec, confinement: Confinement) -> NoReturn:
    """In a fork of the zygote: run as the first process of a session's cell."""
    fork_session = functools.partial(_fork_session, spec, confinement)
    assert spec.session_confinement is not None
    # They are in the Landlock domain of this process: otherwise they would not see each other.
    of_users = Confinement(spec.session_confinement._replace(landlock=LandlockSpec()))

    def confine(user: BoxUser | None) -> None:
        if user is None:
            confinement.apply(is_hidden=True)
        else:
            of_users.apply(is_hidden=True, capabilities=user.capabilities)

    init = SessionInit(link, spec, fork_session, confine, confinement.limit)
    try:
        if spec.namespaces:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            enter_network_namespace(spec, "session")
            mount_proc()
        else:
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        filesystem = CellFilesystem(spec)
        files = {path: Path(path).read_bytes() for path in spec.user_files}
        filesystem.reset()
        if spec.user_landlock is not None:
            protect_settings()
            _make_user_files(spec, files)
            own = Confinement(ConfinementSpec(landlock=spec.user_landlock))
            own.prepare()
            own.apply()
            of_users.prepare()
        filesystem.close_handles()  # all blocks of a session share one filesystem
        confinement.prepare()
        init.send_hello()
    except BaseException as error:
        with contextlib.suppress(OSError):
            link.sendall(handshake.ERROR + f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    init.serve()


def _make_user_files(spec: ZygoteSpec, files: dict[str, bytes]) -> None:
    """Write the files of users, and give root its folders."""
    for path, data in files.items():
        Path(path).write_bytes(data)
        os.chmod(path, 0o644)
    for path in spec.user_folders:
        give_to_root(path, os.stat(path).st_dev)


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
