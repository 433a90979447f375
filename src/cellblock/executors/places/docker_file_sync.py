"""FileSync: copy the work folder to and from a container that cannot mount it.

This is the case if the container engine runs on another machine.
"""

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
from ..workspace.fingerprint import FileFingerprint
from ..workspace.workspace import Workspace

_WORK_DIR_NAME = PurePosixPath(WORK_DIR).name
# Run by the owner of the folder, who has no other rights but is a member of the group.
_OPEN_TO_GROUP_SCRIPT = (
    f'chgrp "$0" {WORK_DIR} 2>/dev/null && chmod 770 {WORK_DIR} 2>/dev/null || '
    "exec python3 -c 'import os, sys; "
    f'os.chown("{WORK_DIR}", -1, int(sys.argv[1])); os.chmod("{WORK_DIR}", 0o770)\' "$0"'
)


class FileSync:
    """Keep the local work folder and the container's in sync.

    Call `upload` before a block and `download` after it. Hidden files, links and empty folders are
    not copied.
    """

    def __init__(self, container: Container, workspace: Workspace, user: str) -> None:
        self._container, self._workspace = container, workspace
        uid, _, gid = user.partition(":")
        self._uid, self._gid = (int(part) if part.isdigit() else 0 for part in (uid, gid or uid))
        self._uploaded: dict[str, FileFingerprint] = {}
        self._digests: dict[str, bytes] = {}  # of files that both sides have
        self._lock = asyncio.Lock()

    async def open_work_dir(self) -> None:
        """Let the user of a new container write to its work folder, which belongs to root at first.

        Raise `BackendError`.
        """
        self._uploaded, self._digests = {}, {}
        if self._uid == 0:
            return
        argv = ["/bin/sh", "-c", _OPEN_TO_GROUP_SCRIPT, str(self._gid)]
        exit_code, output = await self._container.run_command(argv, user=f"0:{self._gid}")
        if exit_code != 0:
            raise BackendError(
                f"The user of container {self._container.name} cannot be given access to its "
                f"work folder: {output}"
            )

    async def upload(self) -> None:
        """Copy new and changed files to the container. Raise `BackendError`."""
        async with self._lock:
            files = await asyncio.to_thread(self._workspace.list_files)
            new = {path for path, state in files.items() if self._uploaded.get(path) != state}
            if new:
                archive, digests = await asyncio.to_thread(self._pack, new)
                await self._container.put_archive(WORK_DIR, archive)
                self._digests.update(digests)
            self._uploaded = files

    def _pack(self, new: set[str]) -> tuple[bytes, dict[str, bytes]]:
        """Return an archive of the files `new`, and their digests."""
        digests = dict[str, bytes]()
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for folder in sorted(
                {str(parent) for path in new for parent in PurePosixPath(path).parents} - {"."}
            ):
                archive.addfile(self._entry(folder, 0o755, tarfile.DIRTYPE))
            for path in sorted(new):
                content, mode = self._workspace.read(path)
                digests[path] = hashlib.sha256(content).digest()
                entry = self._entry(path, mode)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return data.getvalue(), digests

    def _entry(self, path: str, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.uid, entry.gid = kind, mode, self._uid, self._gid
        return entry

    async def download(self) -> None:
        """Copy new and changed files from the container, and remove files that were removed there.

        Raise `BackendError`.
        """
        async with self._lock:
            archive = await self._container.get_archive(WORK_DIR)
            await asyncio.to_thread(self._unpack, archive)

    def _unpack(self, archive: tarfile.TarFile) -> None:
        remote_paths, written = set[str](), set[str]()
        for entry in archive:
            path = os.path.relpath(entry.name, _WORK_DIR_NAME)
            if not entry.isreg() or any(part.startswith(".") for part in PurePosixPath(path).parts):
                continue
            remote_paths.add(path)
            file = archive.extractfile(entry)
            assert file is not None
            content = file.read()
            digest = hashlib.sha256(content).digest()
            if self._digests.get(path) != digest:
                self._workspace.write_bytes(path, content)
                self._digests[path] = digest
                written.add(path)
        for path in set(self._digests) - remote_paths:
            del self._digests[path]
            self._workspace.remove(path)
        # What was written here meanwhile is not in the container yet.
        states = self._workspace.list_files()
        self._uploaded.update({path: states[path] for path in written if path in states})
