"""A folder of packages, from which pip installs without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(module: Path, folder: Path, version: str = "1.0") -> Path:
    """Write a wheel of one module into `folder` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = module.stem
    info = f"{name}-{version}.dist-info"
    files = {
        module.name: module.read_text(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{info}/RECORD"
    files[record] = "".join(f"{path},,\n" for path in [*files, record])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel
