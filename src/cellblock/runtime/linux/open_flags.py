"""Flags of open(2) for folders in which untrusted code can replace any name by a link or a device.

Windows has neither these flags nor `dir_fd`, so that no work folder can be opened there.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    FOLDER = FOLLOWED_FOLDER = os.O_RDONLY
    READ_FILE = os.O_RDONLY | os.O_BINARY
    NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_BINARY
else:
    FOLLOWED_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    FOLDER = FOLLOWED_FOLDER | os.O_NOFOLLOW
    READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
