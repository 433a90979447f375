"""Policy: what a sandboxed block may read, write and reach. Everything else is denied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

Network = Literal["none", "host"]


@dataclass(frozen=True)
class Mount:
    """Make `source`, a folder or file of this machine, available in the sandbox as `target`.

    Without `target`, the path in the sandbox is `source`.
    """

    source: str
    target: str | None = None

    def __post_init__(self) -> None:
        if not Path(self.source).is_absolute():
            raise ValueError(f"Mount source must be an absolute path, not {self.source!r}.")
        target = Path(self.target_path)
        if not target.is_absolute() or ".." in target.parts:
            raise ValueError(
                f"Mount target must be an absolute path without '..', not {self.target_path!r}."
            )
        if target == Path("/"):
            raise ValueError("Mount target must not be '/'. Use a folder below it.")

    @property
    def target_path(self) -> str:
        """The path in the sandbox."""
        return self.target or self.source


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a sandboxed block may use in addition to its work folder.

    network       "none": only a private loopback interface. "host": the network of this machine,
                  including services on its loopback interface.
    read_only     folders and files that the block can read
    read_write    folders and files that the block can read and change
    environment   environment variables. The block does not inherit those of this process.
    protect_startup_files
                  whether startup files at the top of a work folder that you passed are read-only:
                  `.git/hooks`, `.git/config`, `.envrc`, `.vscode`, `.bashrc` and the like, which
                  other programs run later with your rights

    An item of `read_only` or `read_write` is a `Mount`, or a path that is the same in the sandbox.
    """

    network: Network = "none"
    read_only: Sequence[Mount | str | Path] = ()
    read_write: Sequence[Mount | str | Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    protect_startup_files: bool = True

    def __post_init__(self) -> None:
        if self.network not in ("none", "host"):
            raise ValueError(f"Policy.network must be 'none' or 'host', not {self.network!r}.")
        for name in ("read_only", "read_write"):
            object.__setattr__(self, name, _to_mounts(name, getattr(self, name)))
        # Untyped callers.
        if not isinstance(self.environment, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(
                'Policy.environment must be a mapping, such as {"TZ": "UTC"}, '
                f"not {self.environment!r:.100}."
            )
        for name, value in self.environment.items():
            _check_variable(name, value)
        if not isinstance(self.protect_startup_files, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(
                "Policy.protect_startup_files must be True or False, "
                f"not {self.protect_startup_files!r:.100}."
            )
        object.__setattr__(self, "environment", MappingProxyType(dict(self.environment)))

    def mounts(self, *, writable: bool) -> tuple[Mount, ...]:
        """Return the mounts of `read_write` if `writable`, else those of `read_only`."""
        return tuple(_to_mount(item) for item in (self.read_write if writable else self.read_only))

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as JSON values."""
        return {
            "network": self.network,
            "read_only": [[mount.source, mount.target] for mount in self.mounts(writable=False)],
            "read_write": [[mount.source, mount.target] for mount in self.mounts(writable=True)],
            "environment": dict(self.environment),
            "protect_startup_files": self.protect_startup_files,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Policy:
        """Return the policy that `to_dict` returned as `values`.

        Raise `ValueError` for unknown names.
        """
        # `values` comes from JSON, where its type is not checked.
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - JSON
            raise ValueError(f"A policy must be a mapping of its fields, not {values!r}.")
        unknown = sorted(set(values) - {each.name for each in fields(cls)})
        if unknown:
            raise ValueError(f"Unknown fields of a policy: {', '.join(unknown)}.")
        mounts = {
            name: _mounts_from_json(name, values.get(name, []))
            for name in ("read_only", "read_write")
        }
        return cls(
            network=values.get("network", "none"),
            environment=values.get("environment", {}),
            protect_startup_files=values.get("protect_startup_files", True),
            **mounts,
        )


def _mounts_from_json(name: str, items: object) -> tuple[Mount, ...]:
    """Return the mounts in a list of paths, or of lists of source and target."""
    mounts = list[Mount]()
    for item in cast("Sequence[object]", items) if isinstance(items, list | tuple) else [None]:
        match item:
            case str(source) | [str(source)] | [str(source), None]:
                mounts.append(Mount(source))
            case [str(source), str(target)]:
                mounts.append(Mount(source, target))
            case _:
                raise ValueError(
                    f"Policy.{name} must be a list of paths, or of pairs of source and target, "
                    f'such as [["/data", "/target"]], not {items!r:.100}.'
                )
    return tuple(mounts)


def _to_mounts(name: str, items: object) -> tuple[Mount, ...]:
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise ValueError(
            f'Policy.{name} must be a list of paths or mounts, such as ["/data"], '
            f"not {items!r:.100}."
        )
    for item in cast("Sequence[object]", items):
        if not isinstance(item, Mount | str | Path):
            raise ValueError(
                f'An item of Policy.{name} must be a path or a Mount, such as "/data", '
                f"not {item!r:.100}."
            )
    return tuple(_to_mount(item) for item in cast("Sequence[Mount | str | Path]", items))


def _to_mount(item: Mount | str | Path) -> Mount:
    return item if isinstance(item, Mount) else Mount(str(item))


def _check_variable(name: Any, value: Any) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise ValueError(f"{name!r} cannot be the name of an environment variable.")
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"The environment variable {name} must be a string without NUL.")
