"""Requirements in containers: an image over the one that was asked for, built once for each set and kept by the engine.

uv fetches the wheels here, with this machine's settings, for the Python of the image; so the image needs no pip, and the
build no network. The image is named for all that decides what is in it, so who finds one under its name need not look in.
They are never removed by themselves: `docker image prune --all --filter label=cellblock.packages` removes the unused.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tarfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import PackageError, PlaceError
from ..installer import Report, Workshop, cache_folder, in_thread, run_uv, to_log
from ..limits import Limits
from ..requirements import digest, names, normalised
from . import owners
from .building import build_image
from .client import Client
from .container import create
from .images import OnPull, fetched_facts, image_facts
from .settings import PACKAGES, START_PYTHON, ContainerSettings

LABEL = "cellblock.packages"
_REPOSITORY = "cellblock-packages"
_FORMAT = 1  # part of every digest: raise it when images are built differently
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
# uv knows only some versions of glibc by name, and wheels for an older one are for the newer ones as well.
_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
# The first lines of a program that was installed for the Python of this machine; the longer form is for long paths.
_HEAD = re.compile(rb"\A#!(?:/bin/sh\n'''exec' [^\n]*\n' '''|[^\n]*python[^\n]*)\n")


@dataclass(frozen=True)
class _Python:
    """The Python of an image: its program, and what decides which wheels are for it."""

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
        return f"{self.machine}-manylinux_2_{next((known for known in _GLIBC if known <= minor), 17)}"


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

    Raises `ImageUnavailable`; `PackageError`, with uv's own words, when a requirement cannot be met; `PlaceError`.
    """
    requirements = normalised(packages)
    facts = await fetched_facts(client, image, on_pull)
    found = await in_thread(_wheels, wheels)
    workshop = Workshop(cache_folder("images"), await in_thread(digest, requirements, _FORMAT, facts["Id"], found))
    reference = f"{_REPOSITORY}:{workshop.digest}"
    if await image_facts(client, reference) is None:
        report = progress or to_log
        async with workshop.claim(report) as lock:
            if await image_facts(client, reference) is None:
                job = _Job(client, image, facts, requirements, tuple(map(os.path.abspath, wheels)), workshop)
                await job.build(reference, lock, report)
    return reference


def _wheels(folders: Sequence[str]) -> list[list[Any]]:
    """Tell one content of these folders from the next. Raises `PackageError`."""
    found: list[list[Any]] = []
    for folder in folders:
        try:
            entries = sorted((entry.name, entry.stat()) for entry in os.scandir(folder))
        except OSError as error:
            raise PackageError(f"wheels: the folder {folder} cannot be read: {error.strerror}.") from error
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
        python = await self._find_python()
        try:
            await in_thread(self.workshop.prepare)
            if words := await run_uv(self._install(python), self.workshop, lock, report):
                raise PackageError(
                    f"Cannot install {names(self.requirements)} for Python {python.version} of the image {self.image}, into "
                    f"which only wheels can be put. uv says:\n{words}"
                )
            context = await in_thread(self._context, python)
            labels = {LABEL: names(self.requirements), "cellblock.base": self.image}
            await build_image(self.client, reference, context, labels=labels)
        finally:
            await in_thread(self.workshop.clear)

    async def _find_python(self) -> _Python:
        """Ask the image, in a container of its own. Raises `PackageError` when packages mean nothing to it."""
        settings = ContainerSettings(
            image=str(self.facts["Id"]), user="0:0", limits=Limits(), labels=owners.labels(kept=False)
        )
        container = await create(self.client, settings, f"cellblock-look-{uuid.uuid4()}")
        try:
            await container.start()
            exit_code, said = await container.run(["/bin/sh", "-c", START_PYTHON, _ASK])
        finally:
            await container.remove()
        if exit_code == _NO_PYTHON:
            raise PackageError(f"The image {self.image} has no python3: packages can only be installed where there is one.")
        try:
            python = _Python(**json.loads(said.splitlines()[-1]))
        except (ValueError, IndexError, TypeError) as error:
            raise PlaceError(f"The Python of the image {self.image} does not work. It said: {said[-1000:]}") from error
        if python.kind != "cpython":
            raise PackageError(f"The image {self.image} has {python.kind}: packages can only be installed for CPython.")
        return python

    def _install(self, python: _Python) -> list[str]:
        wheels = [option for folder in self.wheels for option in ("--find-links", folder)]
        return [
            *("pip", "install", "--target", str(self._packages), "--python", sys.executable, "--link-mode", "copy"),
            *("--python-version", python.version, "--python-platform", python.platform, "--only-binary", ":all:"),
            *(["--no-index", *wheels] if wheels else []),
            *("--", *self.requirements),
        ]

    def _context(self, python: _Python) -> Path:
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
            with tarfile.open(packed, mode="w") as archive:
                for path in (dockerfile, show, self._packages):
                    archive.add(path, path.name, filter=_for_everybody)
        return packed

    def _dockerfile(self, python: _Python) -> str:
        compiling = f"{shlex.quote(python.program)} -m compileall -q -j 0 {PACKAGES} >/dev/null || :"
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


def _give_to(program: Path, python: _Python) -> None:
    """Have a program that was installed run by the image's Python."""
    content = program.read_bytes()
    changed = _HEAD.sub(f"#!{python.program}\n".encode().replace(b"\\", rb"\\"), content, count=1)
    if changed != content:
        program.write_bytes(changed)


def _for_everybody(item: tarfile.TarInfo) -> tarfile.TarInfo:
    item.uid = item.gid = 0
    item.uname = item.gname = "root"
    item.mode = 0o755 if item.isdir() or item.mode & 0o100 else 0o644
    return item
