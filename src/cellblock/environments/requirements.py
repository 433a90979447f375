"""Requirements: one spelling for those that mean the same, and a digest of all that decides what they become."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import PackageError

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*"
    r"(?:\[(?P<extras>[A-Za-z0-9._,\s-]*)\]\s*)?"
    r"(?:@\s*(?P<url>[A-Za-z][A-Za-z0-9+.-]*:\S+)|(?P<versions>[<>=!~][^;@()]*|\([^;@()]*\))?)\s*"
    r"(?:;\s*(?P<marker>.+))?"
)

# The variables of uv that decide which files an environment gets. Others are about how they travel.
_CHOOSING = (
    "BUILD_CONSTRAINT CONFIG_FILE CONSTRAINT DEFAULT_INDEX EXCLUDE EXCLUDE_NEWER EXCLUDE_NEWER_PACKAGE "
    "EXTRA_INDEX_URL FIND_LINKS FORK_STRATEGY INDEX INDEX_STRATEGY INDEX_URL NO_BINARY NO_BINARY_PACKAGE "
    "NO_BUILD NO_BUILD_ISOLATION NO_BUILD_PACKAGE NO_CONFIG NO_INDEX NO_SOURCES ONLY_BINARY OVERRIDE "
    "PRERELEASE RESOLUTION TORCH_BACKEND"
).split()


def normalised(packages: Sequence[str]) -> tuple[str, ...]:
    """Give the requirements, each once, in one spelling and order. Raises `PackageError` for what is none."""
    if isinstance(packages, str):
        raise PackageError(f"Packages must be a list of requirements, not the text {packages!r}.")
    return tuple(sorted({_normalise(package) for package in packages}))


def digest(requirements: Sequence[str], *facts: object) -> str:
    """Name everything that decides what uv installs for `requirements`, and the `facts`, which JSON can hold."""
    settings = {name: os.environ.get(f"UV_{name}", "") for name in _CHOOSING}
    named = [word for value in settings.values() for word in value.split()]
    stamped = [[requirement, *_stamp(requirement)] for requirement in requirements]
    found = [*facts, stamped, settings, _contents([*named, *_configuration_files()])]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]


def names(requirements: Sequence[str]) -> str:
    """Give the requirements as a message may show them: without URLs, which may hold passwords."""
    return ", ".join(requirement.partition(" @ ")[0] for requirement in requirements)


def _normalise(package: str) -> str:
    """Give one spelling to requirements that mean the same. What is left is for uv to judge."""
    found = _REQUIREMENT.fullmatch(package.strip())
    if found is None or not package.strip().isprintable():
        raise PackageError(
            f"{package!r} is not a requirement. Write NAME, NAME>=VERSION or NAME @ URL; options and paths are refused."
        )
    name = _canonical(found["name"])
    extras = {_canonical(extra.strip()) for extra in (found["extras"] or "").split(",")} - {""}
    text = f"{name}[{','.join(sorted(extras))}]" if extras else name
    if found["url"]:
        text += f" @ {found['url']}"
    versions = re.sub(r"\s*([<>=!~]+)\s*", r"\1", (found["versions"] or "").strip("()")).split(",")
    text += ",".join(sorted(version.strip() for version in versions))
    return f"{text} ; {found['marker'].strip()}" if found["marker"] else text


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _stamp(requirement: str) -> list[int]:
    """Tell one content of a local file from the next."""
    _, _, url = requirement.partition(" @ ")
    if not url.startswith("file:"):
        return []
    path = unquote(urlsplit(url.partition(" ; ")[0]).path)
    if os.path.isdir(path):
        raise PackageError(f"{requirement!r} is a folder. Build a wheel and give its URL.")
    return state_of(path)


def state_of(path: str) -> list[int]:
    """Tell one content of a file from the next, without reading it."""
    with contextlib.suppress(OSError):  # uv will say what is wrong with it
        found = os.stat(path)
        return [found.st_size, found.st_mtime_ns]
    return []


def _configuration_files() -> list[str]:
    """Give the files that uv reads for the user and for the machine."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    machine = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    return [os.path.join(folder, "uv", "uv.toml") for folder in (home, *machine, "/etc")]


def _contents(paths: Sequence[str]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for path in paths:
        with contextlib.suppress(OSError):  # not a file, or not there
            digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return digests
