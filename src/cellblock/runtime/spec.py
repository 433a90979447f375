"""The specification of a server, which is sent to it once: frozen values, decided by the caller."""

from __future__ import annotations

from typing import NamedTuple

from .messages import MountSpec


class LandlockSpec(NamedTuple):
    """See landlock(7): the version (0: not used), masks of rights, and rules as (path, rights)."""

    abi: int = 0
    handled: int = 0
    net: int = 0
    scoped: int = 0
    rules: tuple[tuple[str, int], ...] = ()


class ConfinementSpec(NamedTuple):
    """The restrictions of a process. Empty ones are not applied.

    rlimits         (resource, value) pairs, for the soft and the hard limit
    filter_program  a seccomp program
    drop            drop all capabilities, and do not gain new ones
    oom_first       let the OOM killer pick this process first
    """

    rlimits: tuple[tuple[int, int], ...] = ()
    filter_program: bytes = b""
    landlock: LandlockSpec = LandlockSpec()
    drop: bool = False
    oom_first: bool = False


class ZygoteSpec(NamedTuple):
    """The process that cells are forked from, and what is the same in all cells.

    cwd                   the current folder of blocks
    namespaces            it is in a sandbox, and each cell has its own namespaces
    own_processes         each cell has its own process namespace. The server decides it
    own_users             a tenant has its own user namespace, in which its processes are counted
    own_network           what has a network of its own: "tenant", "session", or "" for none
    scripts               blocks are Python scripts that it runs itself
    preload               modules to import first
    tmpfs                 the temporary folders of a cell and their modes. They are parts of one
                          filesystem in memory, whose mount options are `tmpfs_options`
    below_tmpfs           the mounts that lie below these
    early_exit            a block's end is reported before its process has ended
    confinement           of each block, and `session_confinement` of a session, if there are any
    filter_program        a seccomp program for itself and all processes below
    output_program        another one, which is left out where it is not permitted
    shared_paths          what the commands of a box see too if they have a root of their own
    one_user              why commands cannot run as another user than that of the box
    user_landlock         the rules for all of a session whose commands can; None: they cannot
    user_folders          those of `tmpfs` that belong to root then
    user_files            the files there that each session has a copy of
    user_path             where their users look for programs, but that of the box
    """

    cwd: str = "/"
    confinement: ConfinementSpec = ConfinementSpec()
    session_confinement: ConfinementSpec | None = None
    namespaces: bool = False
    own_processes: bool = False
    own_users: bool = False
    own_network: str = ""
    scripts: bool = False
    preload: tuple[str, ...] = ()
    tmpfs: tuple[tuple[str, int], ...] = ()
    tmpfs_options: str = ""
    below_tmpfs: tuple[str, ...] = ()
    early_exit: bool = False
    filter_program: bytes = b""
    output_program: bytes = b""
    shared_paths: tuple[str, ...] = ()
    one_user: str = ""
    user_landlock: LandlockSpec | None = None
    user_folders: tuple[str, ...] = ()
    user_files: tuple[str, ...] = ()
    user_path: str = ""


class SubIds(NamedTuple):
    """Users and groups of this machine that are users of a sandbox: the first one, and how many."""

    users: tuple[int, int]
    groups: tuple[int, int]


class SandboxSpec(NamedTuple):
    """A sandbox: its mounts, its other files, and the program in it that becomes the zygote.

    user               of the cells, inside
    outer_user         the same user outside, if the caller is root
    sub_ids            further users, outside; None: the cells have one user
    scripts            executable files
    network            "host", or "none" for a network of its own
    capabilities       those that the zygote keeps
    """

    mounts: tuple[MountSpec, ...]
    folders: tuple[str, ...]
    links: dict[str, str]
    files: dict[str, str]
    user: int
    network: str
    capabilities: tuple[int, ...]
    hostname: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    scripts: dict[str, str]
    outer_user: int = 0
    sub_ids: SubIds | None = None


class CgroupPlan(NamedTuple):
    """The control groups to create for cells. For the other fields see `CellCgroups`.

    folders       where the parents of the cells' groups are created
    controllers   those that cgroup v2 must delegate to cells
    share         what is written to a parent, as (index of the folder, file, text): of the
                  processors, all cells together get as much as so many other programs
    """

    folders: tuple[str, ...] = ()
    settings: tuple[tuple[int, str, str], ...] = ()
    peak: tuple[int, str] | None = None
    oom: tuple[int, str] | None = None
    time: tuple[int, str] | None = None
    shared: str | None = None
    controllers: str = ""
    share: tuple[int, str, str] | None = None


class CellLimits(NamedTuple):
    """What the server itself measures and limits, per block. See `Limits` for the fields."""

    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    written_bytes: int | None = None
    files: int | None = None
    output_bytes: int | None = None


class ServerSpec(NamedTuple):
    """`OPEN`: what a server runs.

    writable         the folders of this machine that all its blocks can write to
    delete           the paths that it deletes at its end
    sandbox          None: its cells are plain processes
    listener         the descriptor of the socket over which its tenants connect
    sessions         it has live sessions
    spare_sessions   a session is kept ready
    spares           how many cells are kept ready
    reserve_bytes    how much memory to keep, for when it has run out
    stop_pid         the process to end after the caller is gone, or 0
    """

    zygote: ZygoteSpec
    limits: CellLimits
    writable: tuple[str, ...] = ()
    cgroups: CgroupPlan | None = None
    delete: tuple[str, ...] = ()
    sandbox: SandboxSpec | None = None
    listener: int | None = None
    sessions: bool = False
    spare_sessions: bool = True
    spares: int = 1
    reserve_bytes: int = 0
    stop_pid: int = 0
