"""The full sandbox: its own root and namespaces, with only what the caller gives it."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..environments.interpreter import Interpreter, command_dirs, own_command_dirs, own_commands
from ..errors import BackendError
from ..limits import Limits
from ..policy import Policy
from ..runtime import bootstrap, protocol
from ..runtime.cell.command_root import IMAGE, NETWORK_FILES, ROOT
from ..runtime.linux import syscalls
from ..runtime.messages import MountSpec
from ..runtime.packets import encode_packet
from ..runtime.spec import ConfinementSpec, SandboxSpec, ServerSpec, SubIds, ZygoteSpec
from ..sandbox import landlock, seccomp
from ..sandbox.probe import counts_processes_by_namespace
from ..sandbox.setup.namespaces import OUTER_USERS
from ..sandbox.setup.sub_ids import draw
from .kernel_limits import (
    allows_memory_files,
    cell_limits,
    plan_cgroups,
    rlimits,
)
from .protected_paths import ProtectedPath
from .server_process import PACKAGE_DIR, cloudpickle_dir

WORK_DIR = "/workspace"
HOME = "/home/cell"
ENVIRONMENT = "/opt/env"
_OWN_COMMANDS = "/opt/commands"
_RUNTIME_PARENT = "/opt/cellblock"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_USER = 1000
TOP_DIRS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_TMPFS_DIRS = ("/tmp", "/dev/shm")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# Files outside /usr that programs need and that reveal nothing about the caller.
_SYSTEM_CONFIG = (
    "/etc/alternatives", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/debian_version",
    "/etc/fonts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias",
    "/etc/localtime", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release",
    "/etc/pki", "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/etc/ImageMagick-*", "/etc/R", "/etc/chromium.d", "/etc/ghostscript", "/etc/java*",
    "/etc/libreoffice", "/etc/octaverc", "/etc/php.d", "/etc/php.ini", "/etc/php/*/cli",
    "/etc/php/*/mods-available", "/etc/texmf",
    "/var/lib/ghostscript", "/var/lib/libreoffice", "/var/lib/texmf",
    "/sys/devices/system/cpu", "/sys/devices/system/node",
)  # fmt: skip
# What programs that change users need.
_USER_CONFIG = (
    "/etc/adduser.conf", "/etc/default/useradd", "/etc/deluser.conf", "/etc/login.defs",
    "/etc/pam.d", "/etc/security/limits.conf", "/etc/skel",
)  # fmt: skip
# What sessions with several users have of their own besides `_TMPFS_DIRS`; it belongs to root.
_USER_DIRS = ("/etc", "/home", "/root", "/run")
# Folders that are created empty. psutil looks for batteries in the last one.
_EMPTY_DIRS = (
    "/proc",
    syscalls.DEVPTS,
    "/tmp",
    "/dev/shm",
    "/run",
    "/var",
    "/root",
    "/sys/class/power_supply",
    IMAGE,
    ROOT,
)
# What programs in a root of their own see of the sandbox, besides the folders of the caller.
_SHARED = ("/proc", "/sys", "/dev", "/tmp", HOME)
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": f"{syscalls.DEVPTS}/ptmx",
    "/var/tmp": "/tmp",
    "/var/run": "/run",
}
_FILES = {
    "/etc/passwd": f"root:x:0:0::/root:/bin/sh\ncell:x:{_USER}:{_USER}::{HOME}:/bin/sh\n",
    "/etc/group": f"root:x:0:\ncell:x:{_USER}:\n",
    "/etc/hosts": "127.0.0.1 localhost cellblock\n::1 localhost\n",
    "/etc/hostname": "cellblock\n",
}


@dataclass
class SandboxBackend:
    """What a runtime server is told, whose cells run in a sandbox.

    packages    folders of packages, which the sandbox shows read-only under the same paths
    preload     modules to import before any cell is forked
    work_dir    the folder that is mounted as `inner_work_dir`, in which cells start
    scratch     a temporary folder with `home` and `env`, mounted as /home/cell and /opt/env
    delete      paths that the runtime server removes when it ends, even if the caller was killed
    listener    the server's descriptor of a socket over which tenants connect; without it, the
                server is one of live sessions
    sub_ids     the other users of live sessions, or why they have one user

    Tenants and sessions have their own work folder, home and environment, and never see those of
    the backend.
    """

    interpreter: Interpreter
    packages: tuple[str, ...]
    limits: Limits
    policy: Policy
    preload: tuple[str, ...] = ()
    work_dir: str = ""
    scratch: str = ""
    delete: list[str] = field(default_factory=list[str])
    listener: int | None = None
    inner_work_dir: str = WORK_DIR
    sub_ids: SubIds | str = ""

    def opening_frame(self) -> bytes:
        """Return the server's whole specification as a frame. Raise `BackendError`."""
        own_mounts = executor_mounts(
            self.work_dir, self.scratch, work_dir_target=self.inner_work_dir
        )
        # In memory: to create hundreds of files on a disk takes time.
        scripts, links = own_commands(self.interpreter, f"{ENVIRONMENT}/bin/python")
        own_links = {f"{_OWN_COMMANDS}/{name}": target for name, target in links.items()}
        sandbox = self.sandbox._replace(
            mounts=(*self.sandbox.mounts, *own_mounts),
            scripts={f"{_OWN_COMMANDS}/{name}": text for name, text in scripts.items()},
            links={**self.sandbox.links, **own_links},
            outer_user=secrets.choice(OUTER_USERS),
            sub_ids=None if self.sandbox.sub_ids is None else draw(self.sandbox.sub_ids),
        )
        spec = self._with_role(self.settings._replace(sandbox=sandbox, delete=tuple(self.delete)))
        return protocol.encode(protocol.OPEN, 0, encode_packet(spec))

    @cached_property
    def settings(self) -> ServerSpec:
        """The server's specification without role and folders; the same for equal settings."""
        cgroups = plan_cgroups(self.limits)
        memory_files = allows_memory_files(self.limits, has_cgroups=cgroups is not None)
        program = seccomp.zygote_program(memory_files=memory_files)
        size = self.limits.memory_file_bytes
        options = f"nr_inodes={self.limits.memory_files}{f',size={size}' if size else ''}"
        targets = [mount.target for mount in self.sandbox.mounts]
        zygote = ZygoteSpec(
            self.inner_work_dir,
            self._cell_confinement(has_cgroups=cgroups is not None),
            namespaces=True,
            scripts=True,
            # Without control groups the kernel counts processes for each user, and all tenants are
            # one user: a tenant could use up the limit of another.
            own_users=cgroups is None
            and self.limits.processes is not None
            and counts_processes_by_namespace(),
            preload=self.preload,
            tmpfs=tuple((path, 0o1777) for path in _TMPFS_DIRS),
            tmpfs_options=options,
            below_tmpfs=tuple(
                path for path in targets if any(_is_below(path, top) for top in _TMPFS_DIRS)
            ),
            # An early exit leaves no time to measure memory: the control group must do it.
            early_exit=cgroups is not None and cgroups.peak is not None,
            filter_program=program,
            shared_paths=self._shared_paths(),
        )
        writable = tuple(self._writable_sources())
        return ServerSpec(zygote, cell_limits(self.limits), writable, cgroups, sandbox=self.sandbox)

    def _shared_paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*_SHARED, self.inner_work_dir, *self._given)))

    @cached_property
    def _given(self) -> tuple[str, ...]:
        """Where the policy mounts something."""
        found = [*self.policy.mounts(writable=False), *self.policy.mounts(writable=True)]
        return tuple(mount.target_path for mount in found)

    @cached_property
    def _network_files(self) -> list[str]:
        """The files of this machine that its network needs, without those of the policy."""
        found = NETWORK_FILES if self.policy.network == "host" else ()
        return [path for path in found if path not in self._given and os.path.exists(path)]

    def _writable_sources(self) -> list[str]:
        """Return what the policy lets blocks write to, by its path on this machine."""
        return [mount.source for mount in self.policy.mounts(writable=True)]

    def _with_role(self, spec: ServerSpec) -> ServerSpec:
        """Return `spec` for a server of tenants, or for one of live sessions."""
        is_offline = self.policy.network == "none"
        if self.listener is not None:
            zygote = spec.zygote._replace(own_network="tenant" if is_offline else "")
            return spec._replace(zygote=zygote, listener=self.listener)
        zygote = spec.zygote._replace(
            own_network="session" if is_offline else "",
            session_confinement=self._session_confinement(has_cgroups=spec.cgroups is not None),
            one_user=self.sub_ids if isinstance(self.sub_ids, str) else "",
        )
        if isinstance(self.sub_ids, SubIds):
            zygote = self._with_users(zygote)
        return spec._replace(zygote=zygote, sessions=True, spares=0)

    def _with_users(self, zygote: ZygoteSpec) -> ZygoteSpec:
        """Return `zygote` for sessions whose other users can change users, and have homes."""
        targets = [mount.target for mount in self.sandbox.mounts]
        below = [path for path in targets if any(_is_below(path, top) for top in _USER_DIRS)]
        files = [*self.sandbox.files, *self._network_files]
        files = [path for path in files if not any(_is_below(path, top) for top in self._given)]
        return zygote._replace(
            tmpfs=(*zygote.tmpfs, *((path, 0o755) for path in _USER_DIRS)),
            below_tmpfs=(*zygote.below_tmpfs, *(path for path in below if path not in files)),
            user_landlock=landlock.scopes(landlock.abi_version(), signals=True),
            user_folders=(*_TMPFS_DIRS, *_USER_DIRS),
            user_files=tuple(files),
            user_path=self._user_path(),
        )

    def _user_path(self) -> str:
        """Return the `PATH` of users who must not run what the user of the box can replace."""
        own = os.path.dirname(os.path.realpath(self.interpreter.program))
        return dict(self.policy.environment).get("PATH", f"{_SYSTEM_PATH}:{own}")

    def _cell_confinement(self, *, has_cgroups: bool) -> ConfinementSpec:
        writable = [self.inner_work_dir, HOME, ENVIRONMENT, "/tmp", "/dev", "/proc"]
        writable += [mount.target_path for mount in self.policy.mounts(writable=True)]
        return ConfinementSpec(
            rlimits(self.limits, has_cgroups=has_cgroups),
            seccomp.cell_program(),
            landlock.confinement(landlock.abi_version(), ["/"], writable, signals=True),
            drop=True,
        )

    def _session_confinement(self, *, has_cgroups: bool) -> ConfinementSpec:
        # A session's process runs many blocks, so the server counts the CPU seconds of each block.
        limits = replace(self.limits, cpu_seconds=None)
        return ConfinementSpec(
            rlimits(limits, has_cgroups=has_cgroups),
            seccomp.session_program(memory_segments=limits.memory_bytes is None),
            landlock.scopes(landlock.abi_version()),
            drop=True,
        )

    @cached_property
    def sandbox(self) -> SandboxSpec:
        """The sandbox without the folders of executors; the same for equal settings."""
        files = dict(_FILES)
        extra = () if isinstance(self.sub_ids, str) else syscalls.USER_CAPABILITIES
        mounts, links = self._shared_mounts()
        if self.policy.network == "host":
            del files["/etc/hosts"]
        return SandboxSpec(
            tuple(mounts),
            _EMPTY_DIRS,
            {**_LINKS, **links},
            files,
            _USER,
            self.policy.network,
            tuple({*syscalls.NETWORK_CAPABILITIES, *extra}),
            "cellblock",
            (f"{ENVIRONMENT}/bin/python", "-u", "-c", bootstrap.ZYGOTE, _RUNTIME_PARENT),
            clean_environment(ENVIRONMENT, _OWN_COMMANDS, HOME, self.policy),
            {},
            sub_ids=None if isinstance(self.sub_ids, str) else self.sub_ids,
        )

    def _shared_mounts(self) -> tuple[list[MountSpec], dict[str, str]]:
        """Return the mounts that do not belong to one executor, and the symbolic links."""
        mounts, links = self._system_mounts()
        mounts += [_mount(folder, folder) for folder in self._interpreter_prefixes()]
        mounts += [
            _mount(folder, folder, mapped=True)
            for folder in self._package_folders()
            if os.path.isdir(folder)
        ]
        mounts.append(_mount(str(PACKAGE_DIR / "runtime"), f"{_RUNTIME_PARENT}/runtime"))
        mounts.append(_mount(str(cloudpickle_dir()), f"{_RUNTIME_PARENT}/cloudpickle"))
        mounts += [
            mount
            for mount in _policy_mounts(self.policy)
            if not _is_below_executor_dirs(mount, self.inner_work_dir)
        ]
        mounts += [_mount(path, path) for path in self._network_files]
        return mounts, links

    def _package_folders(self) -> list[str]:
        """Return the folders of packages and, if they have any, of their commands."""
        own = own_command_dirs(self.interpreter)
        return [*self.packages, *command_dirs(self.packages, self.interpreter), *own]

    def _system_mounts(self) -> tuple[list[MountSpec], dict[str, str]]:
        mounts, links = [_mount("/usr", "/usr")], dict[str, str]()
        for name in TOP_DIRS:
            if os.path.islink(f"/{name}"):
                links[f"/{name}"] = os.readlink(f"/{name}")
            elif os.path.isdir(f"/{name}"):
                mounts.append(_mount(f"/{name}", f"/{name}"))
        mounts += [_mount(path, path) for path in system_config_paths()]
        if isinstance(self.sub_ids, SubIds):
            mounts += [_mount(path, path) for path in _USER_CONFIG if os.path.exists(path)]
        # A read-only mount allows writes to a device, but not to its owner, mode and times, which
        # are those of the host.
        mounts += [_mount(f"/dev/{name}", f"/dev/{name}", device=True) for name in DEVICES]
        return mounts, links

    def _interpreter_prefixes(self) -> list[str]:
        """Return the interpreter's folders that are not below those of the system."""
        system = ("/usr", *(f"/{name}" for name in TOP_DIRS))
        folders = {
            *self.interpreter.prefixes,
            os.path.dirname(os.path.dirname(self.interpreter.program)),
        }
        folders = {
            folder for folder in folders if not any(_is_below(folder, top) for top in system)
        }
        if "/" in folders:
            raise BackendError(
                f"{self.interpreter.program} has the prefix /, so the sandbox would show the whole "
                "file system. Use a Python that is installed in a separate folder."
            )
        return sorted(
            folder
            for folder in folders
            if not any(folder != top and _is_below(folder, top) for top in folders)
        )


