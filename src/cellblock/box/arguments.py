"""Check what a caller asks of a box, before anything is sent."""

from __future__ import annotations

import enum
import errno
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import cast

from ..errors import UserUnsupported
from ..limits import MAX_SECONDS
from ..runtime.box_orders import RunCommand

_MAX_ARGUMENT_BYTES = 2 << 20  # Linux allows 2 MiB with its default limit of the stack
_PIECE_CHARACTERS = 30_000  # at most 120,000 bytes: one argument of a program has less than 128 KiB
# `sh -c` with a text that is longer than one argument can be.
_JOIN_PIECES = 'c=; for p do c=$c$p; done; set --; eval "unset c p; $c"'


class Default(enum.Enum):
    """The value of a parameter that was not given."""

    TIMEOUT = "<that of the box>"
    IDLE_SECONDS = "<3600 for a kept box, otherwise None>"

    def __repr__(self) -> str:
        return self.value


def check_argv(command: object) -> tuple[str, ...]:
    """Return the arguments of `command`: a shell text, or a sequence of arguments."""
    if isinstance(command, str):
        return _shell_argv(check_text("command", command))
    if not isinstance(command, Sequence) or isinstance(command, bytes | bytearray | memoryview):
        raise ValueError(
            "A command must be a shell text, such as 'ls | wc', or a list of arguments, such as "
            f"['ls', '-l'], not {command!r:.100}."
        )
    argv = [check_text("argument", part) for part in cast("Sequence[object]", command)]
    if not argv or not argv[0]:
        raise ValueError("The command is empty. Its first argument must name a program.")
    return tuple(argv)


def _shell_argv(text: str) -> tuple[str, ...]:
    if len(text) <= _PIECE_CHARACTERS:
        return ("sh", "-c", text)
    starts = range(0, len(text), _PIECE_CHARACTERS)
    return ("sh", "-c", _JOIN_PIECES, "sh", *(text[at : at + _PIECE_CHARACTERS] for at in starts))


def check_text(name: str, value: object) -> str:
    """Return `value`, a text without NUL."""
    if not isinstance(value, str):
        raise ValueError(f"The {name} must be a string, not {value!r:.100}.")
    if "\0" in value:
        raise ValueError(f"The {name} contains a NUL character: {value!r:.100}.")
    return value


def check_path(path: object) -> str:
    """Return `path` as text. Raise `FileNotFoundError` if it is empty, as `open` does."""
    given: object = (
        os.fspath(cast("os.PathLike[str]", path)) if isinstance(path, os.PathLike) else path
    )
    text = check_text("path", given)
    if not text:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
    return text


def check_folder_path(path: object) -> str:
    """Return the path of the folder of a command: "" for None."""
    return "" if path is None else check_path(path)


def check_environment(env: object) -> tuple[tuple[str, str], ...]:
    """Return the variables of `env`."""
    if env is None:
        return ()
    if not isinstance(env, Mapping):
        raise ValueError(f"env must map names to texts, not {env!r:.100}.")
    found = [
        (check_text("name of a variable", name), check_text(f"variable {name!r:.50}", value))
        for name, value in cast("Mapping[object, object]", env).items()
    ]
    if wrong := next((name for name, _ in found if not name or "=" in name), None):
        raise ValueError(f"{wrong!r:.100} cannot be the name of a variable.")
    if any(not name for name, _ in found):
        raise ValueError("The name of a variable is empty.")
    return tuple(found)


def check_user(user: object) -> str:
    """Return `user` as the box takes it. Raise `UserUnsupported` if no box can have it."""
    if user is None:
        return ""
    is_number = isinstance(user, int) and not isinstance(user, bool) and 0 <= user < 1 << 32
    is_name = isinstance(user, str) and bool(user) and not set(user) & set("\0:/\n")
    if not is_number and not is_name:
        raise UserUnsupported(f"{user!r:.100} is not a user. Pass a name or a user ID.")
    return str(user)


def check_data(name: str, data: object) -> bytes | None:
    """Return `data` as bytes: a text as UTF-8, None as itself."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode(errors="surrogateescape")
    if isinstance(data, bytearray | memoryview):
        return bytes(cast("bytearray", data))
    raise ValueError(f"{name} must be bytes or a text, not {data!r:.100}.")


def check_seconds(seconds: object, name: str = "timeout") -> float | None:
    """Return a time limit. None means none."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ValueError(f"{name} must be seconds above 0, or None, not {seconds!r:.100}.")
    return min(seconds, MAX_SECONDS)


def check_count(name: str, count: object, *, least: int = 0) -> int | None:
    """Return a number of bytes or the like. None means no limit."""
    if count is not None and (
        isinstance(count, bool) or not isinstance(count, int) or count < least
    ):
        raise ValueError(
            f"{name} must be a whole number from {least}, or None, not {count!r:.100}."
        )
    return count


def check_mode(mode: object) -> int | None:
    """Return the permissions of a file. None means none are given."""
    if mode is not None and (
        isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= 0o7777
    ):
        raise ValueError(f"mode must be permissions such as 0o644, or None, not {mode!r:.100}.")
    return mode


def check_size(order: RunCommand) -> RunCommand:
    """Return `order`. Raise `OSError` with `E2BIG` if no system could run it."""
    texts = (*order.argv, *(text for variable in order.env for text in variable))
    if sum(len(text.encode(errors="surrogateescape")) for text in texts) > _MAX_ARGUMENT_BYTES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG), order.argv[0][:100])
    return order


def check_output_callback(callback: object) -> None:
    """Raise `ValueError` if it is neither None nor a plain function."""
    if callback is None:
        return
    if not callable(callback):
        raise ValueError(f"on_output must be a function or None, not {callback!r:.100}.")
    if any(map(inspect.iscoroutinefunction, (callback, type(callback).__call__))):
        raise ValueError(
            "on_output must be a plain function, since nobody would await it. For asynchronous "
            "work use exec_stream or run_stream, which yield the output."
        )
