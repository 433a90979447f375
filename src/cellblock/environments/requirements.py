"""Requirements: one spelling for equal ones, and a digest of all that decides what they install."""

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

# The variables of uv that decide which files are installed. Others only change how.
_SELECTION_VARIABLES = (
    "BUILD_CONSTRAINT CONFIG_FILE CONSTRAINT DEFAULT_INDEX EXCLUDE EXCLUDE_NEWER "
    "EXCLUDE_NEWER_PACKAGE EXTRA_INDEX_URL FIND_LINKS FORK_STRATEGY INDEX INDEX_STRATEGY INDEX_URL "
    "NO_BINARY NO_BINARY_PACKAGE NO_BUILD NO_BUILD_ISOLATION NO_BUILD_PACKAGE NO_CONFIG NO_INDEX "
    "NO_SOURCES ONLY_BINARY OVERRIDE PRERELEASE RESOLUTION TORCH_BACKEND"
).split()


def normalise_requirements(packages: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements in one spelling and order, without duplicates.

    Raise `PackageError` for a malformed one.
    """
    if isinstance(packages, str):
        raise PackageError(f"packages must be a list of requirements, not the string {packages!r}.")
    return tuple(sorted({_normalise(package) for package in packages}))


def digest(requirements: Sequence[str], *facts: object) -> str:
    """Return a digest of all that decides what uv installs for `requirements`, and of `facts`.

    `facts` must be JSON values.
    """
    settings = {name: os.environ.get(f"UV_{name}", "") for name in _SELECTION_VARIABLES}
    named_files = [word for value in settings.values() for word in value.split()]
    with_states = [[requirement, *_local_file_state(requirement)] for requirement in requirements]
    inputs = [
        *facts,
        with_states,
        settings,
        _content_digests([*named_files, *_configuration_files()]),
    ]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:32]


def display_names(requirements: Sequence[str]) -> str:
    """Return the requirements for a message: without URLs, which may contain passwords."""
    return ", ".join(requirement.partition(" @ ")[0] for requirement in requirements)


def _normalise(package: str) -> str:
    """Return one spelling of a requirement. uv checks the rest."""
    found = _REQUIREMENT.fullmatch(package.strip())
    if found is None or not package.strip().isprintable():
        raise PackageError(
            f"{package!r} is not a requirement. Write NAME, NAME>=VERSION or NAME @ URL, "
            "without options and paths."
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


def _local_file_state(requirement: str) -> list[int]:
    """Return the state of the local file that a requirement names, if any."""
    _, _, url = requirement.partition(" @ ")
    if not url.startswith("file:"):
        return []
    path = unquote(urlsplit(url.partition(" ; ")[0]).path)
    if os.path.isdir(path):
        raise PackageError(f"{requirement!r} is a folder. Build a wheel and pass its URL.")
    return file_state(path)


def file_state(path: str) -> list[int]:
    """Return the size and time of a file, which change with its content. Does not read it."""
    with contextlib.suppress(OSError):  # uv reports the error
        found = os.stat(path)
        return [found.st_size, found.st_mtime_ns]
    return []


def _configuration_files() -> list[str]:
    """Return the configuration files of uv for the user and for the machine."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    machine = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    return [os.path.join(folder, "uv", "uv.toml") for folder in (home, *machine, "/etc")]


def _content_digests(paths: Sequence[str]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for path in paths:
        with contextlib.suppress(OSError):  # not a file, or missing
            digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return digests