def system_config_paths() -> list[str]:
    """Return the existing files and folders outside /usr that programs need."""
    return [
        path
        for pattern in _SYSTEM_CONFIG
        for path in sorted(glob.glob(pattern))
        if os.path.exists(path)
    ]


def clean_environment(env_dir: str, commands: str, home: str, policy: Policy) -> dict[str, str]:
    """Return the environment variables of blocks: of the caller's only those in the policy."""
    environment = {
        "PATH": f"{env_dir}/bin:{commands}:{_SYSTEM_PATH}",
        "HOME": home,
        "USER": "cell",
        "LANG": "C.UTF-8",
        "VIRTUAL_ENV": env_dir,
        "PYTHONUNBUFFERED": "1",
    }
    if policy.network == "host" and os.path.exists(_CA_BUNDLE):
        # Python's HTTP clients have their own certificates, without those of an organisation.
        environment |= dict.fromkeys(
            ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), _CA_BUNDLE
        )
    return environment | dict(policy.environment)


def _is_below(path: str, top: str) -> bool:
    return os.path.commonpath([path, top]) == top


def _mount(
    source: str,
    target: str,
    *,
    writable: bool = False,
    owned: bool = False,
    mapped: bool = False,
    device: bool = False,
    below: str = "",
    has_users: bool = False,
) -> MountSpec:
    """Return the specification of one mount. `owned` implies `writable` and `mapped`."""
    return MountSpec(
        os.path.realpath(source),
        target,
        writable or owned,
        owned,
        mapped or owned,
        device,
        below,
        has_users,
    )


