"""What an engine saves is unpacked to what the engine's own containers see."""

from __future__ import annotations

import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from cellblock.sandbox.images.unpacking import open_root
from tests.containers import docker_engine, podman_engine
from tests.containers.docker_engine import Engine
from tests.sandbox.images.image_builder import TRUSTING

pytestmark = [pytest.mark.engine]

DOCKERFILE = """
FROM {base}
ENV GREETING="hello world"
WORKDIR /app
RUN echo a > a && echo b > b && mkdir -p d/e && echo f > d/e/f && ln -s a link && ln a hard
RUN rm b && rm -r d && mkdir d && echo new > d/new && chmod 750 d && chmod 6755 a
USER 1000
"""
# What an engine makes for each container.
MADE = {"dev", "proc", "sys", "run", ".dockerenv"}
MADE_FILES = {"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}


@pytest.mark.parametrize("form", ["docker", "podman", "oci-archive", "oci-dir"])
def test_a_saved_image_has_the_files_of_a_container(tmp_path: Path, form: str) -> None:
    engine = (docker_engine if form == "docker" else podman_engine).shared_engine()
    base, image = engine.test_image("shell"), f"cellblock-test-saved-{form}"
    engine.docker("build", "--tag", image, "-", data=DOCKERFILE.format(base=base).encode())
    saved = tmp_path / "saved"
    if form in ("docker", "podman"):
        engine.docker("save", "--output", str(saved), image)
    else:
        remote = ["podman", "--remote", "--url", engine.host, "save", "--format", form]
        subprocess.run([*remote, "--output", str(saved), image], check=True, capture_output=True)

    root = open_root(saved)
    assert {"GREETING=hello world"} <= {*root.environment}
    assert root.work_dir == "/app"
    assert files_of(Path(root.path)) == files_of_container(engine, image, tmp_path)


def files_of_container(engine: Engine, image: str, folder: Path) -> dict[str, object]:
    """Return the files of a new container, with their modes, contents and links."""
    container, archive = engine.docker("create", image, "true"), folder / "exported.tar"
    try:
        engine.docker("export", "--output", str(archive), container)
    finally:
        engine.docker("rm", container)
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "exported", **TRUSTING)
    return files_of(folder / "exported")


def files_of(root: Path) -> dict[str, object]:
    """Return the files below a folder but those that engines make, with what they are."""
    found = dict[str, object]()
    for folder, folders, files in os.walk(root):
        if folder == str(root):
            folders[:] = [name for name in folders if name not in MADE]
        for name in (*folders, *files):
            path = Path(folder, name)
            own = str(path.relative_to(root))
            if own in MADE | MADE_FILES:
                continue
            status = path.lstat()
            # Those of setuid and setgid are dropped.
            mode = stat.S_IMODE(status.st_mode) & 0o1777
            if path.is_symlink():
                found[own] = path.readlink()
            elif path.is_dir():
                found[own] = mode
            else:
                found[own] = mode, int(status.st_mtime), path.read_bytes(), status.st_nlink
    return found
