"""ImagePython: the Python of an image, found by running it, and the platform of its wheels."""

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
from .client import EngineClient
from .container import create_container
from .spec import START_PYTHON, ContainerSpec

_NO_PYTHON = 127
_PROBE = """\
import json, platform, site, sys, sysconfig
print()
print(json.dumps({
    "program": sys.executable,
    "version": platform.python_version(),
    "implementation": sys.implementation.name,
    "machine": platform.machine(),
    "abi": sysconfig.get_config_var("SOABI") or "",
    "libc": platform.libc_ver(),
    "site": site.getsitepackages()[0],
}))
"""
# The glibc versions in uv's platform names. Wheels for an older glibc also work on newer ones.
_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)


@dataclass(frozen=True)
class ImagePython:
    """A Python interpreter in an image; `site` is its site-packages folder."""

    program: str
    version: str
    implementation: str
    machine: str
    abi: str
    libc: list[str]
    site: str

    @property
    def platform(self) -> str:
        """The value of uv's option --python-platform for this interpreter."""
        if "musl" in self.abi or self.libc[0] != "glibc":
            return f"{self.machine}-unknown-linux-musl"
        minor = int(self.libc[1].split(".")[1])
        return (
            f"{self.machine}-manylinux_2_{next((known for known in _GLIBC if known <= minor), 17)}"
        )

    def uv_install_arguments(
        self, requirements: Sequence[str], folder: Path, wheels: Sequence[str] = ()
    ) -> list[str]:
        """Return uv's arguments to install `requirements` for this interpreter into `folder`.

        If `wheels` names folders, only those are used.
        """
        links = [option for path in wheels for option in ("--find-links", path)]
        return [
            *("pip", "install", "--target", str(folder), "--python", sys.executable),
            *("--link-mode", "copy", "--python-version", self.version),
            *("--python-platform", self.platform, "--only-binary", ":all:"),
            *(["--no-index", *links] if links else []),
            *("--", *requirements),
        ]


async def inspect_python(
    client: EngineClient, image: str, image_info: Mapping[str, Any]
) -> ImagePython:
    """Run the image's Python in a temporary container, and return its report.

    `image_info` is the engine's description of the image. Raise `PackageError` if the image has no
    CPython, `BackendError` if its Python does not work.
    """
    spec = ContainerSpec(
        image=str(image_info["Id"]),
        user="0:0",
        limits=Limits.unlimited(),
        labels=orphans.owner_labels(kept=False),
    )
    container = await create_container(client, spec, f"cellblock-probe-{uuid.uuid4()}")
    try:
        await container.start()
        exit_code, output = await container.run_command(["/bin/sh", "-c", START_PYTHON, _PROBE])
    finally:
        await container.remove()
    if exit_code == _NO_PYTHON:
        raise PackageError(
            f"The image {image} has no python3, so packages cannot be installed. Use another image."
        )
    try:
        python = ImagePython(**json.loads(output.splitlines()[-1]))
    except (ValueError, IndexError, TypeError) as error:
        raise BackendError(
            f"The Python of the image {image} does not work. It printed: {output[-1000:]}"
        ) from error
    if python.implementation != "cpython":
        raise PackageError(
            f"The image {image} has {python.implementation}. Packages can only be installed for "
            "CPython."
        )
    return python
