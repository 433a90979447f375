"""Startup files: files that other programs run later, as the user who opens their folder."""

from __future__ import annotations

import re

_FILES = frozenset((
    ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".cshrc", ".dir-locals.el", ".envrc",
    ".exrc", ".gdbinit", ".gitconfig", ".gitmodules", ".kshrc", ".lldbinit", ".login", ".logout",
    ".mcp.json", ".mise.toml", ".npmrc", ".nvim.lua", ".nvimrc", ".profile", ".tcshrc", ".yarnrc",
    ".yarnrc.yml", ".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc",
))  # fmt: skip
# What agents obey as instructions. It is often code that is to write them: they are only reported.
_INSTRUCTIONS = frozenset(("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"))
READ_ONLY_SUFFIX = ".code-workspace"
_FOLDERS = frozenset((
    ".cargo", ".claude", ".codex", ".cursor", ".devcontainer", ".gemini", ".husky", ".idea", ".jj",
    ".vscode", ".zed",
))  # fmt: skip
_MERCURIAL, _MERCURIAL_FILES = ".hg", ("hgrc", "hgrc-not-shared", "sharedpath")
# In a Git repository: `commondir` names another folder with a configuration and hooks.
_GIT_FILES = ("commondir", "config", "config.worktree")
_GIT_FOLDERS = ("hooks", "modules", "worktrees")
_GIT_DATA = ("logs", "objects", "refs")
_BARE_REPOSITORY = "HEAD"  # next to a `config`, it makes any folder a repository
# What Git itself writes into a configuration. None of it makes Git run a program.
_PLAIN_CONFIG = re.compile(
    r"""\s*(?:[#;].*
    |\[core\]|\[init\]|\[user\]|\[(?:remote|branch|submodule)\ "[^"\\]*"\]
    |(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode
       |symlinks|name|email|defaultbranch|url|fetch|tagopt|remote|merge|rebase|active)
     \s*(?:=[^\\]*)?)?\s*""",
    re.VERBOSE | re.IGNORECASE,
)

# The names that startup files have, or that a folder above them has.
NAMES = _FILES | _FOLDERS | _INSTRUCTIONS | {".git", _MERCURIAL, _BARE_REPOSITORY}
# What to make read-only in a folder, and in its `.git` and `.hg`. Repositories of submodules and
# worktrees are protected as a whole, so that none of their folders can be replaced.
READ_ONLY_NAMES = tuple(sorted(_FILES | _FOLDERS))
READ_ONLY_INNER_NAMES = {".git": (*_GIT_FILES, *_GIT_FOLDERS), _MERCURIAL: _MERCURIAL_FILES}


def is_startup_name(name: str) -> bool:
    """Return True if startup files have this name, or are in a folder with it."""
    return name in NAMES or name.endswith(READ_ONLY_SUFFIX)


def is_startup_file(path: str) -> bool:
    """Return True if other programs run the file or link `path`, or obey it in what they run."""
    parts = path.split("/")
    if ".git" in parts:
        return _is_run_by_git(parts[parts.index(".git") + 1 :])
    if parts[-2:-1] == [_MERCURIAL]:
        return parts[-1] in _MERCURIAL_FILES
    return (
        parts[-1] in _FILES
        or parts[-1] in _INSTRUCTIONS
        or parts[-1] == _BARE_REPOSITORY
        or parts[-1].endswith(READ_ONLY_SUFFIX)
        or not _FOLDERS.isdisjoint(parts)
    )


def is_git_file(path: str) -> bool:
    """Return True if the startup file `path` takes effect as soon as Git runs in its folder."""
    return ".git" in (parts := path.split("/")) or parts[-1] == _BARE_REPOSITORY


def is_plain_git_file(path: str, content: str) -> bool:
    """Return True if the Git file `path` says nothing but what `git init` and `git clone` write."""
    return path.endswith("/config") and all(map(_PLAIN_CONFIG.fullmatch, content.splitlines()))


def can_contain_startup_files(folder: str) -> bool:
    """Return True if startup files can be in `folder`, which has one of `NAMES` in its path."""
    parts = folder.split("/")
    if ".git" not in parts:
        return parts[-1] == _MERCURIAL or not _FOLDERS.isdisjoint(parts)
    below = parts[parts.index(".git") + 1 :]
    return not below or (below[0] in _GIT_FOLDERS and below[-1] not in _GIT_DATA)


def _is_run_by_git(parts: list[str]) -> bool:
    """Return True if Git runs or obeys this path below `.git`; without parts, `.git` is a file."""
    if not parts:
        return True
    if parts[0] == "hooks":
        return not parts[-1].endswith(".sample")
    if len(parts) == 1:
        return parts[0] in READ_ONLY_INNER_NAMES[".git"]
    return parts[0] in _GIT_FOLDERS and (parts[-1] in _GIT_FILES or "hooks" in parts)
