"""Walk into a sandbox: the launcher's way from a plain process to a zygote that sees nothing but the sandbox.

root only: open the trees, become a plain user
enter the namespaces, fork their first process
inside: build the root, keep the two capabilities that making cells needs, become a clean interpreter
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from ...runtime.linux import syscalls
from . import mount_broker, mounts, namespaces


def enclose(spec: dict[str, Any], link: socket.socket, porter_link: socket.socket) -> None:
    """Start a zygote behind the walls that `spec` describes, and a porter.

    Does not return; raises what does not work.
    """
    box = spec["sandbox"]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    trees: list[mounts.Tree] | None = None
    maps: mounts.Maps = {}
    if namespaces.is_root():
        user = namespaces.gain_mounting(box["user"], box["outer_user"])
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        trees = mounts.open_trees(box["mounts"], user, maps)
        mount_broker.fork(porter_link, user, maps)
        namespaces.become(user)
    namespaces.enter(user=box["user"], network=box["network"] == "host")
    if os.fork() != 0:
        if trees is None:
            mount_broker.fork(
                porter_link, None, maps
            )  # in the new user namespace, which may mount, and after its first process
        os._exit(0)
    try:
        syscalls.unshare(
            syscalls.CLONE_NEWNS
        )  # what it sees from here on is not what the porter has to see
        _inside(box, trees, link)
    except BaseException as error:
        import json

        link.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    os._exit(1)


def _inside(box: dict[str, Any], trees: list[mounts.Tree] | None, link: socket.socket) -> None:
    os.umask(0o022)
    if box["network"] != "host":
        syscalls.bring_up_loopback()
    socket.sethostname(box["hostname"])
    if trees is None:
        trees = mounts.open_trees(box["mounts"], None, {})
    mounts.build_root(box, trees)
    _take_standard_input()
    _keep(box["capabilities"])
    os.dup2(link.fileno(), syscalls.ZYGOTE_LINK, inheritable=True)
    os.closerange(syscalls.ZYGOTE_LINK + 1, os.sysconf("SC_OPEN_MAX"))
    os.execve(box["argv"][0], box["argv"], dict([syscalls.LINK_NOW]) | box["environment"])


def _take_standard_input() -> None:
    """Open the sandbox's /dev/null in the place of the machine's: blocks inherit it, and Landlock knows none but this."""
    null = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1):
        os.dup2(null, target)
    os.close(null)


def _keep(capabilities: list[int]) -> None:
    """Carry these of our own user namespace over exec, for the making of cells, and let no program ever get another one.

    CAP_SYS_ADMIN: cells get mounts and namespaces of their own. CAP_NET_ADMIN: and a loopback. CAP_SETPCAP: a cell gives
    all of them up for good.
    """
    for capability in range(syscalls.CAP_LAST + 1):
        if capability not in capabilities:
            syscalls.drop_from_bounding_set(capability)
    mask = sum(1 << capability for capability in capabilities)
    syscalls.capability_call(mask, mask, mask)()
    for capability in capabilities:
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_RAISE, capability)
