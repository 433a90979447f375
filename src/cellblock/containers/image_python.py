"""The Python of an image: found by asking it, and what decides which wheels are for it."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BackendError, PackageError
from ..limits import Limits
from . import orphans
from .client import Client
from .container import create
from .spec import START_PYTHON, ContainerSettings

_NO_PYTHON = 127
_ASK = """\
import json, platform, site, sys, sysconfig
print()
print(json.dumps({
    "program": sys.executable, "version": platform.python_version(), "kind": sys.implementation.name,
    "machine": platform.machine(), "abi": sysconfig.get_config_var("SOABI") or "", "libc": platform.libc_ver(),
    "site": site.getsitepackages()[0],
}))
"""
# uv knows only some versions of glibc by name, and wheels for an older one are for the newer ones as well.
_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)


@dataclass(frozen=True)
class ImagePython:
    """The program, and what is known of it; `site` is where packages for everybody lie."""

    program: str
    version: str
    kind: str
    machine: str
    abi: str
    libc: list[str]
    site: str

    @property
    def platform(self) -> str:
        """uv's name for what it runs on."""
        if "musl" in self.abi or self.libc[0] != "glibc":
            return f"{self.machine}-unknown-linux-musl"
        minor = int(self.libc[1].split(".")[1])
        return (
            f"{self.machine}-manylinux_2_{next((known for known in _GLIBC if known <= minor), 17)}"
        )

    def installation(
        self, requirements: Sequence[str], folder: Path, wheels: Sequence[str] = ()
    ) -> list[str]:
        """Give the arguments with which uv puts wheels for it into `folder`; of `wheels` alone, if given."""
        found = [option for offered in wheels for option in ("--find-links", offered)]
        return [
            *(
                "pip",
                "install",
                "--target",
                str(folder),
                "--python",
                sys.executable,
                "--link-mode",
                "copy",
            ),
            *(
                "--python-version",
                self.version,
                "--python-platform",
                self.platform,
                "--only-binary",
                ":all:",
            ),
            *(["--no-index", *found] if found else []),
            *("--", *requirements),
        ]


async def python_of(client: Client, image: str, facts: Mapping[str, Any]) -> ImagePython:
    """Ask the image, in a container of its own; `facts` is what the engine says about it.

    Raises `PackageError` when packages mean nothing to it, `BackendError` when its Python does not work.
    """
    settings = ContainerSettings(
        image=str(facts["Id"]), user="0:0", limits=Limits(), labels=orphans.labels(kept=False)
    )
    container = await create(client, settings, f"cellblock-look-{uuid.uuid4()}")
    try:
        await container.start()
        exit_code, said = await container.run(["/bin/sh", "-c", START_PYTHON, _ASK])
    finally:
        await container.remove()
    if exit_code == _NO_PYTHON:
        raise PackageError(
            f"The image {image} has no python3: packages can only be installed where there is one."
        )
    try:
        python = ImagePython(**json.loads(said.splitlines()[-1]))
    except (ValueError, IndexError, TypeError) as error:
        raise BackendError(
            f"The Python of the image {image} does not work. It said: {said[-1000:]}"
        ) from error
    if python.kind != "cpython":
        raise PackageError(
            f"The image {image} has {python.kind}: packages can only be installed for CPython."
        )
    return python
