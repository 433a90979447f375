"""Images with packages: a layer on top of another image, built once for each set of requirements.

uv downloads the wheels on the host, with the host's settings, for the Python of the image. So the
image needs no pip and the build no network. The tag is a digest of everything that decides the
content of the image. The images are not removed automatically; remove unused ones by `docker image
prune --all --filter label=cellblock.packages`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..aio.shielded import run_in_thread
from ..environments.requirements import digest, display_names, normalise_requirements
from ..environments.shebang import with_shebang
from ..environments.uv import (
    OnLine,
    UvInstaller,
    log_line,
    run_uv,
    user_cache_dir,
)
from ..errors import PackageError
from .client import EngineClient
from .image_build import build_if_missing, build_image, pack_context
from .image_python import ImagePython, inspect_python
from .images import OnPull, inspect_or_pull
from .spec import PACKAGES_DIR

PACKAGES_LABEL = "cellblock.packages"
_REPOSITORY = "cellblock-packages"
_FORMAT = 1  # part of every digest: increase it when images are built differently
# Put the packages in front of the image's own, but after those that blocks install into the home.
_PTH = (
    "import site, sys; "
    "_at = sys.path.index({site!r}) if {site!r} in sys.path else len(sys.path); "
    "_end = len(sys.path); site.addsitedir({packages!r}); "
    "sys.path[_at:] = sys.path[_end:] + sys.path[_at:_end]\n"
)
# Compiled in the build, because blocks cannot write there. Files for other Python versions fail to
# compile, which is harmless.
_DOCKERFILE = """\
FROM {base}
USER 0:0
COPY packages {packages}
COPY {pth}
RUN {compile}
USER {user}
"""


async def image_with_packages(
    client: EngineClient,
    image: str,
    packages: Sequence[str],
    wheels: Sequence[str] = (),
    *,
    on_pull: OnPull | None = None,
    on_line: OnLine | None = None,
) -> str:
    """Return the reference of `image` plus `packages` and their dependencies; build it if missing.

    wheels    folders to install from instead of an index
    on_line   called with each line that uv prints; None: log them

    Raise `ImageUnavailable` if the image cannot be pulled, `PackageError`, which quotes uv, if a
    requirement cannot be installed, and `BackendError` for other failures.
    """
    requirements = normalise_requirements(packages)
    image_info = await inspect_or_pull(client, image, on_pull)
    fingerprint = await run_in_thread(_fingerprint_wheels, wheels)
    key = await run_in_thread(digest, requirements, _FORMAT, image_info["Id"], fingerprint)
    installer, report = UvInstaller(user_cache_dir("images"), key), on_line or log_line
    reference = f"{_REPOSITORY}:{installer.digest}"
    folders = tuple(map(os.path.abspath, wheels))
    image_build = _PackagesBuild(client, image, image_info, requirements, folders, installer)

    async def build(lock: int) -> None:
        await image_build.build(reference, lock, report)

    await build_if_missing(client, reference, installer, report, build)
    return reference


def _fingerprint_wheels(folders: Sequence[str]) -> list[list[Any]]:
    """Return the name, size and time of every file. Raise `PackageError` for a missing folder."""
    files: list[list[Any]] = []
    for folder in folders:
        try:
            entries = sorted((entry.name, entry.stat()) for entry in os.scandir(folder))
        except OSError as error:
            raise PackageError(
                f"wheels: the folder {folder} cannot be read ({error.strerror}). Check the path."
            ) from error
        files += [[name, status.st_size, status.st_mtime_ns] for name, status in entries]
    return files


@dataclass(frozen=True)
class _PackagesBuild:
    """The build of one image; `image_info` is the engine's description of its base image."""

    client: EngineClient
    image: str
    image_info: dict[str, Any]
    requirements: tuple[str, ...]
    wheels: tuple[str, ...]
    installer: UvInstaller

    @property
    def _packages_folder(self) -> Path:
        return self.installer.partial_dir / "packages"

    async def build(self, reference: str, lock: int, on_line: OnLine) -> None:
        """Build the image. `lock` is the descriptor of the held lock."""
        python = await inspect_python(self.client, self.image, self.image_info)
        arguments = python.uv_install_arguments(
            self.requirements, self._packages_folder, self.wheels
        )
        if error := await run_uv(arguments, self.installer, lock, on_line):
            raise PackageError(
                f"{display_names(self.requirements)} cannot be installed for Python "
                f"{python.version} of the image {self.image}. Only wheels can be installed. "
                f"uv says:\n{error}"
            )
        context = await run_in_thread(self._pack_context, python)
        labels = {PACKAGES_LABEL: display_names(self.requirements), "cellblock.base": self.image}
        await build_image(self.client, reference, context, labels=labels)

    def _pack_context(self, python: ImagePython) -> Path:
        """Write the build context, and return its path."""
        archive = self.installer.partial_dir / "context.tar"
        pth = self.installer.partial_dir / "packages.pth"
        dockerfile = self.installer.partial_dir / "Dockerfile"
        with self.installer.translate_errors():
            for program in _files_in(self._packages_folder / "bin"):
                _set_interpreter(program, python)
            (self._packages_folder / ".lock").unlink(missing_ok=True)  # left by uv
            pth.write_text(_PTH.format(site=python.site, packages=PACKAGES_DIR))
            dockerfile.write_text(self._dockerfile(python))
            pack_context(archive, dockerfile, pth, self._packages_folder)
        return archive

    def _dockerfile(self, python: ImagePython) -> str:
        compiling = (
            f"{shlex.quote(python.program)} -m compileall -q -j 0 {PACKAGES_DIR} >/dev/null || :"
        )
        return _DOCKERFILE.format(
            base=str(self.image_info["Id"]).removeprefix("sha256:"),
            packages=PACKAGES_DIR,
            pth=json.dumps(["packages.pth", f"{python.site}/cellblock-packages.pth"]),
            compile=json.dumps(["/bin/sh", "-c", compiling]),
            user=self.image_info["Config"].get("User") or "0:0",
        )


def _files_in(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.is_file())


def _set_interpreter(program: Path, python: ImagePython) -> None:
    """Rewrite the shebang line of an installed program to the image's Python."""
    content = program.read_bytes()
    if (changed := with_shebang(python.program, content)) != content:
        program.write_bytes(changed)
