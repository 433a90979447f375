"""Policy: what a sandboxed block may read, write and reach. Absent means denied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

Network = Literal["none", "host"]


@dataclass(frozen=True)
class Mount:
    """Show the folder or file `source` of this machine inside, as `target` (by default under the same name)."""

    source: str
    target: str | None = None

    def __post_init__(self) -> None:
        if not Path(self.source).is_absolute():
            raise ValueError(f"Mount source must be an absolute path, not {self.source!r}.")
        target = Path(self.inside)
        if not target.is_absolute() or ".." in target.parts:
            raise ValueError(
                f"Mount target must be an absolute path without '..', not {self.inside!r}."
            )
        if target == Path("/"):
            raise ValueError("Mount target must not be '/': name a folder below it.")

    @property
    def inside(self) -> str:
        """The path under which the block sees it."""
        return self.target or self.source


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Say what a sandboxed block gets beyond its work folder.

    network       "none": only its own loopback. "host": this machine's network, its loopback services included
    read_only     folders or files that can be read
    read_write    folders or files that can be changed as well
    environment   variables; nothing of the caller's environment is there unless it is named here

    An item of `read_only` or `read_write` is a `Mount`, or a path that keeps its name inside.
    """

    network: Network = "none"
    read_only: Sequence[Mount | str | Path] = ()
    read_write: Sequence[Mount | str | Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        if self.network not in ("none", "host"):
            raise ValueError(f"Policy.network must be 'none' or 'host', not {self.network!r}.")
        object.__setattr__(self, "read_only", tuple(_mount(item) for item in self.read_only))
        object.__setattr__(self, "read_write", tuple(_mount(item) for item in self.read_write))
        for name, value in self.environment.items():
            _check_variable(name, value)
        object.__setattr__(self, "environment", MappingProxyType(dict(self.environment)))

    def mounts(self, *, writable: bool) -> tuple[Mount, ...]:
        """Give what can be changed, or what can only be read."""
        return tuple(_mount(item) for item in (self.read_write if writable else self.read_only))

    def to_dict(self) -> dict[str, Any]:
        """Give the policy as JSON values."""
        return {
            "network": self.network,
            "read_only": [[mount.source, mount.target] for mount in self.mounts(writable=False)],
            "read_write": [[mount.source, mount.target] for mount in self.mounts(writable=True)],
            "environment": dict(self.environment),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Policy:
        """Make a policy from `to_dict`'s values. Unknown names raise `ValueError`."""
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - out of a JSON text
            raise ValueError(f"A policy is a mapping of its entries, not {values!r}.")
        unknown = sorted(set(values) - {"network", "read_only", "read_write", "environment"})
        if unknown:
            raise ValueError(f"Unknown policy entries: {', '.join(unknown)}.")
        mounts = {
            name: tuple(Mount(*pair) for pair in values.get(name, ()))
            for name in ("read_only", "read_write")
        }
        return cls(
            network=values.get("network", "none"),
            environment=values.get("environment", {}),
            **mounts,
        )


def _mount(item: Mount | str | Path) -> Mount:
    return item if isinstance(item, Mount) else Mount(str(item))


def _check_variable(name: Any, value: Any) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise ValueError(f"Not a name for an environment variable: {name!r}.")
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"The environment variable {name} must be text without NUL.")
