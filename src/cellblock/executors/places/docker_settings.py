"""DockerSettings: the settings of the executors that run blocks in a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...containers.images import OnPull
from ...containers.spec import Transfer
from ..settings import ExecutorSettings


@dataclass(frozen=True, kw_only=True)
class DockerSettings(ExecutorSettings):
    """See `DockerCommandLineCodeExecutor` and `ContainerOptions`."""

    image: str
    container_name: str | None
    bind_dir: Path | None
    auto_remove: bool
    stop_container: bool
    device_requests: Sequence[Mapping[str, Any]]
    extra_volumes: Mapping[str, Mapping[str, str]]
    extra_hosts: Mapping[str, str]
    init_command: str | None
    preload: tuple[str, ...]
    user: str | None
    network: str
    environment: Mapping[str, str] = field(repr=False)
    ports: Mapping[str, Any]
    runtime: str | None
    read_only: bool
    wheels: Sequence[str]
    transfer: Transfer
    create_kwargs: Mapping[str, Any] = field(repr=False)
    on_pull: OnPull | None
