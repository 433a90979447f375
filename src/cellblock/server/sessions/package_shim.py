"""Make `import pkg_resources` work in sessions whose Python has no setuptools before version 81.

AutoGen's client lists the installed packages with it before it runs anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...environments.virtualenv import site_packages

_SOURCE = '''\
"""The part of setuptools' old pkg_resources that lists the installed distributions."""

from importlib.metadata import distributions


class _Distribution:
    def __init__(self, name, version):
        self.project_name, self.version = name, version
        self.key = name.lower()

    def __repr__(self):
        return f"{self.project_name} {self.version}"


class _WorkingSet:
    def __iter__(self):
        found = {}
        for each in distributions():
            name = each.metadata["Name"]
            if name:
                found.setdefault(name.lower(), _Distribution(name, each.version))
        return iter(found.values())

    @property
    def by_key(self):
        return {each.key: each for each in self}


working_set = _WorkingSet()
'''


def install(environment: Path, packages: Sequence[str]) -> None:
    """Write the module into `environment`, unless a folder in `packages` has the real one."""
    if not any((Path(folder) / "pkg_resources").is_dir() for folder in packages):
        (site_packages(environment) / "pkg_resources.py").write_text(_SOURCE)
