"""An image of a container is unpacked once, into what its programs see as `/`."""

from __future__ import annotations

import gzip
import itertools
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

import pytest

from cellblock.errors import ImageUnusable
from cellblock.sandbox.images.root_file_system import RootFileSystem
from cellblock.sandbox.images.unpacking import open_root
from tests.plain_user import unprivileged_command
from tests.sandbox.images.image_builder import (
    MACHINE,
    Layout,
    file,
    folder,
    hard_link,
    layer,
    link,
    member,
    pack,
    write_layout,
    write_saved,
)

pytestmark = pytest.mark.depends_on_user

BASE = layer(
    folder("bin"), file("bin/sh", b"shell", 0o755), file("etc/old", b"old"), folder("tmp", 0o1777)
)


def tree_of(root: str | RootFileSystem) -> dict[str, str]:
    """Return each file with its content, each link with its text, and each folder."""
    top, found = Path(root.path if isinstance(root, RootFileSystem) else root), dict[str, str]()
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text()
    return found


@pytest.mark.parametrize("form", ["layout", "archive", "packed archive", "saved"])
def test_each_form_of_an_image_gives_the_same_root(tmp_path: Path, form: str) -> None:
    added = layer(file("etc/new", b"new"))
    if form == "saved":
        source = write_saved(tmp_path / "saved.tar", BASE, added)
    else:
        source = write_layout(tmp_path / "layout", BASE, added, compress=gzip.compress)
        if form != "layout":
            source = pack(source, tmp_path / "image.tar", "w:gz" if "packed" in form else "w")
    root = open_root(source)
    folders, files = ("bin", "etc", "tmp"), {"bin/sh": "shell", "etc/old": "old", "etc/new": "new"}
    assert tree_of(root) == {**dict.fromkeys(folders, "/"), **files}
    assert os.access(f"{root.path}/bin/sh", os.X_OK)
    assert stat.S_IMODE(os.stat(f"{root.path}/tmp").st_mode) == 0o1777
    assert os.stat(f"{root.path}/bin/sh").st_mtime == 1_000_000_000


def test_a_folder_is_used_as_it_is(tmp_path: Path, cache: Path) -> None:
    assert open_root(tmp_path) == RootFileSystem(str(tmp_path))
    assert not cache.exists()


def test_the_machine_itself_is_no_root() -> None:
    with pytest.raises(ImageUnusable, match="whole machine"):
        open_root("/")


def test_settings_of_the_image_are_read(tmp_path: Path) -> None:
    source = write_layout(
        tmp_path / "image", BASE, Env=["PATH=/bin", "A=b=c", "=", "B=\0"], WorkingDir="/app"
    )
    root = open_root(source)
    assert (root.environment, root.work_dir) == (("PATH=/bin", "A=b=c"), "/app")


def test_layers_hide_files_of_those_below_only(tmp_path: Path) -> None:
    below = layer(file("a/x"), file("a/y"), file("b/x"), file("b/sub/x"), file("c"), file("d/x"))
    above = layer(
        file("a/.wh.x"),  # one file
        file("b/new"),
        file("b/sub/new"),
        file("b/.wh..wh..opq"),  # a folder with all that it had
        file(".wh.c"),
        file("d"),  # a file instead of a folder
        file("e/.wh.missing"),
        file(".wh..wh.plnk"),
    )
    tree = tree_of(open_root(write_layout(tmp_path / "image", below, above)))
    found = {name for name, what in tree.items() if what != "/"}
    assert found == {"a/y", "b/new", "b/sub/new", "d"}


def test_links_stay_as_they_are_and_are_resolved_in_the_image(tmp_path: Path) -> None:
    below = layer(
        folder("usr/bin"), link("bin", "usr/bin"), link("absolute", "/usr"), link("up", "../../usr")
    )
    above = layer(
        file("bin/a"),
        file("absolute/b"),
        file("up/c"),
        hard_link("usr/d", "bin/a"),
        link("usr/e", "/nowhere"),
    )
    root = open_root(write_layout(tmp_path / "image", below, above))
    assert tree_of(root) == {
        **{"absolute": "-> /usr", "bin": "-> usr/bin", "up": "-> ../../usr"},
        **dict.fromkeys(("usr", "usr/bin"), "/"),
        **dict.fromkeys(("usr/b", "usr/bin/a", "usr/c", "usr/d"), ""),
        "usr/e": "-> /nowhere",
    }
    assert os.stat(f"{root.path}/usr/d").st_nlink == 2


def test_modes_are_kept_but_not_setuid(tmp_path: Path) -> None:
    source = write_layout(
        tmp_path / "image",
        layer(
            folder(".", 0o555),
            folder("closed", 0o500),
            file("closed/x", mode=0o400),
            file("su", mode=0o6755),
            folder("group", 0o2775),
        ),
        layer(file("closed/y", mode=0o111)),
    )
    path = open_root(source).path
    found = {
        name: stat.S_IMODE(os.stat(f"{path}/{name}").st_mode) for name in ("", *os.listdir(path))
    }
    assert found == {"": 0o555, "closed": 0o500, "su": 0o755, "group": 0o775}
    assert stat.S_IMODE(os.stat(f"{path}/closed/y").st_mode) == 0o111


