"""An image that is hostile or damaged is refused, and nothing outside of the cache is touched."""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import os
import tarfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cellblock.errors import ImageUnusable
from cellblock.runtime.linux.safe_folder import SafeFolder
from cellblock.sandbox.images.byte_stream import Budget
from cellblock.sandbox.images.tree import Tree
from cellblock.sandbox.images.unpacking import open_root
from tests.sandbox.images.image_builder import (
    TRUSTING,
    Layout,
    Member,
    configuration,
    file,
    folder,
    hard_link,
    layer,
    link,
    pack,
    write_layout,
)

# Stands for the path of a folder outside. RELATIVE leads to it from anywhere.
OUTSIDE = "/OUTSIDE"
RELATIVE = "../" * 30 + "OUTSIDE"

ATTACKS: dict[str, list[list[Member]]] = {
    "absolute name": [[file(f"{OUTSIDE}/new")]],
    "name with ..": [[file(f"{RELATIVE}/new")]],
    "name with .. below a folder": [[folder("a"), file(f"a/{RELATIVE}/new")]],
    "through a link of the layer below": [[link("a", OUTSIDE)], [file("a/new")]],
    "through a link of the same layer": [[link("a", OUTSIDE), file("a/new")]],
    "through a relative link": [[link("a", RELATIVE)], [file("a/new")]],
    "through two links": [[link("b", RELATIVE), link("a", "b")], [file("a/new")]],
    "new folder through a link": [[link("a", OUTSIDE)], [folder("a/new")]],
    "new link through a link": [[link("a", OUTSIDE)], [link("a/new", "x")]],
    "file instead of a link": [[link("a", f"{OUTSIDE}/secret"), file("a", b"changed")]],
    "hard link": [[hard_link("a", f"{OUTSIDE}/secret"), file("a", b"changed")]],
    "hard link with ..": [[hard_link("a", f"{RELATIVE}/secret"), file("a", b"changed")]],
    "hard link through a link": [
        [link("b", OUTSIDE), hard_link("a", "b/secret"), file("a", b"changed")]
    ],
    "mode of a folder": [[link("a", OUTSIDE)], [folder("a", 0o711)]],
    "whiteout": [[link("a", OUTSIDE)], [file("a/.wh.secret")]],
    "opaque folder": [[link("a", OUTSIDE)], [file("a/.wh..wh..opq")]],
}


