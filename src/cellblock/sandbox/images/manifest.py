"""The documents of an image: which layers it has, in which order, and for which machine."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, RootModel, StringConstraints, ValidationError

from ...errors import ImageUnusable
from .byte_stream import HashingReader
from .image_files import ImageSource

_MAX_DOCUMENT_BYTES = 8 << 20
_MAX_DOCUMENTS = 100  # that are read to find an image
# What images call the machines of `uname -m`. Others have the same name.
_ARCHITECTURES = {"x86_64": "amd64", "i686": "386", "aarch64": "arm64", "armv7l": "arm"}
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")  # annotations

_Digest = Annotated[str, StringConstraints(pattern="^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$")]
D = TypeVar("D", bound=BaseModel)


class _Platform(BaseModel):
    os: str
    architecture: str


class _Descriptor(BaseModel):
    digest: _Digest
    platform: _Platform | None = None
    annotations: dict[str, str] | None = None

    @property
    def file(self) -> str:
        return f"blobs/{self.digest.replace(':', '/')}"


class _Manifest(BaseModel):
    """Names images, one for each machine, or the parts of one."""

    manifests: list[_Descriptor] | None = None
    config: _Descriptor | None = None
    layers: list[_Descriptor] | None = None


class _SavedImage(BaseModel):
    """An image in the `manifest.json` of `docker save`."""

    config: str = Field(alias="Config")
    names: list[str] | None = Field(None, alias="RepoTags")
    layers: list[str] = Field(alias="Layers")


class ProcessSettings(BaseModel):
    """How programs in the image expect to be started. `environment` has "NAME=VALUE"."""

    environment: list[str] | None = Field(None, alias="Env")
    work_dir: str | None = Field(None, alias="WorkingDir")


class _Contents(BaseModel):
    digests: list[_Digest] = Field(alias="diff_ids")


class _Config(_Platform):
    settings: ProcessSettings | None = Field(None, alias="config")
    contents: _Contents = Field(alias="rootfs")


@dataclass(frozen=True)
class Layer:
    """A layer: its file, the digest of that if it is known, and that of its content."""

    file: str
    digest: str | None
    content_digest: str


@dataclass(frozen=True)
class RootImage:
    """An image for this machine. `digest` names its content and its settings."""

    digest: str
    settings: ProcessSettings
    layers: tuple[Layer, ...]


def find_image(files: ImageSource, name: str | None) -> RootImage:
    """Return the image for this machine, the one called `name` if that is given.

    Raise `ImageUnusable`.
    """
    finder = _ImageFinder(files)
    if files.has("oci-layout") and files.has("index.json"):
        found = finder.find_in_layout()
    elif files.has("manifest.json"):
        found = finder.find_saved()
    else:
        raise ImageUnusable("it is neither an OCI image layout nor an archive of docker save")
    images, names = dict[str, RootImage](), list[str]()
    for own_names, image in found:
        names += own_names
        if name is None or any(own == name or own.endswith(f"/{name}") for own in own_names):
            images[image.digest] = image
    if len(images) == 1:
        return images.popitem()[1]
    if names and (images or name):
        raise ImageUnusable(f"choose one of its images with image=...: {', '.join(names)}")
    if images:
        raise ImageUnusable("it has several images without names")
    others = ", ".join(sorted(finder.others))
    if not others:
        raise ImageUnusable("it has no image")
    raise ImageUnusable(f"it is for {others}, but this machine is {_this_machine()}")


class _ImageFinder:
    """Finds the images for this machine. `others` are the machines of others."""

    def __init__(self, files: ImageSource) -> None:
        self._files, self._documents, self.others = files, 0, set[str]()

    def find_in_layout(self) -> Iterator[tuple[list[str], RootImage]]:
        """Yield the images of an OCI image layout, with their names."""
        index = _parse("index.json", self._read("index.json"), _Manifest)
        for descriptor in index.manifests or ():
            annotations = descriptor.annotations or {}
            names = [annotations[key] for key in _NAMES if key in annotations]
            for image in self._find(descriptor):
                yield names, image

    def find_saved(self) -> Iterator[tuple[list[str], RootImage]]:
        """Yield the images of `docker save`, with their names."""
        saved_images = _parse(
            "manifest.json", self._read("manifest.json"), RootModel[list[_SavedImage]]
        )
        for saved in saved_images.root:
            match = re.search("[0-9a-f]{64}", saved.config)
            digest = f"sha256:{match[0]}" if match else None
            layers = [(path, None) for path in saved.layers]
            for image in self._make(saved.config, digest, layers):
                yield saved.names or [], image

    def _find(self, descriptor: _Descriptor) -> Iterator[RootImage]:
        if descriptor.platform is not None and not self._fits(descriptor.platform):
            return
        file = descriptor.file
        manifest = _parse(file, self._read(file, descriptor.digest), _Manifest)
        if manifest.config is not None and manifest.layers is not None:
            layers = [(layer.file, layer.digest) for layer in manifest.layers]
            yield from self._make(manifest.config.file, manifest.config.digest, layers)
        for inner in manifest.manifests or ():
            if (image := next(self._find(inner), None)) is not None:
                yield image  # the first that fits is the best
                return

    def _make(
        self, file: str, digest: str | None, layers: Sequence[tuple[str, str | None]]
    ) -> Iterator[RootImage]:
        data = self._read(file, digest)
        config = _parse(file, data, _Config)
        if not self._fits(config):
            return
        contents = config.contents.digests
        if len(contents) != len(layers):
            raise ImageUnusable(f"it has {len(layers)} layers, but {file} has {len(contents)}")
        yield RootImage(
            digest or f"sha256:{hashlib.sha256(data).hexdigest()}",
            config.settings or ProcessSettings(Env=None, WorkingDir=None),
            tuple(
                Layer(path, layer, content)
                for (path, layer), content in zip(layers, contents, strict=True)
            ),
        )

    def _read(self, file: str, digest: str | None = None) -> bytes:
        self._documents += 1
        if self._documents > _MAX_DOCUMENTS:
            raise ImageUnusable("it has too many manifests")
        with self._files.open(file) as blob:
            reader = HashingReader(blob, digest or "sha256:")
            data = reader.read(_MAX_DOCUMENT_BYTES)
            if digest is not None:
                reader.check()
        return data

    def _fits(self, platform: _Platform) -> bool:
        text = f"{platform.os}/{platform.architecture}"
        if text == _this_machine():
            return True
        if text != "unknown/unknown":  # not an image, but what is said about one
            self.others.add(text)
        return False


def _parse(file: str, data: bytes, document: type[D]) -> D:
    try:
        return document.model_validate_json(data)
    except ValidationError as error:
        raise ImageUnusable(f"its file {file} is not what it should be: {error}") from error


def _this_machine() -> str:
    machine = os.uname().machine
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"
