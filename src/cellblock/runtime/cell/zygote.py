"""The zygote: a warmed-up interpreter that cells are forked from.

It holds no data of any run. It reads only requests of one byte with one descriptor each.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import signal
import socket
import struct
import sys
from types import ModuleType

from .. import handshake
from ..linux import syscalls
from ..linux.retry import retry
from ..messages import Failure, Importing, MountFolders, Ready
from ..packets import decode_packet, encode_packet
from ..spec import ZygoteSpec
from . import init, script, stdio, stdlib_copy, warmup
from .confinement import Confinement
from .filesystem import attach_mounts

_MAX_ERROR_CHARS = 2000  # the server reads the whole message with one call


def main() -> handshake.CellJob:
    """Run as a zygote that is a separate program, in a sandbox. Return like `serve`."""
    server = socket.socket(fileno=syscalls.ZYGOTE_SOCKET_FD)
    server.set_inheritable(False)
    if syscalls.BIND_NOW in os.environ.items():  # set by us, not by the policy
        del os.environ[syscalls.BIND_NOW[0]]
    try:
        (length,) = struct.unpack(">I", _receive_exactly(server, 4))
        spec = decode_packet(_receive_exactly(server, length), ZygoteSpec)
        # The launcher has ended, so that the server is the parent: the zygote ends with it.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        return serve(server, spec)
    except Exception as error:
        server.sendall(encode_packet(Failure(f"{type(error).__name__}: {error}")))
    os._exit(1)


def _receive_exactly(server: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = retry(functools.partial(server.recv, size - len(data)))
        if not piece:
            os._exit(0)
        data += piece
    return data


def serve(server: socket.socket, spec: ZygoteSpec) -> handshake.CellJob:
    """Fork a cell for each request until the server ends.

    Return only in a cell's main process, with its job.
    """
    confinement = Confinement(spec.confinement)
    namespaces, own_processes = spec.namespaces, spec.own_processes
    if own_processes and not namespaces:
        if spec.session_confinement is not None:
            raise OSError(
                "sessions need PR_SET_CHILD_SUBREAPER, which this kernel does not support: "
                "use another container runtime"
            )
        _enter_user_namespace(0)  # before an imported module starts a thread
    stdio.replace_standard_streams()
    if "PWD" in os.environ:  # shells show it if it is another path of the current folder
        os.environ["PWD"] = spec.cwd
    _preload(server, spec.preload)
    syscalls.keep_freed_memory()
    if spec.session_confinement is not None:
        prepare_sessions()
    _install_filters(spec)
    if namespaces:
        # The zygote keeps these capabilities, but no program gets them by exec.
        for capability in syscalls.NETWORK_CAPABILITIES:
            syscalls.drop_from_bounding_set(capability)
        # Cells must not read the memory of the zygote or of another cell's first process.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    elif not own_processes:
        syscalls.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps: the statuses are not needed
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if namespaces else -1
    for_blocks = spec.scripts and spec.session_confinement is None
    _prepare_memory(warming_up=for_blocks, notifies_exit=spec.early_exit)
    server.sendall(encode_packet(Ready(sys.version.split()[0])))
    kind, socket_to_server = _fork_for_each(server, home, own_processes=own_processes)
    if kind == handshake.ZYGOTE:
        home = _become_tenant_zygote(socket_to_server, spec, home)
        kind, socket_to_server = _fork_for_each(socket_to_server, home, own_processes=own_processes)
    if kind == handshake.SESSION:
        assert spec.session_confinement is not None
        confinement = Confinement(spec.session_confinement)
        session_start().run_session_init(socket_to_server, spec, confinement)
    return init.run_init(socket_to_server, spec, confinement)


def _install_filters(spec: ZygoteSpec) -> None:
    """Install the seccomp programs of `spec` for this process and its future children."""
    if spec.filter_program:
        _install(spec.filter_program)
    if spec.output_program:
        with contextlib.suppress(OSError):  # it protects nothing, and a container may forbid it
            _install(spec.output_program)


def _install(program: bytes) -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.seccomp_call(program)()


def _enter_user_namespace(others: int) -> None:
    """Enter a new user namespace, whose owner may create process namespaces, and `others` in it."""
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | others)
    for name, number in (("uid_map", user), ("gid_map", group)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(f"{number} {number} 1")


def _fork_for_each(
    server: socket.socket, home: int, *, own_processes: bool
) -> tuple[bytes, socket.socket]:
    """Fork a cell or another zygote for each request.

    Return only in the fork, with the kind that was requested, and its socket to the server. `home`
    is the zygote's process namespace, or -1.
    """
    while True:
        kind, received, _, _ = retry(lambda: socket.recv_fds(server, 1, 1))
        if not kind:
            os._exit(0)
        if not received:  # the server sees the other end of the socket closed
            continue
        is_cell = kind != handshake.ZYGOTE
        try:
            if own_processes and is_cell:
                syscalls.unshare(syscalls.CLONE_NEWPID)
            pid = os.fork()
        except (OSError, MemoryError) as error:
            pid = -1
            text = f"a process could not be forked: {error}"
            with contextlib.suppress(OSError):  # otherwise the server sees the end of the socket
                os.write(received[0], handshake.ERROR + text.encode())
        if pid == 0:
            server.close()
            if home >= 0 and is_cell:
                os.close(home)
            return kind, socket.socket(fileno=received[0])
        os.close(received[0])
        if home >= 0 and is_cell:  # the kernel refuses a second unshare otherwise
            retry(lambda: syscalls.setns(home, syscalls.CLONE_NEWPID))


def _become_tenant_zygote(server: socket.socket, spec: ZygoteSpec, home: int) -> int:
    """Become the zygote of a tenant, with its folders and network. Send `HELLO`, or an error.

    Return its process namespace, which is `home` if it has none of its own.
    """
    try:
        data, mounts, _, _ = socket.recv_fds(server, 4, handshake.MAX_MOUNTS)
        packet = _receive_exactly(server, struct.unpack(">I", data)[0])
        if spec.own_users:
            os.close(home)
            home = _enter_own_namespaces()
        else:
            syscalls.unshare(syscalls.CLONE_NEWNS)
        init.enter_network_namespace(spec, "tenant")
        init.limit_capabilities()
        for capability in syscalls.CELL_CAPABILITIES:  # no program gets them by exec
            syscalls.drop_from_bounding_set(capability)
        attach_mounts(decode_packet(packet, MountFolders).targets, mounts)
        for mount in mounts:
            os.close(mount)
    except Exception as error:
        server.sendall(handshake.ERROR + f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    server.sendall(handshake.HELLO)
    return home


def _enter_own_namespaces() -> int:
    """Enter a user namespace, where the kernel counts this tenant's processes apart from others.

    Process namespaces can only be entered by their owner, so the tenant has its own, whose first
    process it becomes. The mounts that exist cannot be removed in it. Return its process namespace.
    """
    # The files that map users belong to root in a process that is not dumpable.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    _enter_user_namespace(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    if os.fork() != 0:
        os._exit(0)
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


def session_start() -> ModuleType:
    """Return the module that starts sessions. Only servers with sessions load it."""
    return importlib.import_module("cellblock.runtime.cell.session.start")


def prepare_sessions() -> None:
    """Create the shell that all sessions start with, and import their modules.

    Raise `ImportError` if IPython is missing.
    """
    # As in the interactive interpreter. Blocks that run next to a session set their own.
    sys.argv, sys.orig_argv = [""], [sys.executable]
    try:
        session_start().zygote_shell().run("None", silent=True)
    except ImportError as error:
        raise ImportError(
            f"sessions need IPython in the Python that runs the blocks ({error}). Install it with "
            "'pip install ipython', or pass packages=['ipython']"
        ) from error
    for name in ("cell.session.session", "cell.session.branch", "values"):
        importlib.import_module(f"cellblock.runtime.{name}")
    for name in ("fork_state", "hidden_children", "control"):
        importlib.import_module(f"cellblock.runtime.cell.session.{name}")


def _prepare_memory(*, warming_up: bool, notifies_exit: bool) -> None:
    """Prepare memory so that forks copy few pages."""
    stdlib_copy.snapshot_stdlib()
    gc.collect()
    gc.freeze()  # also before the warm-up, whose collections would visit all objects
    if warming_up:
        warmup.warm_up()
        init.prime_attribute_caches()
    script.record_baseline(notifies_exit=notifies_exit, for_blocks=warming_up)
    gc.collect()
    gc.freeze()


def _preload(server: socket.socket, modules: tuple[str, ...]) -> None:
    """Import `modules`. If one cannot be imported, report it to the server and exit.

    Threads that a library starts do not exist in a cell, since a fork copies the calling thread
    only. OpenBLAS, which NumPy uses, stops its threads before a fork and restarts them when needed.
    """
    for module in modules:
        server.sendall(encode_packet(Importing(module)) + b"\n")
        try:
            importlib.import_module(module)
        except BaseException as error:  # also SystemExit
            text = f"It says:\n{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]
            server.sendall(encode_packet(Failure(text, module=module)))
            os._exit(1)
