"""The options given on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
