"""Build a test image that contains the pure-Python parts of IPython from the tests' Python."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import docker_engine

_FOLDER = "usr/lib/python3/dist-packages"


def use_session_image(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make executors use the shared test engine. Return the image, which is built if missing."""
    base = docker_engine.use_shared_engine(monkeypatch, "python")
    files = dict(_files())
    key = hashlib.sha256(
        "\n".join((base, Path(__file__).read_text(), *sorted(files))).encode()
    ).hexdigest()[:12]
    reference, running = f"cellblock-test-ipython:{key}", docker_engine.shared_engine()
    if not running.docker("images", "--quiet", reference):
        running.docker("build", "--tag", reference, "-", data=_context(base, files))
    return reference


def _context(base: str, files: dict[str, Path]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        recipe = f"FROM {base}\nCOPY site /{_FOLDER}\n".encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(recipe)
        archive.addfile(entry, io.BytesIO(recipe))
        for name, path in sorted(files.items()):
            archive.add(path, f"site/{name}", recursive=False)
    return data.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    for distribution in _required_distributions("ipython"):
        for file in distribution.files or ():
            # Compiled extensions are for the tests' Python. The image has another version.
            if ".." not in file.parts and "__pycache__" not in file.parts and file.suffix != ".so":
                yield str(file), Path(str(file.locate()))


def _required_distributions(name: str) -> Iterator[importlib.metadata.Distribution]:
    seen, waiting = set[str](), [name]
    while waiting:
        found = waiting.pop().lower().replace("_", "-")
        if found in seen:
            continue
        seen.add(found)
        try:
            distribution = importlib.metadata.distribution(found)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on another Python or system only
        yield distribution
        for requirement in distribution.requires or ():
            if "extra ==" not in requirement and (match := re.match(r"[\w.-]+", requirement)):
                waiting.append(match[0])
