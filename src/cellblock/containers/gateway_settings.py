"""GatewaySettings: how a container with a Jupyter kernel gateway is to be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ..limits import Limits
from . import gateway
from .client import Client
from .settings import HOME, ContainerSettings

_HELD = ("memory_bytes", "processes", "open_files", "file_bytes", "tmp_bytes", "output_bytes")
# Under any of these names images look for the token: AutoGen's, Jupyter's own, the kernel gateway's.
_TOKEN = ("TOKEN", "JUPYTER_TOKEN", "KG_AUTH_TOKEN")


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """What a `DockerJupyterServer` is made with, as far as its container is concerned; see there."""

    custom_image_name: str | None
    base_image: str
    container_name: str | None
    auto_remove: bool
    stop_container: bool
    docker_env: Mapping[str, str] = field(repr=False)
    expose_port: int
    work_dir: str
    bind_dir: Path | None
    network: str
    user: str | None
    limits: Limits
    runtime: str | None
    create_kwargs: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        inside = PurePosixPath(self.work_dir)
        if not inside.is_absolute() or inside == PurePosixPath("/"):
            raise ValueError(f"work_dir must be the absolute path of a folder inside the container, not {self.work_dir!r}.")
        if isinstance(self.expose_port, bool) or not 0 < self.expose_port < 1 << 16:
            raise ValueError(f"expose_port must be a port, not {self.expose_port!r}.")
        if self.network == "host":
            raise ValueError("network must not be 'host': everybody on this machine could reach the gateway.")
        for name in ("auto_remove", "stop_container"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}.")
        if other := [name for name, value in self.limits.to_dict().items() if value is not None and name not in _HELD]:
            raise ValueError(f"A container of kernels cannot be held to {', '.join(other)}: only to {', '.join(_HELD)}.")

    def container(self, client: Client, image: str, facts: Mapping[str, Any], token: str) -> ContainerSettings:
        """Describe the container; `facts` are the engine's about `image`."""
        config: Mapping[str, Any] = facts["Config"]
        own: dict[str, Any] = {
            "Entrypoint": ["python3", "-I", "-S", "-c", gateway.INIT, "watch" if self.stop_container else "stay"],
            "Cmd": [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())],
            "OpenStdin": self.stop_container,
            "StdinOnce": self.stop_container,
            "WorkingDir": self.work_dir,
            "HostConfig": self._host_config(client),
        }
        volumes = {} if self.bind_dir is None else {str(self.bind_dir.resolve()): {"bind": self.work_dir, "mode": "rw"}}
        return ContainerSettings(
            image=image,
            user=self.user or self._own_user(client),
            limits=self.limits,
            network=self.network,
            environment=self._environment(config, token),
            volumes=volumes,
            runtime=self.runtime,
            read_only=self.custom_image_name is None,
            auto_remove=self.auto_remove,
            extra=_merged(own, self.create_kwargs),
        )

    def _own_user(self, client: Client) -> str:
        """Give the user inside whose files are the caller's outside; for root, those of the bound folder's owner."""
        if client.is_rootless:
            return "0:0"
        if os.geteuid() != 0 or self.bind_dir is None:
            return f"{os.geteuid()}:{os.getegid()}"
        status = self.bind_dir.stat()
        return f"{status.st_uid}:{status.st_gid}"

    def _environment(self, config: Mapping[str, Any], token: str) -> dict[str, str]:
        listed = cast("list[str]", config.get("Env") or [])
        own = {name: value for name, _, value in (item.partition("=") for item in listed)}
        if "PATH" in own:
            own["PATH"] = f"{HOME}/.local/bin:{own['PATH']}"
        port = {} if self.custom_image_name else {"PORT": str(self.expose_port)}
        return {**own, **dict.fromkeys(_TOKEN, token), **port, **self.docker_env}

    def _host_config(self, client: Client) -> dict[str, Any]:
        limits = (("nofile", self.limits.open_files), ("fsize", self.limits.file_bytes))
        host: dict[str, Any] = {
            "Ulimits": [{"Name": name, "Soft": most, "Hard": most} for name, most in limits if most is not None]
        }
        if self.bind_dir is None:
            size = f",size={self.limits.tmp_bytes}" if self.limits.tmp_bytes else ""
            host["Tmpfs"] = {self.work_dir: f"rw,exec,nosuid,nodev,mode=1777{size}"}
        if client.remaps_users and not client.is_rootless:  # else the caller's files would be somebody else's inside
            host["UsernsMode"] = "host"
        return host


def _merged(made: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Lay the engine's own words of the caller over ours; of `HostConfig`, each word."""
    return {**made, **extra, "HostConfig": {**made["HostConfig"], **extra.get("HostConfig", {})}}
