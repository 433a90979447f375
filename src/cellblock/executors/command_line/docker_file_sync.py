"""Copies: the work folder of a container that cannot see ours, as that of an engine elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
from pathlib import PurePosixPath

from ...containers.container import Container
from ...containers.spec import WORK_DIR
from ...errors import BackendError
from ..workspace.workspace import Seen, Workspace

_TOP = PurePosixPath(WORK_DIR).name
# By the owner of the folder, who has no rights but that: the group is one of his.
_OPEN_TO_GROUP = (
    f'chgrp "$0" {WORK_DIR} 2>/dev/null && chmod 770 {WORK_DIR} 2>/dev/null || '
    f'exec python3 -c \'import os, sys; os.chown("{WORK_DIR}", -1, int(sys.argv[1])); os.chmod("{WORK_DIR}", 0o770)\' "$0"'
)


class Copies:
    """Keep the files of the work folder the same here and there: `send` before a block, `fetch` after it.

    Hidden files stay where they are, and so do links and empty folders.
    """

    def __init__(self, container: Container, workspace: Workspace, user: str) -> None:
        self._container, self._workspace = container, workspace
        uid, _, gid = user.partition(":")
        self._uid, self._gid = (int(part) if part.isdigit() else 0 for part in (uid, gid or uid))
        self._sent: dict[str, Seen] = {}
        self._digests: dict[str, bytes] = {}  # of what both have
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """Let the user of a new container write into its work folder, which a new volume does not. Raises `BackendError`."""
        self._sent, self._digests = {}, {}
        if self._uid == 0:
            return
        argv = ["/bin/sh", "-c", _OPEN_TO_GROUP, str(self._gid)]
        exit_code, said = await self._container.run(argv, user=f"0:{self._gid}")
        if exit_code != 0:
            raise BackendError(
                f"The work folder of container {self._container.name} cannot be opened to its user: {said}"
            )

    async def send(self) -> None:
        """Bring what is new here there. Raises `BackendError`."""
        async with self._turn:
            archive = await asyncio.to_thread(self._pack)
            if archive:
                await self._container.put(WORK_DIR, archive)

    def _pack(self) -> bytes:
        files = self._workspace.files()
        new = {path: seen for path, seen in files.items() if self._sent.get(path) != seen}
        self._sent = files
        if not new:
            return b""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for folder in sorted(
                {str(above) for path in new for above in PurePosixPath(path).parents} - {"."}
            ):
                archive.addfile(self._entry(folder, 0o755, tarfile.DIRTYPE))
            for path in sorted(new):
                content, mode = self._workspace.read(path)
                self._digests[path] = hashlib.sha256(content).digest()
                entry = self._entry(path, mode)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return data.getvalue()

    def _entry(self, path: str, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.uid, entry.gid = kind, mode, self._uid, self._gid
        return entry

    async def fetch(self) -> None:
        """Bring what is new there here, and remove what was removed there. Raises `BackendError`."""
        async with self._turn:
            archive = await self._container.get(WORK_DIR)
            await asyncio.to_thread(self._unpack, archive)

    def _unpack(self, archive: tarfile.TarFile) -> None:
        there = set[str]()
        for entry in archive:
            path = os.path.relpath(entry.name, _TOP)
            if not entry.isreg() or any(part.startswith(".") for part in PurePosixPath(path).parts):
                continue
            there.add(path)
            file = archive.extractfile(entry)
            assert file is not None
            content = file.read()
            digest = hashlib.sha256(content).digest()
            if self._digests.get(path) != digest:
                self._workspace.write_bytes(path, content)
                self._digests[path] = digest
        for path in set(self._digests) - there:
            del self._digests[path]
            self._workspace.remove(path)
        self._sent = self._workspace.files()
