"""Guess from the text of code what it does. A hint: code can always hide what it does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..blocks import CodeBlock
from ..source_text import ignored_warnings
from .runnable_blocks import language_family

Activity = Literal[
    "network", "install", "outside_path", "process", "dynamic_code", "delete", "overwrite"
]
ALLOWED_PATHS = ("/workspace", "/tmp")  # what code in a sandbox or a container may name


@dataclass(frozen=True)
class Finding:
    """Line `line` of a block (from 1) seems to do `activity`. `what` is the part that says so.

    path    the file or folder that is deleted or overwritten; "" if it is not known
    """

    activity: Activity
    line: int
    what: str
    path: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.activity.replace('_', ' ')} ({self.what})"


_PYTHON_MODULES: dict[Activity, str] = {
    "network": (
        "aiohttp boto3 botocore ftplib grpc http.client http.server httpx imaplib nntplib paramiko "
        "poplib pycurl requests smtplib socket socketserver ssl telnetlib urllib.request urllib3 "
        "websocket websockets xmlrpc"
    ),
    "install": "ensurepip micropip pip",
    "process": "multiprocessing pexpect pty subprocess concurrent.futures.ProcessPoolExecutor",
    "dynamic_code": "cffi codeop ctypes importlib runpy",
}
_PYTHON_CALLS: dict[Activity, str] = {
    "network": "asyncio.open_connection asyncio.start_server",
    "process": (
        "asyncio.create_subprocess_exec asyncio.create_subprocess_shell os.fork os.forkpty "
        "os.popen os.posix_spawn os.posix_spawnp os.startfile os.system os.execl os.execle "
        "os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe os.spawnl os.spawnle "
        "os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe"
    ),
    "dynamic_code": "__import__ compile eval exec",
    "delete": "os.remove os.unlink os.rmdir os.removedirs shutil.rmtree send2trash.send2trash",
    "overwrite": (
        "os.truncate os.rename os.replace shutil.copy shutil.copy2 shutil.copyfile shutil.move"
    ),
}
# Methods of paths, and of anything that is saved in a file.
_DELETING_METHODS = frozenset({"unlink", "rmdir", "rmtree"})
_WRITING_METHOD = re.compile(r"to_\w+|save\w*|write_\w+|imwrite|imsave")
_MODULES: dict[str, Activity] = {
    name: kind for kind, names in _PYTHON_MODULES.items() for name in names.split()
}
_CALLS: dict[str, Activity] = {
    name: kind for kind, names in _PYTHON_CALLS.items() for name in names.split()
}

_URL = re.compile(r"\b(?:https?|ftps?|wss?)://[^\s\"']+")
_GIT = r"git\s+(?:-(?:[cC]\s+\S+|\S+)\s+)*"  # with options such as `-C folder`
_SHELL_WORDS: tuple[tuple[Activity, re.Pattern[str]], ...] = (
    (
        "install",
        re.compile(
            r"\b(?:pip[\d.]*|pipx|uv|conda|mamba|apt|apt-get|apk|yum|dnf|pacman|brew|npm|pnpm|yarn|"
            r"gem|cargo|go|poetry)\s+(?:-\S+\s+)*(?:pip\s+)?(?:install|add|i|-S)(?=\s|$)"
        ),
    ),
    (
        "network",
        re.compile(
            r"(?<![\w./-])(?:curl|wget|ssh|scp|sftp|rsync|nc|ncat|netcat|telnet|ftp|ping|dig|"
            rf"nslookup|{_GIT}(?:clone|fetch|pull|push)|fetch(?=\()|/dev/tcp)(?![\w.-])"
        ),
    ),
    ("dynamic_code", re.compile(r"(?<![\w.-])(?:eval\b|\|\s*(?:ba|z)?sh\b)")),
    ("process", re.compile(r"(?<![\w.-])(?:nohup|setsid|disown|child_process)\b")),
)
_COMMAND = r"(?<![\w./-])(?:/(?:usr/)?bin/)?(?:{})"
_REST = r"(?P<arguments>\s[^;|&\n)`]*)"
_DELETING = re.compile(
    _COMMAND.format("rm|rmdir|unlink|shred|Remove-Item")
    + _REST
    + "|"
    + rf"(?<![\w./-])(?:{_GIT}(?:clean|rm|restore|reset\s+--hard|checkout\s+(?:--|\.))"
    r"|find\s[^;|&\n]*\s-delete|(?:fs|fsp|promises)\.(?:unlink|rm|rmdir)(?:Sync)?\s*\()"
    r"[^;|&\n]*"
)
_WRITING = re.compile(_COMMAND.format("cp|mv|tee|truncate") + _REST)
_REDIRECTION = re.compile(r"(?<![-=<>])>\|?(?![>&=(])\s*(?P<path>[^\s;|&<>()]+)")
_NOT_LITERAL = re.compile(r"[*?\[\]{}$`~\\]")
_MAX_WHAT = 60
_PATH = re.compile(
    r"(?:~(?:[a-z][\w-]*)?(?:/|$)|/[\w.-]|(?:[\w.-]*/)*\.\.(?:/|$))[^\s'\"`;|&<>()]*"
)
_PATH_START = re.compile(r"(?:^|[\s'\"`=<>(:])(?=[~/.\w])")
# In a program's text "/h" is hardly a path, unless it has one of these names.
_ROOT_FOLDERS = frozenset(
    "bin boot data dev etc home lib lib64 media mnt opt proc root run sbin srv sys usr var".split()
)
# Every program may use these.
_HARMLESS_PATHS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd")


def look_at(block: CodeBlock, allowed_paths: Sequence[str] = ALLOWED_PATHS) -> list[Finding]:
    """Return what `block` seems to do, by line.

    Python is parsed; if that fails, and in any other language, words are matched. Paths under
    `allowed_paths` are not reported.
    """
    if language_family(block.language) == "python" and (tree := _parse(block.code)) is not None:
        findings = _look_at_python(tree, allowed_paths)
    else:
        findings = _look_at_words(block.code, allowed_paths)
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.line)


def _parse(code: str) -> ast.Module | None:
    with ignored_warnings():
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None


def _look_at_python(tree: ast.Module, allowed_paths: Sequence[str]) -> Iterator[Finding]:
    names = dict(_imported_names(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                for target in _import_targets(node):
                    if kind := _longest_match(target, _MODULES):
                        yield Finding(kind, node.lineno, f"imports {target}")
            case ast.Call():
                yield from _look_at_call(node, names)
            case ast.Constant(value=str(text)) if len(text.splitlines()) == 1:
                yield from _look_at_text(text, node.lineno, allowed_paths)
            case _:
                pass


def _look_at_call(node: ast.Call, names: dict[str, str]) -> Iterator[Finding]:
    target = _dotted_name(node.func, names)
    kind = _CALLS.get(target)
    if kind == "delete":
        yield Finding(kind, node.lineno, f"calls {target}", _literal(node.args[:1]))
    elif kind and kind != "overwrite":
        yield Finding(kind, node.lineno, f"calls {target}")
    yield from _look_at_file_call(node, target)
    if "process" in (kind, _longest_match(target, _MODULES)):
        command = " ".join(
            part.value
            for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
        for found in _look_at_words(command, ("/",)):
            yield Finding(found.activity, node.lineno, found.what)


def _look_at_file_call(node: ast.Call, target: str) -> Iterator[Finding]:
    """Look for methods that delete a file, and for files that are written under a known name."""
    owner, method = None, ""
    if isinstance(node.func, ast.Attribute):
        method = node.func.attr
        if isinstance(node.func.value, ast.Call):
            owner = _literal(node.func.value.args[:1])  # of Path("name")
    if not target and method in _DELETING_METHODS:
        yield Finding("delete", node.lineno, f"calls .{method}()", owner or "")
    elif path := _written_path(node, target, method, owner or ""):
        yield Finding("overwrite", node.lineno, path, path)


def _written_path(node: ast.Call, target: str, method: str, owner: str) -> str:
    """Return the literal name of the file that a call replaces; "" if it does not seem to."""
    if target == "os.truncate":
        return _literal(node.args[:1])
    if _CALLS.get(target) == "overwrite":
        return _literal(node.args[1:2])
    if "open" in (target, method):
        arguments = node.args[1:] if target == "open" else node.args
        mode = [*arguments[:1], *(key.value for key in node.keywords if key.arg == "mode")]
        is_written = "w" in _literal(mode)
        return (_literal(node.args[:1]) if target == "open" else owner) if is_written else ""
    if method in ("write_text", "write_bytes"):
        return owner
    return _literal(node.args[:2]) if _WRITING_METHOD.fullmatch(method) else ""


def _literal(nodes: Sequence[ast.expr]) -> str:
    """Return the first of `nodes` that is a text; "" if there is none."""
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    return next((text for text in texts if isinstance(text, str)), "")


def _look_at_text(text: str, line: int, allowed_paths: Sequence[str]) -> Iterator[Finding]:
    """Look at a string of a Python program: an address, or a path from its first character on."""
    if address := _URL.match(text):
        yield Finding("network", line, address[0])
    elif (
        (path := _PATH.match(text))
        and not _is_allowed(path[0], allowed_paths)
        and (not _is_single_name(path[0]) or path[0].strip("/") in _ROOT_FOLDERS)
    ):
        yield Finding("outside_path", line, path[0])


def _look_at_words(code: str, allowed_paths: Sequence[str]) -> Iterator[Finding]:
    for number, line in enumerate(code.splitlines(), start=1):
        if line.lstrip().startswith(("#", "//")):
            continue
        for address in _URL.finditer(line):
            yield Finding("network", number, address[0])
        text = _URL.sub(" ", line)
        for kind, pattern in _SHELL_WORDS:
            for word in pattern.finditer(text):
                yield Finding(kind, number, " ".join(word[0].split()))
        yield from _look_at_file_commands(text, number)
        for start in _PATH_START.finditer(text):
            path = _PATH.match(text, start.end())
            if path and not _is_allowed(path[0], allowed_paths):
                yield Finding("outside_path", number, path[0])


def _look_at_file_commands(text: str, number: int) -> Iterator[Finding]:
    for command in _DELETING.finditer(text):
        what = " ".join(command[0].split())[:_MAX_WHAT]
        for path in _named_files(command["arguments"] or "") or [""]:
            yield Finding("delete", number, what, path)
    for command in _WRITING.finditer(text):
        what, paths = " ".join(command[0].split())[:_MAX_WHAT], _named_files(command["arguments"])
        for path in paths[-1:]:
            yield Finding("overwrite", number, what, path)
    for redirection in _REDIRECTION.finditer(text):
        paths = _named_files(redirection["path"])
        if paths and not _is_allowed(paths[0], ()):
            yield Finding("overwrite", number, f"> {paths[0]}", paths[0])


def _named_files(arguments: str) -> list[str]:
    """Return the files in the arguments of a command; an empty list if one is not literal."""
    words = [word.strip("'\"") for word in arguments.split()]
    files = [word for word in words if word and not word.startswith(("-", ">", "<", "2>"))]
    return [] if any(_NOT_LITERAL.search(word) for word in files) else files


def _is_allowed(path: str, allowed_paths: Iterable[str]) -> bool:
    if ".." in path.split("/"):
        return False
    allowed = [*_HARMLESS_PATHS, *allowed_paths]
    return any(path == prefix or path.startswith(f"{prefix.rstrip('/')}/") for prefix in allowed)


def _is_single_name(path: str) -> bool:
    return path.startswith("/") and "/" not in path.strip("/")


def _import_targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level or node.module is None:
        return []
    return [f"{node.module}.{alias.name}" for alias in node.names]


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias, target in zip(node.names, _import_targets(node), strict=False):
                if alias.asname or isinstance(node, ast.ImportFrom):
                    yield alias.asname or alias.name, target
                else:
                    root = alias.name.partition(".")[0]
                    yield root, root


def _dotted_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return the name of a built-in or of something imported, such as "os.system"; else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or (parts and node.id not in names):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _longest_match(name: str, table: dict[str, Activity]) -> Activity | None:
    """Return the value of `name`, or of a module that it is in."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if kind := table.get(".".join(parts[:length])):
            return kind
    return None
