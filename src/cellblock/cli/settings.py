"""What was asked for on the command line of `cellblock run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options, by their names. `memory_bytes` and `work_dir` None: what the executor, and we, do by default."""

    file: str | None
    code: str | None
    language: str | None
    executor: Literal["sandbox", "local"]
    timeout: float
    memory_bytes: int | None
    network: bool
    packages: tuple[str, ...]
    work_dir: str | None
    as_json: bool
    stream: bool