def executor_mounts(
    work_dir: str,
    scratch: str,
    policy: Policy | None = None,
    protected: Sequence[ProtectedPath] = (),
    *,
    work_dir_target: str = WORK_DIR,
) -> list[MountSpec]:
    """Return the mounts of one executor: its work folder, home, environment, and all below them.

    `protected` are the paths in the work folder that code may not change or move. Blocks see the
    work folder as `work_dir_target`.
    """
    from_policy = _policy_mounts(policy) if policy is not None else []
    folders = {work_dir: work_dir_target, f"{scratch}/home": HOME, f"{scratch}/env": ENVIRONMENT}
    mounts = [_mount(source, target, owned=True) for source, target in folders.items()]
    mounts += [
        _mount(work_dir, f"{work_dir_target}/{path}", writable=writable, mapped=True, below=path)
        for path, writable in protected
        if os.path.lexists(f"{work_dir}/{path}")  # it can be removed from outside
    ]
    below = [mount for mount in from_policy if _is_below_executor_dirs(mount, work_dir_target)]
    # A mount of the policy above one of these folders hides it.
    hidden = [mount.target for mount in from_policy if mount not in below]
    mounts = [mount for mount in mounts if not any(_is_below(mount.target, top) for top in hidden)]
    return mounts + below


def root_mounts(root: str, scratch: str) -> list[MountSpec]:
    """Return the mounts of a root file system: `root`, and the folder of what a box changes."""
    return [
        _mount(root, IMAGE, mapped=True, has_users=True),
        _mount(f"{scratch}/root", ROOT, owned=True),
    ]


def _is_below_executor_dirs(mount: MountSpec, inner_work_dir: str) -> bool:
    return any(_is_below(mount.target, top) for top in (inner_work_dir, HOME, ENVIRONMENT))


def _policy_mounts(policy: Policy) -> list[MountSpec]:
    """Return the mounts that the policy names. Raise `BackendError`."""
    mounts = [
        (mount, writable)
        for writable in (False, True)
        for mount in policy.mounts(writable=writable)
    ]
    for mount, _ in mounts:
        if not os.path.exists(mount.source):
            raise BackendError(
                f"The policy names {mount.source}, which does not exist. "
                "Create it, or remove it from the policy."
            )
    return [
        _mount(mount.source, mount.target_path, writable=writable, mapped=True)
        for mount, writable in mounts
    ]
