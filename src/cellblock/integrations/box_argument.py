"""What adapters are given: a sandbox, its name, or the parameters of one that they make."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from inspect import signature
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ..box.base import Box
from ..box.docker import DockerSandbox
from ..box.sandbox import Sandbox
from ..errors import BackendError
from ..executors.settings import from_config, to_json


def make_box(arguments: Mapping[str, Any], **defaults: Any) -> Box:
    """Return a new box: a `DockerSandbox` if there is an `image`, otherwise a `Sandbox`.

    `arguments` are all its parameters that are given, from a program or a file: `limits`, `policy`
    and `virtual_env_context` can be mappings. `defaults` stand for what is not given, where the box
    has it. Raise `ValueError`.
    """
    given = {name: value for name, value in arguments.items() if (name, value) != ("image", None)}
    kind = DockerSandbox if "image" in given else Sandbox
    known = {name: defaults[name] for name in defaults.keys() & signature(kind).parameters}
    named = ("limits", "policy", "virtual_env_context")
    plain = {name: given[name] for name in named if isinstance(given.get(name), Mapping)}
    try:
        return kind(**{**known, **given, **from_config(plain)})
    except TypeError as error:
        text = str(error).rstrip(".")
        raise ValueError(f"{text}. See the parameters of cellblock.{kind.__name__}.") from error


async def remove_file(sandbox: Box, path: str) -> None:
    """Remove a file or a link, for frameworks that would not remove a folder.

    Raise `IsADirectoryError` for a folder, and what `Files.remove` raises.
    """
    if (await sandbox.files.stat(path, follow_links=False)).is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    await sandbox.files.remove(path)


class BoxConfig(BaseModel, frozen=True, extra="allow"):
    """The parameters of a box, as `make_box` takes them, for settings files and logs.

    The fields of a class below that are `not_of_box` are something else.
    """

    not_of_box: ClassVar[frozenset[str]] = frozenset()
    defaults: ClassVar[Mapping[str, Any]] = {}

    image: str | None = None

    def __hash__(self) -> int:
        return hash(self.image)  # what else is given need not have a hash

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        return {name: to_json(value) for name, value in dict(values).items()}

    @model_validator(mode="after")
    def _check(self) -> BoxConfig:
        self.make_box()
        return self

    @model_serializer(mode="wrap")
    def _given(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out what was not given: not every box has all of it."""
        names = self.model_fields_set | self.not_of_box
        return {name: value for name, value in dump(self).items() if name in names}

    def make_box(self) -> Box:
        """Return a new box."""
        names = self.model_fields_set - self.not_of_box
        return make_box({name: getattr(self, name) for name in names}, **self.defaults)


def require_box(sandbox: object) -> Box:
    """Return `sandbox`. Raise `ValueError` if it is not one of cellblock."""
    if not isinstance(sandbox, Box):
        raise ValueError(
            f"sandbox must be one of cellblock, such as cellblock.Sandbox(), not {sandbox!r:.100}. "
            "Those of cellblock.sync cannot be used here."
        )
    return sandbox


def name_of(sandbox: Box) -> str:
    """Return what `attach_by_name` takes: the `ref` of a kept sandbox; otherwise its ID."""
    try:
        return sandbox.ref()
    except BackendError:
        return sandbox.id


async def attach_by_name(name: str) -> Box | None:
    """Return a sandbox that is kept, made by any process of this user. None: it is gone."""
    try:
        return await Sandbox.attach(name)
    except (BackendError, ValueError):
        return None
