"""Check arguments of executors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

from ..errors import WorkspaceError
from ..limits import MAX_SECONDS, Limits
from ..policy import Policy

NumberT = TypeVar("NumberT", int, float)


def check_strings(name: str, values: object) -> tuple[str, ...]:
    """Return `values` as a tuple. Raise `ValueError` if it is not a sequence of strings.

    A single string is refused too, although it is a sequence of strings.
    """
    items: list[object] = (
        [] if isinstance(values, str) or not isinstance(values, Sequence) else [*values]
    )
    if not all(isinstance(item, str) for item in items) or (not items and values not in ((), [])):
        raise ValueError(f"{name} must be a list of strings, not {values!r}.")
    return tuple(str(item) for item in items)


def check_bool(name: str, value: object) -> bool:
    """Return `value`. Raise `ValueError` if it is not a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}.")
    return value


def check_timeout(value: object) -> float | None:
    """Return `value`. Raise `ValueError` if it is not a number of seconds, or `None`."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value > MAX_SECONDS:
        raise ValueError(
            "Timeout must be a number of seconds, such as 60, or None for no limit, "
            f"not {value!r:.100}."
        )
    if not value >= 1:
        raise ValueError("Timeout must be greater than or equal to 1.")
    return value


def shortest(*limits: NumberT | None) -> NumberT | None:
    """Return the smallest of the limits that are not None, which stands for no limit."""
    return min((value for value in limits if value is not None), default=None)


def check_limits(limits: object, defaults: Limits) -> Limits:
    """Return `limits` with `defaults` for those that are not named.

    Raise `ValueError` if it is not a `Limits` object.
    """
    if not isinstance(limits, Limits):
        raise ValueError(
            "limits must be a Limits object, such as Limits(cpu_seconds=10) or "
            f"Limits.unlimited(), not {limits!r:.100}."
        )
    return limits.with_defaults(defaults)


def check_policy(policy: object) -> Policy:
    """Return `policy`, or the default for None. Raise `ValueError` if it is something else."""
    if policy is None:
        return Policy()
    if not isinstance(policy, Policy):
        raise ValueError(
            f'policy must be a Policy object, such as Policy(network="host"), not {policy!r:.100}.'
        )
    return policy


def check_token(token: object) -> None:
    """Raise `ValueError` if `token` is neither None nor has the methods of a `Token`."""
    if token is not None and not (
        callable(getattr(token, "is_cancelled", None))
        and callable(getattr(token, "add_callback", None))
    ):
        raise ValueError(
            f"cancellation_token must be a CancellationToken() or None, not {token!r:.100}."
        )


def check_folder(name: str, value: object) -> Path | None:
    """Return the path of a folder with `~` expanded. None stays None.

    Raise `ValueError` if `value` is not a path.
    """
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{name} must be a path, such as 'coding', not {value!r:.100}.")
    try:
        return Path(cast("str | os.PathLike[str]", value)).expanduser()
    except (RuntimeError, TypeError) as error:  # no such user; a path of bytes
        raise ValueError(f"{name} cannot be {value!r:.100}: {error}") from error


def check_virtual_env(context: object) -> SimpleNamespace | None:
    """Return the programs of a virtual environment with absolute paths. None stays None.

    Blocks run in another folder, where relative paths name other files. Raise `ValueError` if
    `context` is not the context of a virtual environment.
    """
    if context is None:
        return None
    paths = getattr(context, "env_exe", None), getattr(context, "bin_path", None)
    if not all(isinstance(path, str | os.PathLike) for path in paths):
        raise ValueError(
            "virtual_env_context must be the result of create_virtual_env('venv'), "
            f"not {context!r:.100}."
        )
    program, folder = (os.path.abspath(cast(str, path)) for path in paths)
    return SimpleNamespace(env_exe=program, bin_path=folder)


def create_folder(name: str, folder: Path) -> None:
    """Create `folder` and its parents if they are missing. Raise `WorkspaceError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (
            "it is a file"
            if isinstance(error, FileExistsError)
            else getattr(error, "strerror", None) or str(error)
        )
        raise WorkspaceError(
            f"{name} {str(folder)!r} cannot be used: {reason}. Pass the path of a folder."
        ) from error
