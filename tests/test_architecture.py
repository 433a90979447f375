"""The rules of the house: who imports whom, how large things are, what the papers beside the code say."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import cellblock

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "cellblock"
OURS = [
    path
    for folder in ("src", "tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
MODULES = [path for path in OURS if path.is_relative_to(PACKAGE)]
PLACELESS = {"utils", "util", "helpers", "helper", "common", "misc"}

# Imports the modules named on standard input, one by one, and prints what each changed besides sys.modules.
WATCH = """
import gc, importlib, json, logging, multiprocessing, os, signal, sys, threading

def state():
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "logging": (logging.root.level, repr(logging.root.handlers), logging.root.manager.disable),
        "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
        "hooks": (repr(sys.excepthook), repr(sys.stdout), repr(sys.stderr), repr(sys.meta_path)),
        "garbage": (gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()),
        "processes": multiprocessing.get_start_method(allow_none=True),
    }

found = []
for module in json.load(sys.stdin):
    before = state()
    importlib.import_module(module)
    after = state()
    found += [f"{module} changes {what}" for what in before if before[what] != after[what]]
print(json.dumps(found))
"""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def written_files() -> Iterator[tuple[Path, str]]:
    """Give the repository's files of text: those that git knows, and those that could be added."""
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("git, or the repository, is not here: cannot tell which files are ours")
    for name in filter(None, done.stdout.split("\0")):
        path = ROOT / name
        try:
            yield path, path.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            continue  # removed but not yet committed; a picture


def layers() -> list[list[str]]:
    """Give the layers of `.importlinter`, the highest first."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    lines = config["importlinter:contract:house"]["layers"].split("\n")
    return [re.findall(r"\w+", line) for line in lines if line]


def tree() -> str:
    """Give the tree of the house that ARCHITECTURE.md draws."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn = re.search(r"```\nsrc/cellblock/\n(.*?)```", text, re.DOTALL)
    assert drawn is not None, "ARCHITECTURE.md has no tree that begins with src/cellblock/"
    return drawn[1]


def drawn(path: Path) -> bool:
    """Tell whether the tree names a module: by its path, or by a word on the line of one of its folders."""
    inside = path.relative_to(PACKAGE)
    if re.search(rf"(?<![\w/]){re.escape(inside.as_posix())}(?!\w)", tree()):
        return True
    for folder in inside.parents[:-1]:
        word = inside.relative_to(folder).with_suffix("").parts[0]
        if re.search(rf"^ +{re.escape(folder.as_posix())}/ .*\b{word}\b", tree(), re.MULTILINE):
            return True
    return False


def imported(path: Path, top: Path) -> Iterator[str]:
    """Give the names of what a module imports; what is outside the folder `top` begins with dots."""
    depth = len(path.relative_to(top).parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.ImportFrom) and node.level > depth:
            yield "." * node.level + (node.module or "")


# who imports whom


def test_imports_point_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [linter, "--no-cache", "--no-logo"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_stands_in_one_layer() -> None:
    there = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES} - {
        "__init__"
    }
    named = Counter(name for layer in layers() for name in layer)
    assert sorted(there - set(named)) == []
    assert [name for name, times in named.items() if times > 1] == []


# What a live session has of the Python that runs the blocks; imported there, when it is used.
GUESTS = {"shell.py": {"IPython", "traitlets"}, "values.py": {"pyarrow"}}


def test_the_cell_server_imports_the_standard_library_alone() -> None:
    foreign = [
        f"{relative(path)} imports {name}"
        for path in PACKAGE.glob("cell/**/*.py")
        for name in imported(path, PACKAGE / "cell")
        if name.split(".")[0] not in {*sys.stdlib_module_names, *GUESTS.get(path.name, ())}
    ]
    assert foreign == []


def test_importing_a_module_changes_nothing() -> None:
    names = json.dumps([module_name(path) for path in MODULES])
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", WATCH], input=names, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


# the public names


def test_the_public_names_are_sorted_and_there() -> None:
    assert cellblock.__all__ == sorted(set(cellblock.__all__))
    for name in cellblock.__all__:
        assert hasattr(cellblock, name), name


def test_type_checkers_see_the_public_names_and_no_others() -> None:
    source = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    shown = [
        name.asname or name.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for name in node.names
    ]
    assert sorted(shown) == cellblock.__all__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Sandbax"):
        cellblock.__getattr__("Sandbax")


# size and shape


def test_files_are_at_most_400_lines() -> None:
    sizes = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in OURS}
    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_functions_are_at_most_50_lines() -> None:
    long: dict[str, int] = {}
    for path in OURS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > 50:
                    long[f"{relative(path)}: {node.name}"] = size
    assert long == {}


def test_no_module_is_named_for_nothing() -> None:
    assert [
        relative(path)
        for path in OURS
        if PLACELESS & set(path.with_suffix("").parts[len(ROOT.parts) :])
    ] == []


# what stands beside the code


def test_version_and_changelog_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d\S*)", changelog, re.MULTILINE)
    assert newest is not None
    assert project["version"] == newest[1] == cellblock.__version__


def test_changelog_lines_have_at_most_25_words() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("- ") and len(line.split()) > 26] == []


def test_the_architecture_draws_every_module() -> None:
    modules = [path for path in MODULES if path.name != "__init__.py"]
    assert [relative(path) for path in modules if not drawn(path)] == []


def test_the_architecture_draws_nothing_that_is_gone() -> None:
    named = re.findall(r"(?<![\w/])\w+(?:/\w+)+\.py\b", tree())
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_the_architecture_draws_the_layers_in_their_order() -> None:
    depth = {name: number for number, layer in enumerate(reversed(layers())) for name in layer}
    tops = [top for top in re.findall(r"^  (\w+)[./]", tree(), re.MULTILINE) if top != "__init__"]
    assert [depth[top] for top in tops] == sorted(depth[top] for top in tops)


def test_scripts_can_be_started() -> None:
    scripts = [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run"]
    assert [relative(path) for path in scripts if not path.stat().st_mode & 0o111] == []


def test_every_example_is_tried_by_a_test() -> None:
    others = [path for path in (ROOT / "tests").glob("test_*.py") if path != Path(__file__)]
    tests = "\n".join(path.read_text(encoding="utf-8") for path in others)
    assert [
        relative(path) for path in (ROOT / "examples").iterdir() if path.name not in tests
    ] == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.~-])/(?:work|farm)/")
    assert [relative(path) for path, text in written_files() if machine.search(text)] == []


def test_what_is_left_to_do_has_an_issue() -> None:
    unfinished = re.compile(r"\b(?:TO[D]O|FIXM[E]|XX[X])\b(?! ?\(?#\d)")
    assert [relative(path) for path, text in written_files() if unfinished.search(text)] == []
