"""GatewaySpec: the options of a container that runs a Jupyter kernel gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ...limits import Limits
from .. import seccomp_profile, users
from ..client import EngineClient
from ..spec import HOME, ContainerSpec
from . import dockerfile

_ENFORCED_LIMITS = (
    "memory_bytes",
    "processes",
    "processors",
    "open_files",
    "file_bytes",
    "tmp_bytes",
    "output_bytes",
)
_RUN_PYTHON = ("python3", "-I", "-S", "-c")
# The variables that images read the token from: AutoGen's, Jupyter's, the kernel gateway's.
_TOKEN_VARIABLES = ("TOKEN", "JUPYTER_TOKEN", "KG_AUTH_TOKEN")


@dataclass(frozen=True, kw_only=True)
class GatewaySpec:
    """The parameters of `DockerJupyterServer` that concern its container. See there."""

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
        folder = PurePosixPath(self.work_dir)
        if not folder.is_absolute() or folder == PurePosixPath("/"):
            raise ValueError(
                "work_dir must be the absolute path of a folder inside the container, "
                f"not {self.work_dir!r}."
            )
        if isinstance(self.expose_port, bool) or not 0 < self.expose_port < 1 << 16:
            raise ValueError(f"expose_port must be a port number, not {self.expose_port!r}.")
        if self.network == "host":
            raise ValueError(
                "network must not be 'host': every user of this machine could reach the gateway."
            )
        for name in ("auto_remove", "stop_container"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}.")
        if other := [
            name
            for name, value in self.limits.to_dict().items()
            if value is not None and name not in _ENFORCED_LIMITS
        ]:
            raise ValueError(
                f"DockerJupyterServer cannot enforce {', '.join(other)}. Set only "
                f"{', '.join(_ENFORCED_LIMITS)}."
            )

    def container_spec(
        self, client: EngineClient, image: str, image_info: Mapping[str, Any], token: str
    ) -> ContainerSpec:
        """Return the spec of the container; `image_info` is the engine's description of `image`."""
        config: Mapping[str, Any] = image_info["Config"]
        modes = "watch" if self.stop_container else "stay"
        if not client.is_gvisor(self.runtime) and not seccomp_profile.is_replaced(
            self.create_kwargs
        ):
            modes += " filtered"
        own: dict[str, Any] = {
            "Entrypoint": [*_RUN_PYTHON, dockerfile.INIT, modes, self._rlimits(client)],
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
        return ContainerSpec(
            image=image,
            user=self.user or users.container_user(client, self.bind_dir),
            limits=self.limits,
            network=self.network,
            environment=self._environment(config, token),
            volumes=volumes,
            runtime=self.runtime,
            read_only=self.custom_image_name is None,
            enforces_limits=client.enforces_limits,
            auto_remove=self.auto_remove,
            extra=_merge_body(own, self.create_kwargs),
        )

    def _rlimits(self, client: EngineClient) -> str:
        """Return the rlimits for process 1 to set, because not every engine applies rlimits."""
        limits = {"NOFILE": self.limits.open_files, "FSIZE": self.limits.file_bytes}
        if not client.enforces_limits:
            limits |= {"DATA": self.limits.memory_bytes, "NPROC": self.limits.processes}
        return " ".join(f"{name}={value}" for name, value in limits.items() if value is not None)

    def _environment(self, config: Mapping[str, Any], token: str) -> dict[str, str]:
        entries = cast("list[str]", config.get("Env") or [])
        of_image = {name: value for name, _, value in (item.partition("=") for item in entries)}
        if "PATH" in of_image:
            of_image["PATH"] = f"{HOME}/.local/bin:{of_image['PATH']}"
        port = {} if self.custom_image_name else {"PORT": str(self.expose_port)}
        return {**of_image, **dict.fromkeys(_TOKEN_VARIABLES, token), **port, **self.docker_env}

    def _host_config(self, client: EngineClient) -> dict[str, Any]:
        host = dict[str, Any]()
        if self.bind_dir is None:
            most = self.limits.memory_file_bytes
            size = "" if most is None else f",size={most}"
            host["Tmpfs"] = {self.work_dir: f"rw,exec,nosuid,nodev,mode=1777{size}"}
        else:
            host |= users.userns_config(client)
        return host


def _merge_body(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `extra`. The entries of `HostConfig` are merged."""
    return {**base, **extra, "HostConfig": {**base["HostConfig"], **extra.get("HostConfig", {})}}