def placed(layers: Sequence[Sequence[Member]], outside: Path) -> list[bytes]:
    """Return the layers of an attack on the folder `outside`."""

    def place(text: str) -> str:
        return text.replace(OUTSIDE, str(outside)).replace("OUTSIDE", str(outside)[1:])

    def placed_info(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info = copy.copy(info)  # `replace` is missing before Python 3.11.4
        info.name, info.linkname = place(info.name), place(info.linkname)
        return info

    return [layer(*((placed_info(info), data) for info, data in members)) for members in layers]


def unpack_plainly(layers: Sequence[bytes], root: Path) -> None:
    """Unpack layers as a program does that trusts them."""
    for data in layers:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for info in archive:
                path = root / info.name
                if path.name == ".wh..wh..opq":
                    for inner in path.parent.iterdir():
                        inner.unlink()
                elif path.name.startswith(".wh."):
                    path.with_name(path.name[4:]).unlink()
                else:
                    archive.extract(info, root, **TRUSTING)


def state_of(folder: Path) -> tuple[int, dict[str, bytes]]:
    """Return what an attack on a folder can change."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return folder.stat().st_mode, files | dict.fromkeys(os.listdir(folder), b"") | files


def test_attacks_touch_nothing_outside(tmp_path: Path, cache: Path) -> None:
    faults = list[object]()
    for name, members in ATTACKS.items():
        top = tmp_path / name
        outside, trusting = top / "outside", top / "trusting"
        for path in (outside, trusting):
            path.mkdir(parents=True)
        (outside / "secret").write_bytes(b"secret")
        layers, before = placed(members, outside), state_of(outside)
        with contextlib.suppress(ImageUnusable):
            open_root(write_layout(top / "image", *layers))
        if state_of(outside) != before or [*cache.glob("*.partial")]:
            faults.append((name, "something outside was touched, or something is left"))
        unpack_plainly(layers, trusting)
        if state_of(outside) == before:
            faults.append((name, "it touches nothing if it is trusted either"))
    assert faults == []


# what is refused


def pax(fields: dict[str, str], name: str = "x") -> bytes:
    """Return a layer with a file that has these fields of pax, whatever they say."""
    info = tarfile.TarInfo(name)
    info.pax_headers = fields
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(1024)


def header(**fields: bytes) -> bytes:
    """Return a layer with a header in which fields have other bytes."""
    places = {"size": (124, 12), "kind": (156, 1), "name": (0, 100)}
    data = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    for field, value in fields.items():
        start, length = places[field]
        data[start : start + length] = value.ljust(length, b"\0")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return bytes(data) + bytes(1024)


HOSTILE: dict[str, tuple[str, list[bytes]]] = {
    "not a tar archive": ("not a tar archive", [b"x" * 2000]),
    "damaged header": (
        "not a tar archive, or damaged",
        [layer(file("x"))[:100] + bytes([7]) + layer(file("x"))[101:]],
    ),
    "end in a header": ("incomplete", [layer(file("x"))[:300]]),
    "end in a file": ("incomplete", [layer(file("x", bytes(2000)))[:1000]]),
    "negative size": ("number", [header(size=b"\xff" * 12)]),
    "huge size": ("incomplete", [header(size=b"\x80" + b"\xff" * 11)]),
    "sign in a number": ("number", [header(size=b"-1")]),
    "unknown kind": ("unknown kind", [header(kind=b"Z")]),
    "sparse file of GNU": ("unknown kind", [header(kind=b"S")]),
    "sparse file of pax": ("sparse", [pax({"GNU.sparse.major": "1"})]),
    "NUL in a name": ("NUL", [pax({"path": "a\0b"})]),
    "bad size in pax": ("size", [pax({"size": "1e9"})]),
    "long attributes": ("too long", [pax({"comment": "x" * (2 << 20)})]),
    "endless attributes": (
        "too long",
        [b"".join(pax({"comment": "x" * 60_000})[:-1536] for _ in range(30))],
    ),
    "long name": ("File name too long", [layer(file("x" * 300))]),
    "long link": ("File name too long", [layer(link("x", "y" * 5000))]),
    "empty link": ("No such file", [layer(link("x", ""))]),
    "deep path": ("too deep", [layer(file("x/" * 2000))]),
    "loop of links": ("too many links", [layer(link("a", "b"), link("b", "a"), file("a/x"))]),
    "file as a folder": ("is a file", [layer(file("a"), file("a/x"))]),
    "file as the root": ("not a folder", [layer(file("."))]),
    "hard link to nothing": ("No such file", [layer(hard_link("a", "missing"))]),
    "hard link to a folder": ("folder", [layer(folder("a"), hard_link("b", "a"))]),
    "whiteout of nothing": ("removes", [layer(file(".wh."))]),
    "whiteout of ..": ("..", [layer(file("a/.wh..."))]),
}


def test_hostile_layers_are_refused(tmp_path: Path, cache: Path) -> None:
    for name, (text, layers) in HOSTILE.items():
        check_refused(write_layout(tmp_path / name, *layers), cache, text)


def check_refused(
    source: Path, cache: Path, text: str, max_bytes: int = 1 << 30, max_files: int = 10_000
) -> None:
    with pytest.raises(ImageUnusable) as caught:
        open_root(source, max_bytes=max_bytes, max_files=max_files)
    assert str(source) in str(caught.value)
    assert text in str(caught.value)
    assert not [path for path in cache.glob("*") if path.suffix != ".lock"]


BOMB = layer(file("zeros", bytes(50 << 20)))


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_image_with_too_many_bytes_is_refused(
    tmp_path: Path, cache: Path, is_packed: bool
) -> None:
    source = write_layout(tmp_path / "image", BOMB, compress=gzip.compress)
    if is_packed:
        source = pack(write_layout(tmp_path / "plain", BOMB), tmp_path / "image.tar.gz", "w:gz")
    check_refused(source, cache, "more than max_bytes=40,000,000 bytes", max_bytes=40_000_000)


def test_an_image_with_too_many_files_is_refused(tmp_path: Path, cache: Path) -> None:
    source = write_layout(tmp_path / "image", layer(*(file("x") for _ in range(1001))))
    check_refused(source, cache, "more than max_files=1,000 files", max_files=1000)


def test_folders_that_only_paths_name_count_as_files(tmp_path: Path, cache: Path) -> None:
    members = [file(f"{number}/" + "x/" * 100 + "y") for number in range(12)]
    source = write_layout(tmp_path / "image", layer(*members))
    check_refused(source, cache, "more than max_files=1,000 files", max_files=1000)


FILES = 100
# What removes the same files of layers below again and again, by how many folders these are in.
REPEATED: dict[str, tuple[int, list[str]]] = {
    "opaque folder": (1, ["x/.wh..wh..opq"] * 20),
    "opaque folder through links": (1, [f"link{number}/.wh..wh..opq" for number in range(20)]),
    "opaque folders in each other": (
        20,
        ["x/" * depth + ".wh..wh..opq" for depth in range(20, 0, -1)],
    ),
    "whiteout": (1, [".wh.x"] * 20),
}


@pytest.mark.parametrize("case", REPEATED)
def test_each_file_of_a_layer_is_visited_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    depth, markers = REPEATED[case]
    below = [link(f"link{number}", "x") for number in range(20)]
    new = [file("x/" * depth + f"new{number}") for number in range(FILES)]
    source = write_layout(tmp_path / "image", layer(*below), layer(*new, *map(file, markers)))
    visited, list_names = list[str](), os.listdir

    def list_and_count(path: int) -> list[str]:
        visited.extend(names := list_names(path))
        return names

    monkeypatch.setattr(os, "listdir", list_and_count)
    root = Path(open_root(source).path, "x/" * depth)
    assert len(visited) < 2 * FILES
    assert len(list_names(root)) == FILES


def test_nobody_waits_for_what_a_layer_removes_or_for_modes(tmp_path: Path) -> None:
    stop = threading.Event()
    with contextlib.closing(Tree(SafeFolder.at(tmp_path), Budget(0, 10, stop))) as tree:
        tree.make_folder(("a", "b"), 0o755)
        stop.set()
        for work in (lambda: tree.hide(("a", "b")), lambda: tree.hide_contents(()), tree.set_modes):
            with pytest.raises(InterruptedError):
                work()


# damaged images: each changes one with a single layer

GOOD = layer(file("x", b"data" * 1000))


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def find(layout: Layout, text: bytes) -> Path:
    """Return the blob that contains a text."""
    blobs = (layout.folder / "blobs" / "sha256").iterdir()
    return next(path for path in blobs if text in gunzipped(path.read_bytes()))


def gunzipped(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def reindex(layout: Layout, **manifest: object) -> None:
    layout.write_index(layout.add_document(manifest))


BAD_INDEX = "index.json is not what it should be"
OTHER_DIGEST = "does not have the digest"


def change_blob(text: bytes, change: Callable[[bytes], bytes]) -> Callable[[Layout], object]:
    """Return what changes the blob of a layout that contains a text."""
    return lambda layout: rewrite(find(layout, text), change)


def change_layer(change: Callable[[bytes], bytes]) -> Callable[[Layout], object]:
    return change_blob(b"datadata", change)


def change_index(text: str) -> Callable[[Layout], object]:
    return lambda layout: (layout.folder / "index.json").write_text(text)


DAMAGES: dict[str, tuple[str, Callable[[Layout], object]]] = {
    "layer is missing": ("No such file", lambda layout: find(layout, b"datadata").unlink()),
    "layer is cut": ("damaged or incomplete", change_layer(lambda data: data[:-20])),
    "layer has other bytes": (
        "damaged or incomplete",
        change_layer(lambda data: data[:30] + bytes(8) + data[38:]),
    ),
    "layer is another one": (OTHER_DIGEST, change_layer(lambda _: gzip.compress(layer(file("y"))))),
    "layer is stored in another way": (
        OTHER_DIGEST,
        change_layer(lambda _: gzip.compress(GOOD, 1, mtime=1)),
    ),
    "layer is a link": (
        "symbolic links",
        lambda layout: replace_by_link(find(layout, b"datadata")),
    ),
    "layer is a pipe": (
        "No such device",
        lambda layout: replace_by_pipe(find(layout, b"datadata")),
    ),
    "manifest is another one": (OTHER_DIGEST, change_blob(b'"layers":', lambda data: data + b" ")),
    "settings are others": (OTHER_DIGEST, change_blob(b"architecture", lambda data: data + b" ")),
    "index is missing": ("neither", lambda layout: (layout.folder / "index.json").unlink()),
    "index is no JSON": (BAD_INDEX, change_index("{")),
    "index is a number": (BAD_INDEX, change_index("7")),
    "index is deep": (BAD_INDEX, change_index("[" * 100_000)),
    "no image": ("has no image", lambda layout: layout.write_index()),
    "digest is a path": (
        "not what it should be",
        lambda layout: layout.write_index({"digest": "sha256:../../index.json"}),
    ),
    "layers are missing": (
        "0 layers",
        lambda layout: reindex(
            layout, config=layout.add(configuration([GOOD])), layers=list[object]()
        ),
    ),
    "settings are missing": ("has no image", lambda layout: reindex(layout, layers=list[object]())),
}


def test_damaged_images_are_refused(tmp_path: Path, cache: Path) -> None:
    for name, (text, change) in DAMAGES.items():
        layout = Layout(tmp_path / name)
        layout.write_index(layout.add_image(GOOD, compress=gzip.compress))
        change(layout)
        check_refused(layout.folder, cache, text)


def test_an_index_that_never_ends_is_refused(tmp_path: Path, cache: Path) -> None:
    layout = Layout(tmp_path / "image")
    inner = layout.add_document({"manifests": []})
    for _ in range(200):
        inner = layout.add_document({"manifests": [inner]})
    check_refused(layout.write_index(inner), cache, "too many manifests")


def test_what_is_no_image_is_refused(tmp_path: Path, cache: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    cut = layer(file("manifest.json", bytes(2000)))[:1024]
    contents = {"empty": b"", "text": b"text" * 500, "cut": cut, "other": layer(file("x"))}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    texts = {"missing": "No such file", "text": "not a tar", "pipe": "No such", "cut": "incomplete"}
    for name in (*texts, "empty", "other"):
        text = texts.get(name, "neither an OCI image layout nor")
        check_refused(tmp_path / name, cache, text)


def test_links_in_an_archive_lead_to_its_own_files_only(tmp_path: Path, cache: Path) -> None:
    outside = tmp_path / "manifest.json"
    outside.write_text("[]")
    archive = tmp_path / "image.tar"
    archive.write_bytes(layer(link("manifest.json", str(outside))))
    check_refused(archive, cache, "its file manifest.json is missing")
    archive.write_bytes(layer(link("manifest.json", "x"), link("x", "manifest.json")))
    check_refused(archive, cache, "its file manifest.json is missing")
