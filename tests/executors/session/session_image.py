"""Build a test image that contains the pure-Python parts of IPython from the tests' Python."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import docker_engine

_FOLDER = "usr/lib/python3/dist-packages"


def use_session_image(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make executors use the shared test engine. Return the image, which is built if missing."""
    base = docker_engine.use_shared_engine(monkeypatch, "python")
    return docker_engine.shared_engine().image_with_files(
        "ipython", base, lambda: {f"{_FOLDER}/{name}": path for name, path in _files()}
    )


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
