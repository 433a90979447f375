"""Requirements in containers: an image over the one that was asked for, built once for each set and kept by the engine.

uv fetches the wheels here, with this machine's settings, for the Python of the image; so the image needs no pip, and the
build no network. The image is named for all that decides what is in it, so who finds one under its name need not look in.
They are never removed by themselves: `docker image prune --all --filter label=cellblock.packages` removes the unused.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..environments.requirements import digest, names, normalised
from ..environments.uv import Report, Workshop, cache_folder, in_thread, run_by, run_uv, to_log
from ..errors import PackageError
from .client import Client
from .image_build import build_image, pack, unless_there
from .image_python import ImagePython, python_of
from .images import OnPull, fetched_facts
from .spec import PACKAGES

LABEL = "cellblock.packages"
_REPOSITORY = "cellblock-packages"
_FORMAT = 1  # part of every digest: raise it when images are built differently
# Above the image's own packages, and below those that blocks install for themselves.
_SHOW = (
    "import site, sys; _at = sys.path.index({site!r}) if {site!r} in sys.path else len(sys.path); _end = len(sys.path); "
    "site.addsitedir({packages!r}); sys.path[_at:] = sys.path[_end:] + sys.path[_at:_end]\n"
)
# Compiled now: who runs blocks cannot write. What is in a package for another Python does not compile, and need not.
_DOCKERFILE = """\
FROM {base}
USER 0:0
COPY packages {packages}
COPY {show}
RUN {compile}
USER {user}
"""


async def image_with(
    client: Client,
    image: str,
    packages: Sequence[str],
    wheels: Sequence[str] = (),
    *,
    on_pull: OnPull | None = None,
    progress: Report | None = None,
) -> str:
    """Give the reference of an image that is `image` with these requirements and what they need, built when there is none.

    `wheels` are folders that they are taken from, and then no index is asked. `progress` gets the lines of uv (`None`: they
    are logged). Who asks for what another builds already waits for that.

    Raises `ImageUnavailable`; `PackageError`, with uv's own words, when a requirement cannot be met; `BackendError`.
    """
    requirements = normalised(packages)
    facts = await fetched_facts(client, image, on_pull)
    found = await in_thread(_wheels, wheels)
    workshop = Workshop(
        cache_folder("images"), await in_thread(digest, requirements, _FORMAT, facts["Id"], found)
    )
    reference, report = f"{_REPOSITORY}:{workshop.digest}", progress or to_log
    job = _Job(client, image, facts, requirements, tuple(map(os.path.abspath, wheels)), workshop)

    async def build(lock: int) -> None:
        await job.build(reference, lock, report)

    await unless_there(client, reference, workshop, report, build)
    return reference


def _wheels(folders: Sequence[str]) -> list[list[Any]]:
    """Tell one content of these folders from the next. Raises `PackageError`."""
    found: list[list[Any]] = []
    for folder in folders:
        try:
            entries = sorted((entry.name, entry.stat()) for entry in os.scandir(folder))
        except OSError as error:
            raise PackageError(
                f"wheels: the folder {folder} cannot be read: {error.strerror}."
            ) from error
        found += [[name, status.st_size, status.st_mtime_ns] for name, status in entries]
    return found


@dataclass(frozen=True)
class _Job:
    """One image to be built; `facts` is what the engine says about the one below it."""

    client: Client
    image: str
    facts: dict[str, Any]
    requirements: tuple[str, ...]
    wheels: tuple[str, ...]
    workshop: Workshop

    @property
    def _packages(self) -> Path:
        return self.workshop.folder / "packages"

    async def build(self, reference: str, lock: int, report: Report) -> None:
        """Build it, for who holds the lock."""
        python = await python_of(self.client, self.image, self.facts)
        arguments = python.installation(self.requirements, self._packages, self.wheels)
        if words := await run_uv(arguments, self.workshop, lock, report):
            raise PackageError(
                f"Cannot install {names(self.requirements)} for Python {python.version} of the image {self.image}, into "
                f"which only wheels can be put. uv says:\n{words}"
            )
        context = await in_thread(self._context, python)
        labels = {LABEL: names(self.requirements), "cellblock.base": self.image}
        await build_image(self.client, reference, context, labels=labels)

    def _context(self, python: ImagePython) -> Path:
        """Pack what the build needs."""
        packed = self.workshop.folder / "context.tar"
        show = self.workshop.folder / "show.pth"
        dockerfile = self.workshop.folder / "Dockerfile"
        with self.workshop.trouble():
            for program in _files(self._packages / "bin"):
                _give_to(program, python)
            (self._packages / ".lock").unlink(missing_ok=True)  # uv's own
            show.write_text(_SHOW.format(site=python.site, packages=PACKAGES))
            dockerfile.write_text(self._dockerfile(python))
            pack(packed, dockerfile, show, self._packages)
        return packed

    def _dockerfile(self, python: ImagePython) -> str:
        compiling = (
            f"{shlex.quote(python.program)} -m compileall -q -j 0 {PACKAGES} >/dev/null || :"
        )
        return _DOCKERFILE.format(
            base=str(self.facts["Id"]).removeprefix("sha256:"),
            packages=PACKAGES,
            show=json.dumps(["show.pth", f"{python.site}/cellblock-packages.pth"]),
            compile=json.dumps(["/bin/sh", "-c", compiling]),
            user=self.facts["Config"].get("User") or "0:0",
        )


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.is_file())


def _give_to(program: Path, python: ImagePython) -> None:
    """Have a program that was installed run by the image's Python."""
    content = program.read_bytes()
    if (changed := run_by(python.program, content)) != content:
        program.write_bytes(changed)
