"""GatewaySettings: how a container with a Jupyter kernel gateway is to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ...limits import Limits
from .. import users
from ..client import Client
from ..spec import HOME, ContainerSettings
from . import dockerfile

_HELD = (
    "memory_bytes",
    "processes",
    "processors",
    "open_files",
    "file_bytes",
    "tmp_bytes",
    "output_bytes",
)
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
            raise ValueError(
                f"work_dir must be the absolute path of a folder inside the container, not {self.work_dir!r}."
            )
        if isinstance(self.expose_port, bool) or not 0 < self.expose_port < 1 << 16:
            raise ValueError(f"expose_port must be a port, not {self.expose_port!r}.")
        if self.network == "host":
            raise ValueError(
                "network must not be 'host': everybody on this machine could reach the gateway."
            )
        for name in ("auto_remove", "stop_container"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}.")
        if other := [
            name
            for name, value in self.limits.to_dict().items()
            if value is not None and name not in _HELD
        ]:
            raise ValueError(
                f"A container of kernels cannot be held to {', '.join(other)}: only to {', '.join(_HELD)}."
            )

    def container(
        self, client: Client, image: str, facts: Mapping[str, Any], token: str
    ) -> ContainerSettings:
        """Describe the container; `facts` are the engine's about `image`."""
        config: Mapping[str, Any] = facts["Config"]
        way = "watch" if self.stop_container else "stay"
        own: dict[str, Any] = {
            "Entrypoint": [
                "python3",
                "-I",
                "-S",
                "-c",
                dockerfile.INIT,
                way,
                self._rlimits(client),
            ],
            "Cmd": [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())],
            "OpenStdin": self.stop_container,
            "StdinOnce": self.stop_container,
            "WorkingDir": self.work_dir,
            "HostConfig": self._host_config(client),
        }
        volumes = (
            {}
            if self.bind_dir is None
            else {str(self.bind_dir.resolve()): {"bind": self.work_dir, "mode": "rw"}}
        )
        return ContainerSettings(
            image=image,
            user=self.user or users.own_user(client, self.bind_dir),
            limits=self.limits,
            network=self.network,
            environment=self._environment(config, token),
            volumes=volumes,
            runtime=self.runtime,
            read_only=self.custom_image_name is None,
            holds_limits=client.holds_limits,
            auto_remove=self.auto_remove,
            extra=_merged(own, self.create_kwargs),
        )

    def _rlimits(self, client: Client) -> str:
        """Give what each process is held to; not by the engine, since not every one does as it is told."""
        limits = {"NOFILE": self.limits.open_files, "FSIZE": self.limits.file_bytes}
        if not client.holds_limits:
            limits |= {"DATA": self.limits.memory_bytes, "NPROC": self.limits.processes}
        return " ".join(f"{name}={most}" for name, most in limits.items() if most is not None)

    def _environment(self, config: Mapping[str, Any], token: str) -> dict[str, str]:
        listed = cast("list[str]", config.get("Env") or [])
        own = {name: value for name, _, value in (item.partition("=") for item in listed)}
        if "PATH" in own:
            own["PATH"] = f"{HOME}/.local/bin:{own['PATH']}"
        port = {} if self.custom_image_name else {"PORT": str(self.expose_port)}
        return {**own, **dict.fromkeys(_TOKEN, token), **port, **self.docker_env}

    def _host_config(self, client: Client) -> dict[str, Any]:
        host = dict[str, Any]()
        if self.bind_dir is None:
            size = f",size={self.limits.tmp_bytes}" if self.limits.tmp_bytes else ""
            host["Tmpfs"] = {self.work_dir: f"rw,exec,nosuid,nodev,mode=1777{size}"}
        else:
            host |= users.unmapped(client)
        return host


def _merged(made: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Lay the engine's own words of the caller over ours; of `HostConfig`, each word."""
    return {**made, **extra, "HostConfig": {**made["HostConfig"], **extra.get("HostConfig", {})}}
