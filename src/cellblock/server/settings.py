"""ServedSettings: where the sessions of a server run, and how many, how long, how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

from ..limits import GIB, MIB, Limits
from ..policy import Policy

Place = Literal["sandbox", "docker"]
# A pool of Azure dynamic sessions ends a run after 220 seconds.
RUN_SECONDS = 220.0


@dataclass(frozen=True, kw_only=True)
class ServedSettings:
    """The settings of all sessions of a server.

    executor           "sandbox": live sessions in the sandbox; "docker": in containers
    image              the image of containers; None means the default of the Docker executor
    packages, preload  see `SandboxSessionServer`; `preload` applies to the sandbox only
    env                folder of a virtual environment whose Python and packages code uses; not
                       for containers
    limits, policy     what one run may use and reach, where its key sets none.
                       Containers use only the policy's network
    run_seconds        longest time of one run
    idle_seconds       a session ends when it was not used for this time
    max_age_seconds    a session ends at this age, at the latest after its current run
    max_sessions       sessions of all keys at one time
    max_running        runs of all keys at one time
    max_queued         runs of one key that may wait
    max_body_bytes     size of a request body that is not an upload
    max_file_bytes     size of one uploaded file
    """

    executor: Place = "sandbox"
    image: str | None = None
    packages: Sequence[str] = ()
    preload: Sequence[str] = ()
    env: str | None = None
    limits: Limits = Limits()
    policy: Policy = Policy()
    run_seconds: float = RUN_SECONDS
    idle_seconds: float = 600.0
    max_age_seconds: float | None = 24 * 3600.0
    max_sessions: int = 600
    max_running: int = 16
    max_queued: int = 64
    max_body_bytes: int = 16 * MIB
    max_file_bytes: int = 128 * MIB

    def __post_init__(self) -> None:
        if self.executor not in get_args(Place):
            raise ValueError(f"executor must be 'sandbox' or 'docker', not {self.executor!r}.")
        for field in fields(self):
            if not field.name.startswith(("max_", "run_", "idle_")):
                continue
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ValueError(f"{field.name} must be above 0, not {value!r}.")
        if self.max_file_bytes > 64 * GIB:
            raise ValueError("max_file_bytes must be at most 64 GiB.")
