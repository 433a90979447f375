"""Where the sockets of kept boxes are in tests that look at them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.box.kept import address


@pytest.fixture
def private_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder for the sockets of this process in place of the usual one, not made yet.

    The path of a socket has at most 107 bytes, so it is not below `tmp_path`.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        monkeypatch.setattr(address, "_PARENT", parent)
        yield Path(parent, f"cellblock-{os.geteuid()}")
