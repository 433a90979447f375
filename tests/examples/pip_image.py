"""A test image in which blocks can run `pip`."""

from __future__ import annotations

import ensurepip
import zipfile
from pathlib import Path

import pytest

from tests.containers import docker_engine

_FOLDER = "usr/lib/python3/dist-packages"
_COMMAND = """\
#!/usr/bin/python3
from pip._internal.cli.main import main
raise SystemExit(main())
"""
# Debian's Python refuses otherwise. The official images of Python do not.
_SETTINGS = "[global]\nbreak-system-packages = true\n"


def use_pip_image(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Make executors use the shared test engine. Return the image, which is built if missing.

    Its files are collected in `folder`.
    """
    base = docker_engine.use_shared_engine(monkeypatch, "python")
    return docker_engine.shared_engine().image_with_files("pip", base, lambda: _files(folder))


def _files(folder: Path) -> dict[str, Path]:
    (wheel,) = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / _FOLDER)
    (folder / "etc").mkdir()
    (folder / "etc/pip.conf").write_text(_SETTINGS)
    command = folder / "usr/local/bin/pip"
    command.parent.mkdir(parents=True)
    command.write_text(_COMMAND)
    command.chmod(0o755)
    return {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
