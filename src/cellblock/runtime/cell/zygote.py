"""The process that cells are forked from: an interpreter that is started, warmed up, and then left alone.

It holds no data of any run and reads nothing but requests of one byte that carry one descriptor each.
"""

from __future__ import annotations

import binascii
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import struct
import sys
from types import ModuleType
from typing import Any

from ..linux import syscalls
from . import init, script, stdio, stdlib_copy, warmup
from .confinement import Confinement

_WORDS = 2000  # characters of an error that are passed on: all of it is read at once


def main() -> dict[str, Any]:
    """Be a zygote that was started as a program of its own, behind the walls. Returns as `serve` does."""
    link = socket.socket(fileno=syscalls.ZYGOTE_LINK)
    link.set_inheritable(False)
    if syscalls.LINK_NOW in os.environ.items():  # ours, and not what the policy says
        del os.environ[syscalls.LINK_NOW[0]]
    try:
        (length,) = struct.unpack(">I", _exactly(link, 4))
        spec = json.loads(_exactly(link, length))
        # Its launcher is gone by now, so that the server is its parent: when that dies, so does it.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        return serve(link, spec)
    except Exception as error:
        link.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    os._exit(1)


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data


def serve(link: socket.socket, spec: dict[str, Any]) -> dict[str, Any]:
    """Fork a cell for every request until the server goes away. Returns in a cell's main process, with its job."""
    confinement = Confinement.from_spec(spec["confinement"])
    namespaces, scripts = bool(spec["namespaces"]), bool(spec["scripts"])
    own_processes = bool(spec["own_processes"])
    if own_processes and not namespaces:
        if "session_confinement" in spec:
            raise OSError(
                "sessions need PR_SET_CHILD_SUBREAPER, which this kernel does not have: take another runtime"
            )
        _own_users()  # before anything that is imported starts a thread
    stdio.renew()
    _preload(link, spec["preload"])
    syscalls.keep_freed_memory()
    if "session_confinement" in spec:
        prepare_sessions()
    _install_filters(spec)
    if namespaces:
        for capability in syscalls.NETWORK_CAPABILITIES:  # held, but never to be given to a program
            syscalls.drop_from_bounding_set(capability)
        syscalls.prctl(
            syscalls.PR_SET_DUMPABLE, 0
        )  # no cell may look into it, or into another's first process
    elif not own_processes:
        syscalls.adopt_orphans()
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # the kernel reaps: nobody asks for these statuses
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if namespaces else -1
    is_for_blocks = scripts and "session_confinement" not in spec  # a session is no block
    _settle(practising=is_for_blocks, is_heard=bool(spec.get("farewell")))
    link.sendall(json.dumps({"pid": os.getpid(), "python": sys.version.split()[0]}).encode())
    kind, theirs = _fork_for_each(link, home, own_processes=own_processes)
    if kind == init.ZYGOTE:
        _move_in(theirs, spec)
        kind, theirs = _fork_for_each(theirs, home, own_processes=own_processes)
    if kind == init.SESSION:
        guard().enter(theirs, spec, Confinement.from_spec(spec["session_confinement"]))
    return init.enter(theirs, spec, confinement)


def _install_filters(spec: dict[str, Any]) -> None:
    """Install the seccomp programs of `spec` for this process and all to come."""
    if "filter_program" in spec:
        _install(spec["filter_program"])
    if "output_program" in spec:
        with contextlib.suppress(OSError):  # it is no wall, and a container may forbid it
            _install(spec["output_program"])


def _install(program: str) -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.filter_call(binascii.a2b_base64(program))()


def _own_users() -> None:
    """Enter a user namespace with nobody else in it: whoever owns one may make process namespaces."""
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for name, number in (("uid_map", user), ("gid_map", group)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(f"{number} {number} 1")


def _fork_for_each(
    link: socket.socket, home: int, *, own_processes: bool
) -> tuple[bytes, socket.socket]:
    """Fork a cell for every request, or another zygote. Returns in the fork, with what it is to be, and its socket."""
    while True:
        kind, received, _, _ = socket.recv_fds(link, 1, 1)
        if not kind:
            os._exit(0)
        is_cell = kind != init.ZYGOTE
        if own_processes and is_cell:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        if os.fork() == 0:
            link.close()
            if home >= 0 and is_cell:
                os.close(home)
            return kind, socket.socket(fileno=received[0])
        if home >= 0 and is_cell:
            syscalls.setns(home, syscalls.CLONE_NEWPID)  # else a second unshare is refused
        os.close(received[0])


def _move_in(link: socket.socket, spec: dict[str, Any]) -> None:
    """Become the zygote of one guest's cells, with his folders and a network of his own; says so, or why that cannot be."""
    try:
        data, mounts, _, _ = socket.recv_fds(link, 4, init.MOST_MOUNTS)
        targets = json.loads(_exactly(link, struct.unpack(">I", data)[0]))
        syscalls.unshare(syscalls.CLONE_NEWNS)
        init.own_network(spec, "guest")
        init.keep_few_capabilities()
        init.mount_all(targets, mounts)
        for mount in mounts:
            os.close(mount)
    except Exception as error:
        link.sendall(init.ERROR + f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    link.sendall(init.HELLO)


def guard() -> ModuleType:
    """Give the module of the first process of a session's cell, which no other server loads."""
    return importlib.import_module("cellblock.runtime.cell.session.init")


def prepare_sessions() -> None:
    """Make the shell that all sessions begin with, and import what they run on. Raises what says that IPython is missing."""
    # As in the interactive interpreter, and not how we were started: blocks beside a session set their own.
    sys.argv, sys.orig_argv = [""], [sys.executable]
    try:
        guard().zygote_shell().run("None", quietly=True)
    except ImportError as error:
        raise ImportError(
            f"a session needs IPython in the Python of the blocks ({error}): pip install ipython, or packages=['ipython']"
        ) from error
    for name in ("cell.session.session", "cell.session.branch", "values"):
        importlib.import_module(f"cellblock.runtime.{name}")
    for name in ("fork_state", "hidden_children", "control"):
        importlib.import_module(f"cellblock.runtime.cell.session.{name}")


def _settle(*, practising: bool, is_heard: bool) -> None:
    """Bring memory into the state in which forks find it best."""
    stdlib_copy.keep()
    gc.collect()
    gc.freeze()  # before the practice as well, whose collections would walk through all of it
    if practising:
        warmup.practise()
        init.look_up()
    script.look_around(is_heard=is_heard, is_for_blocks=practising)
    gc.collect()
    gc.freeze()


def _preload(link: socket.socket, modules: list[str]) -> None:
    """Import `modules`; say which of them cannot be imported, and end.

    Threads that a library starts meanwhile do not live on in a cell, since a fork carries over the calling thread alone;
    OpenBLAS, which numpy brings, ends its own before a fork and starts them again when they are needed.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:  # a program that ends when it is imported, by SystemExit
            said = f"{type(error).__name__}: {error}"[:_WORDS]
            link.sendall(json.dumps({"error": said, "module": module}).encode())
            os._exit(1)
