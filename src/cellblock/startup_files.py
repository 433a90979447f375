"""Startup files: files that other programs run later, as the user who opens their folder."""

from __future__ import annotations

_FILES = frozenset((
    ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".cshrc", ".envrc", ".gitconfig",
    ".gitmodules", ".kshrc", ".login", ".logout", ".profile", ".tcshrc", ".zlogin", ".zlogout",
    ".zprofile", ".zshenv", ".zshrc",
))  # fmt: skip
_FOLDERS = frozenset((".idea", ".vscode"))
# In a Git repository: `commondir` names another folder with a configuration and hooks.
_GIT_FILES = ("commondir", "config", "config.worktree")
_GIT_FOLDERS = ("hooks", "modules", "worktrees")
_GIT_DATA = ("logs", "objects", "refs")
_BARE_REPOSITORY = "HEAD"  # next to a `config`, it makes any folder a repository

# The names that startup files have, or that a folder above them has.
NAMES = _FILES | _FOLDERS | {".git", _BARE_REPOSITORY}
# What to make read-only in a folder, and in its `.git`. Repositories of submodules and worktrees
# are protected as a whole, so that none of their folders can be replaced.
READ_ONLY_NAMES = tuple(sorted(_FILES | _FOLDERS))
GIT_READ_ONLY_NAMES = (*_GIT_FILES, *_GIT_FOLDERS)


def is_startup_file(path: str) -> bool:
    """Return True if other programs run the file or link `path`, or obey it in what they run."""
    parts = path.split("/")
    if ".git" in parts:
        return _is_run_by_git(parts[parts.index(".git") + 1 :])
    return parts[-1] in _FILES or parts[-1] == _BARE_REPOSITORY or not _FOLDERS.isdisjoint(parts)


def can_contain_startup_files(folder: str) -> bool:
    """Return True if startup files can be in `folder`, which has one of `NAMES` in its path."""
    parts = folder.split("/")
    if ".git" not in parts:
        return not _FOLDERS.isdisjoint(parts)
    below = parts[parts.index(".git") + 1 :]
    return not below or (below[0] in _GIT_FOLDERS and below[-1] not in _GIT_DATA)


def _is_run_by_git(parts: list[str]) -> bool:
    """Return True if Git runs or obeys this path below `.git`; without parts, `.git` is a file."""
    if not parts:
        return True
    if parts[0] == "hooks":
        return not parts[-1].endswith(".sample")
    if len(parts) == 1:
        return parts[0] in GIT_READ_ONLY_NAMES
    return parts[0] in _GIT_FOLDERS and (parts[-1] in _GIT_FILES or "hooks" in parts)
