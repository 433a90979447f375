"""Launch a sandbox: from a plain process to a zygote that sees nothing but the sandbox.

1. As root only: open the mount trees and become an unprivileged user.
2. Enter the namespaces and fork their first process.
3. In that process: build the root, keep the capabilities for making cells, execute the zygote.
"""

from __future__ import annotations

import os
import signal
import socket

from ...runtime.linux import syscalls
from ...runtime.messages import Failure
from ...runtime.packets import encode_packet
from ...runtime.spec import SandboxSpec
from . import mount_broker, mounts, namespaces


def launch(
    sandbox: SandboxSpec, zygote_socket: socket.socket, broker_socket: socket.socket
) -> None:
    """Start a zygote in `sandbox`, and a mount broker.

    Do not return. Raise an exception if a step fails.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    trees: list[mounts.MountTree] | None = None
    user: int | None = None
    if namespaces.can_use_outer_users():
        user = namespaces.gain_mount_capability(sandbox.user, sandbox.outer_user)
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        lines = namespaces.lines_of_users(sandbox.user, user, sandbox.sub_ids)
        owners = mounts.OwnerMap(user, sandbox.sub_ids, lines, {})
        trees = mounts.open_trees(sandbox.mounts, owners)
        mount_broker.fork_broker(broker_socket, owners, sandbox)
    writer = namespaces.map_writer(sandbox.user, user, sandbox.sub_ids)
    if user is not None:
        namespaces.switch_user(user)
    namespaces.enter_namespaces(
        user=sandbox.user, network=sandbox.network == "host", writer=writer, processes=False
    )
    if trees is None:
        # In the new user namespace, which allows mounts. Not in that of processes, whose end it
        # outlives: it takes back files then.
        mount_broker.fork_broker(broker_socket, None, sandbox)
    syscalls.unshare(syscalls.CLONE_NEWPID)
    if os.fork() != 0:
        os._exit(0)
    try:
        # The broker must not see the mounts that this process makes from here on.
        syscalls.unshare(syscalls.CLONE_NEWNS)
        _become_zygote(sandbox, trees, zygote_socket)
    except BaseException as error:
        zygote_socket.sendall(encode_packet(Failure(f"{type(error).__name__}: {error}")))
    os._exit(1)


def _become_zygote(
    sandbox: SandboxSpec, trees: list[mounts.MountTree] | None, zygote_socket: socket.socket
) -> None:
    os.umask(0o022)
    if sandbox.network != "host":
        syscalls.bring_up_loopback()
    socket.sethostname(sandbox.hostname)
    if trees is None:
        trees = mounts.open_trees(sandbox.mounts, None)
    mounts.build_root(sandbox, trees)
    _reopen_stdio()
    _keep_capabilities(sandbox.capabilities)
    os.dup2(zygote_socket.fileno(), syscalls.ZYGOTE_SOCKET_FD, inheritable=True)
    os.closerange(syscalls.ZYGOTE_SOCKET_FD + 1, os.sysconf("SC_OPEN_MAX"))
    environment = dict([syscalls.BIND_NOW]) | sandbox.environment
    os.execve(sandbox.argv[0], sandbox.argv, environment)


def _reopen_stdio() -> None:
    """Use the sandbox's /dev/null as stdin and stdout.

    Blocks inherit it, and Landlock only allows this one.
    """
    null = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1):
        os.dup2(null, target)
    os.close(null)


def _keep_capabilities(capabilities: tuple[int, ...]) -> None:
    """Keep `capabilities` in our user namespace over exec, and prevent any program from more.

    Cells are made with them: CAP_SYS_ADMIN for mounts and namespaces, CAP_NET_ADMIN for a loopback
    device, and CAP_SETPCAP to give up all of them for good. Boxes with a root file system of their
    own need CAP_SYS_CHROOT, and CAP_DAC_OVERRIDE for the folder that only overlayfs uses.
    """
    for capability in range(syscalls.CAP_LAST + 1):
        if capability not in capabilities:
            syscalls.drop_from_bounding_set(capability)
    mask = sum(1 << capability for capability in capabilities)
    syscalls.capset_call(mask, mask, mask)()
    for capability in capabilities:
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_RAISE, capability)
