"""The checks of boxes by topic. Importing this package adds all of them to the list."""

from . import arguments, commands, endings, files, lifecycle, limits, live_python, processes, shells

__all__ = [
    "arguments",
    "commands",
    "endings",
    "files",
    "lifecycle",
    "limits",
    "live_python",
    "processes",
    "shells",
]
