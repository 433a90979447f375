"""Tar archives of all forms are read as Python's `tarfile` reads them; others are refused."""

from __future__ import annotations

import io
import tarfile
import threading

from hypothesis import given
from hypothesis import strategies as st

from cellblock.errors import ImageUnusable
from cellblock.sandbox.images.byte_stream import Budget, ByteStream
from cellblock.sandbox.images.tar_archive import Kind, Member, members

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def read(data: bytes) -> list[tuple[Member, bytes]]:
    """Return the members of an archive, with their data."""
    stream = ByteStream(io.BytesIO(data), Budget(1 << 30, 1 << 20, threading.Event()))
    return [(member, stream.read_exactly(member.size)) for member in members(stream)]


def archive_of(form: int, infos: list[tarfile.TarInfo]) -> bytes:
    with io.BytesIO() as data:
        with tarfile.open(fileobj=data, mode="w", format=form) as archive:
            for info in infos:
                archive.addfile(info, io.BytesIO(bytes(info.size)))
        return data.getvalue()


def test_names_sizes_and_times_are_those_of_tarfile() -> None:
    for name in ("short", "x" * 100, "folder/" * 20 + "x", "ä" * 40, "y" * 300):
        for form in FORMATS:
            check_read_as_by_tarfile(form, name)


def check_read_as_by_tarfile(form: int, name: str) -> None:
    is_limited = form == tarfile.USTAR_FORMAT
    name = name[:45] if is_limited and "/" not in name else name  # a longer name needs folders
    infos = [tarfile.TarInfo(name), tarfile.TarInfo(f"{name}2"), tarfile.TarInfo("after")]
    infos[0].size, infos[0].mode, infos[0].mtime = 700, 0o4711, 1_234_567_890
    infos[1].type, infos[1].linkname = tarfile.SYMTYPE, name[:90] if is_limited else name
    found = [member for member, _ in read(archive_of(form, infos))]
    assert [(m.name, m.kind, m.size, m.mode, m.modified, m.link) for m in found] == [
        (i.name, Kind(i.type), i.size, i.mode, float(i.mtime), i.linkname) for i in infos
    ]


@given(NAMES, st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_any_name_is_read(name: str, form: int) -> None:
    info = tarfile.TarInfo(name)
    ((member, _),) = read(archive_of(form, [info]))
    assert member.name == name.rstrip("/") or name.endswith("/")


@given(st.binary(max_size=2000))
def test_other_bytes_are_refused(data: bytes) -> None:
    try:
        assert read(data) == []
    except ImageUnusable:
        pass


@given(st.data(), st.sampled_from(FORMATS))
def test_damaged_archives_are_read_or_refused(data: st.DataObject, form: int) -> None:
    infos = [tarfile.TarInfo("x" * 90 + "/y"), tarfile.TarInfo("z")]
    infos[0].size = 10
    infos[1].pax_headers = {"comment": "x", "mtime": "1.5"}
    archive = bytearray(archive_of(form, infos))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(archive) // 4))
        archive[position] = data.draw(st.integers(0, 255))
    for start in range(0, len(archive) - 512, 512):  # with checksums that are right
        header = archive[start : start + 512]
        if bytes(header[257:262]) == b"ustar":
            header[148:156] = b" " * 8
            archive[start + 148 : start + 156] = b"%06o\0 " % sum(header)
    try:
        read(bytes(archive))
    except ImageUnusable:
        pass
