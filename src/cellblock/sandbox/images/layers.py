"""Unpack the layers of an image: tar archives, in which some names say what to remove."""

from __future__ import annotations

import errno
import logging

from ...errors import ImageUnusable
from ...runtime.linux.safe_folder import write_all
from .byte_stream import CHUNK_BYTES, Budget, ByteStream
from .tar_archive import Kind, Member, members
from .tree import Names, Tree, split

_WHITEOUT, _OPAQUE, _AUFS = ".wh.", ".wh..wh..opq", ".wh..wh."
# What the names of a layer can cause. Other errors are those of the cache's file system.
_FAULTS = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR)

_log = logging.getLogger(__name__)


def unpack_layer(stream: ByteStream, tree: Tree, budget: Budget) -> None:
    """Unpack a layer on those below. Raise `ImageUnusable`, or the `OSError` of a full disk.

    Devices and pipes are left out: a box has its own, and only root can make them.
    """
    tree.begin_layer()
    for member in members(stream):
        budget.count_file()
        try:
            _unpack(member, stream, tree)
        except ImageUnusable as error:
            raise ImageUnusable(f"{member.name!r}: {error}") from error
        except OSError as error:
            if error.errno not in _FAULTS:
                raise
            raise ImageUnusable(f"{member.name!r}: {error.strerror}") from error


def _unpack(member: Member, stream: ByteStream, tree: Tree) -> None:
    names = _names(member.name)
    *above, last = names or ("",)
    if last == _OPAQUE:
        tree.hide_contents((*above,))
    elif last.startswith(_WHITEOUT):
        hidden = _names(last.removeprefix(_WHITEOUT))
        if not hidden:
            raise ImageUnusable("it removes no file")
        if not last.startswith(_AUFS):  # what Docker's old storage noted for itself
            tree.hide((*above, *hidden))
    elif member.kind is Kind.FOLDER:
        tree.make_folder(names, member.mode)
    elif member.kind is Kind.FILE:
        with tree.make_file(names, member.mode, member.modified) as descriptor:
            left = member.size
            while left:
                data = stream.read_exactly(min(left, CHUNK_BYTES))
                write_all(descriptor, data)
                left -= len(data)
    elif member.kind is Kind.SYMBOLIC_LINK:
        tree.make_link(names, member.link)
    elif member.kind is Kind.HARD_LINK:
        tree.make_hard_link(names, _names(member.link))
    else:
        _log.info("%s is a device or a pipe, and left out", member.name)


def _names(path: str) -> Names:
    names = split(path)
    if ".." in names:
        raise ImageUnusable("its path leads out of the image, with ..")
    return names