def test_a_plain_user_owns_what_it_unpacks(tmp_path: Path) -> None:
    code = """
import os, sys
from cellblock.sandbox.images.unpacking import open_root
root = open_root(sys.argv[1])
print(open(f"{root.path}/closed/x").read(), {os.lstat(f"{root.path}/{name}").st_uid for name in
      ("", "closed", "closed/x", "link")} == {os.getuid()})
"""
    with tempfile.TemporaryDirectory() as folder_name:  # other users cannot enter `tmp_path`
        folder_path = Path(folder_name)
        folder_path.chmod(0o777)
        info, data = file("closed/x", b"data", mode=0o400)
        info.uid = info.gid = 12345
        image = layer(folder("closed", 0o500), (info, data), link("link", "closed"))
        start = unprivileged_command("-c", code, str(write_layout(folder_path / "image", image)))
        if start is None:
            pytest.skip("no Python that a plain user can start")
        command, environment = start
        environment = {**environment, "XDG_CACHE_HOME": f"{folder_name}/cache"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")
        assert done.stdout == "data True\n", done.stderr


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing")
def test_files_are_on_the_disk_before_the_image_is_in_the_cache(tmp_path: Path) -> None:
    code = "import sys, cellblock; cellblock.open_root(sys.argv[1])"
    source, log = write_layout(tmp_path / "image", BASE), tmp_path / "log"
    calls = ["-y", "-f", "-e", "trace=fchmod,fchmodat,chmod,syncfs,rename,renameat,renameat2"]
    done = subprocess.run(
        ["strace", *calls, "-o", str(log), sys.executable, "-c", code, str(source)],
        capture_output=True,
        text=True,
    )
    if "not permitted" in done.stderr:
        pytest.skip(f"strace cannot trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(chmod|syncfs|rename)\w*\(.*\.partial", log.read_text())
    assert [name for name, _ in itertools.groupby(found)] == ["chmod", "syncfs", "rename"]


def test_devices_and_pipes_are_left_out(tmp_path: Path) -> None:
    devices = [
        member(f"dev/{kind!r}", kind)
        for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    ]
    assert tree_of(open_root(write_layout(tmp_path / "image", layer(file("x"), *devices)))) == {
        "x": ""
    }


# which image


def test_the_image_for_this_machine_is_taken_of_several(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    platforms = [("linux", "mips"), ("linux", MACHINE), ("unknown", "unknown")]
    manifests = [
        {
            **layout.add_image(layer(file(architecture)), machine=architecture),
            "platform": {"os": system, "architecture": architecture},
        }
        for system, architecture in platforms
    ]
    index = layout.add_document({"manifests": manifests})
    assert tree_of(open_root(layout.write_index(index))) == {MACHINE: ""}


@pytest.mark.parametrize("is_said_in_index", [False, True])
def test_an_image_for_another_machine_is_refused(tmp_path: Path, is_said_in_index: bool) -> None:
    layout = Layout(tmp_path / "image")
    image = layout.add_image(BASE, machine="mips")
    if is_said_in_index:
        image["platform"] = {"os": "linux", "architecture": "mips"}
    with pytest.raises(ImageUnusable, match=f"for linux/mips, but this machine is linux/{MACHINE}"):
        open_root(layout.write_index(image))


def test_one_of_several_images_is_chosen_by_name(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    images = [
        {
            **layout.add_image(layer(file(name))),
            "annotations": {"io.containerd.image.name": f"docker.io/library/{name}:1"},
        }
        for name in ("first", "second")
    ]
    source = layout.write_index(*images)
    with pytest.raises(ImageUnusable, match="library/first:1, docker.io/library/second:1"):
        open_root(source)
    assert tree_of(open_root(source, image="second:1")) == {"second": ""}
    with pytest.raises(ImageUnusable, match="choose one"):
        open_root(source, image="third:1")


# compression


def test_layers_of_zstandard(tmp_path: Path) -> None:
    zstd = pytest.importorskip("backports.zstd", reason="backports.zstd is missing")
    source = write_layout(tmp_path / "image", BASE, compress=zstd.compress)
    assert tree_of(open_root(source))["bin/sh"] == "shell"


def test_without_a_package_for_zstandard_the_error_names_the_extra(tmp_path: Path) -> None:
    code = """
import sys
sys.modules |= {"backports.zstd": None, "compression.zstd": None}
from cellblock.sandbox.images.unpacking import open_root
open_root(sys.argv[1])
"""
    source = write_layout(
        tmp_path / "image", BASE, compress=lambda data: b"\x28\xb5\x2f\xfd" + data
    )
    done = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True)
    assert "pip install 'cellblock[zstd]'" in done.stderr


# the cache


def test_an_image_is_unpacked_once(tmp_path: Path) -> None:
    source = write_layout(tmp_path / "image", BASE)
    first = open_root(source)
    marker = Path(first.path, "marker")
    marker.touch()
    copy = pack(source, tmp_path / "image.tar")
    assert open_root(source) == open_root(copy) == first
    assert marker.exists()


@pytest.mark.slow
def test_processes_that_unpack_the_same_image_at_once_get_the_same_root(
    tmp_path: Path, cache: Path
) -> None:
    files = [file(f"folder-{number % 50}/{number}", b"data") for number in range(1000)]
    source = write_layout(tmp_path / "image", layer(*files))
    code = """
import sys
from cellblock.sandbox.images.unpacking import open_root
print(open_root(sys.argv[1]).path)
"""
    command = [sys.executable, "-c", code, str(source)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {process.communicate()[0].strip() for process in processes}
    (path,) = paths
    assert len(tree_of(path)) == 1050
    assert not list(cache.glob("*.partial"))


def test_what_a_killed_process_left_is_removed(tmp_path: Path, cache: Path) -> None:
    root = open_root(write_layout(tmp_path / "image", BASE))
    left = Path(f"{root.path}.partial")
    os.rename(root.path, left)
    (left / "left").touch()
    assert "left" not in tree_of(open_root(tmp_path / "image"))
    assert not left.exists()


def test_unpacking_ends_when_nobody_waits(tmp_path: Path, cache: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(InterruptedError):
        open_root(write_layout(tmp_path / "image", BASE), stop=stop)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
