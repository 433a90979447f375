"""Make images of containers: as an OCI image layout, or as old versions of `docker save` do."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
# How to extract what is trusted. Before Python 3.11.4, `tarfile` has no filters.
TRUSTING: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}

Member = tuple[tarfile.TarInfo, bytes]
Descriptor = dict[str, object]


def member(name: str, kind: bytes, link: str = "", mode: int = 0o644, data: bytes = b"") -> Member:
    """Return a file of a layer."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, len(data)
    info.mtime = 1_000_000_000
    return info, data


def file(name: str, data: bytes = b"", mode: int = 0o644) -> Member:
    return member(name, tarfile.REGTYPE, mode=mode, data=data)


def folder(name: str, mode: int = 0o755) -> Member:
    return member(name, tarfile.DIRTYPE, mode=mode)


def link(name: str, text: str) -> Member:
    return member(name, tarfile.SYMTYPE, text)


def hard_link(name: str, target: str) -> Member:
    return member(name, tarfile.LNKTYPE, target)


def layer(*members: Member) -> bytes:
    """Return a layer with these files."""
    with io.BytesIO() as data:
        with tarfile.open(fileobj=data, mode="w") as archive:
            for info, content in members:
                archive.addfile(info, io.BytesIO(content))
        return data.getvalue()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def configuration(
    layers: Sequence[bytes], machine: str = MACHINE, settings: Mapping[str, object] | None = None
) -> bytes:
    contents = {"type": "layers", "diff_ids": [digest_of(data) for data in layers]}
    whole = {"architecture": machine, "os": "linux", "config": settings, "rootfs": contents}
    return json.dumps(whole).encode()


class Layout:
    """An OCI image layout in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs" / "sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def add(self, data: bytes) -> Descriptor:
        """Add a blob. Return what names it."""
        digest = digest_of(data)
        self.blob(digest).write_bytes(data)
        return {"digest": digest, "size": len(data)}

    def blob(self, digest: object) -> Path:
        """Return the path of a blob."""
        return self.folder / "blobs" / "sha256" / str(digest).removeprefix("sha256:")

    def add_document(self, document: object) -> Descriptor:
        return self.add(json.dumps(document).encode())

    def add_image(
        self,
        *layers: bytes,
        compress: Callable[[bytes], bytes] = bytes,
        machine: str = MACHINE,
        settings: Mapping[str, object] | None = None,
    ) -> Descriptor:
        """Add an image. Return what names its manifest."""
        config = self.add(configuration(layers, machine, settings))
        stored = [self.add(compress(data)) for data in layers]
        return self.add_document({"schemaVersion": 2, "config": config, "layers": stored})

    def write_index(self, *manifests: Descriptor) -> Path:
        """Write the index, and return the folder."""
        index = {"schemaVersion": 2, "manifests": manifests}
        (self.folder / "index.json").write_text(json.dumps(index))
        return self.folder


def write_layout(
    folder: Path, *layers: bytes, compress: Callable[[bytes], bytes] = bytes, **settings: object
) -> Path:
    """Write a layout with one image. Return its folder."""
    layout = Layout(folder)
    return layout.write_index(layout.add_image(*layers, compress=compress, settings=settings))


def pack(folder: Path, path: Path, mode: Literal["w", "w:gz"] = "w") -> Path:
    """Pack a layout into an archive, as `docker save` does."""
    with tarfile.open(path, mode) as archive:
        archive.add(folder, ".")
    return path


def write_saved(path: Path, *layers: bytes, names: Sequence[str] = ("saved:1",)) -> Path:
    """Write an archive as `docker save` did before it used the OCI image layout.

    A layer that occurs twice is a link.
    """
    config = configuration(layers)
    files = [file(f"{digest_of(config)[7:]}.json", config)]
    paths = [f"{number:064x}/layer.tar" for number in range(len(layers))]
    for number, (own, data) in enumerate(zip(paths, layers, strict=True)):
        first = layers.index(data)
        files.append(link(own, f"../{paths[first]}") if first < number else file(own, data))
    saved = {"Config": files[0][0].name, "RepoTags": names, "Layers": paths}
    files.append(file("manifest.json", json.dumps([saved]).encode()))
    path.write_bytes(layer(*files))
    return path
