"""The options given on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...limits import Limits
from ...policy import Policy

WORK_DIR = "coding"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where and how code runs. None means the default of the executor or of the command."""

    executor: Literal["sandbox", "local", "session", "docker", "docker-session"]
    timeout: float | None
    memory_bytes: int | None
    files: int | None = None
    network: bool
    packages: tuple[str, ...]
    env: str | None = None
    preload: tuple[str, ...] = ()
    work_dir: str | None
    image: str | None = None

    @property
    def limits_output(self) -> bool:
        """Whether long output is cut. Output that is printed while blocks run is not."""
        return False

    @property
    def limits(self) -> Limits:
        """The limits that the options name."""
        named = dict[str, int | None]()
        if self.memory_bytes is not None:
            named["memory_bytes"] = self.memory_bytes
        if self.files is not None:
            named["files"] = self.files
        if not self.limits_output:
            named["output_bytes"] = None
        return Limits(**named)

    @property
    def policy(self) -> Policy:
        """What blocks may reach."""
        return Policy(network="host" if self.network else "none")


@dataclass(frozen=True, kw_only=True)
class ReplSettings(Settings):
    """The options of `cellblock repl`."""

    open_images: bool
    image_folder: str


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """The options of `cellblock run`."""

    file: str | None
    code: str | None
    language: str | None
    as_json: bool
    stream: bool

    @property
    def limits_output(self) -> bool:
        """See `Settings`."""
        return self.as_json or not self.stream


@dataclass(frozen=True, kw_only=True)
class BatchSettings(Settings):
    """The options of `cellblock batch`. `timeout` is the option `--wall-seconds`."""

    file: str
    form: str
    samples: str | None
    output: str
    concurrency: int | None
    ray: str | None
    cpu_seconds: float
    as_completed: bool
