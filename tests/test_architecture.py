"""Check the repository's own rules: imports, sizes, public names, documents."""

from __future__ import annotations

import ast
import configparser
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import cellblock

VENDORED = "src/cellblock/server/console/static/codemirror/"  # by scripts/vendor-codemirror
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cellblock"
RUNTIME = PACKAGE / "runtime"
SOURCES = [
    path
    for folder in ("src", "tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
MODULES = [path for path in SOURCES if path.is_relative_to(PACKAGE)]
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
# `dict[str, Any]` in each folder of the package. Lower a number when it falls; never raise one.
UNTYPED_DICTIONARIES = {
    ".": 9,
    "agents": 6,
    "chat": 44,
    "cli": 27,
    "compat": 1,
    "containers": 35,
    "environments": 1,
    "executors": 9,
    "integrations": 1,
    "kernel": 42,
    "models": 45,
    "runtime": 18,
    "safe_output": 13,
    "sandbox": 1,
    "server": 39,
    "teams": 10,
    "testing": 2,
    "tools": 12,
}
# What a live session needs of the Python that runs the blocks; imported there, on first use.
RUNTIME_EXTRAS = {"shell.py": {"IPython", "jedi", "traitlets"}, "values.py": {"pyarrow"}}

# The tests of modules that none imports, and that no file or folder of tests/ mirrors: they are
# reached through the public names, commands and servers that use them.
TESTS_OF = {
    "tests/batch": "batch/harness",
    "tests/box/test_conformance.py": "testing/boxes",
    "tests/chat": (
        "chat/code chat/coding/jupyter chat/conversations chat/groups chat/models chat/replies "
        "chat/tools chat/transforms"
    ),
    "tests/cli": "__main__.py cli/options cli/terminal",
    "tests/cli/chat": "cli/chat/model cli/chat/pictures cli/chat/transcripts",
    "tests/executors/jupyter": "containers/gateway executors/jupyter/servers",
    "tests/executors/test_conformance.py": "executors/places testing testing/checks",
    "tests/kernel": "safe_output",
    "tests/sandbox": "sandbox/setup",
    "tests/server": "server/doors/azure server/http server/http/serving server/sessions",
    "tests/server/mcp": "server/doors/mcp",
    "tests/server/rest": "server/doors/rest",
    "tests/server/test_cluster.py": "server/cluster",
    "tests/server/test_nemo_skills.py": "server/doors/nemo_skills",
    "tests/server/test_sandbox_fusion.py": "server/doors/sandbox_fusion",
    "tests/server/state": "server/state/migrations",
    "tests/test_blocks.py": "fences.py",
    "tests/test_components.py": "providers.py",
    "tests/tracing": "tracing.py",
}

# Imports the modules named on standard input, one by one, and prints what each import changed.
WATCH_IMPORTS = """
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


@functools.cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def parsed(path: Path) -> ast.Module:
    return ast.parse(read(path))


@dataclass
class SourceFacts:
    """What the tests need to know of one file: parsing all of them takes seconds."""

    imports: set[str]
    functions: list[tuple[str, int]]  # their names and numbers of lines


@pytest.fixture(scope="module")
def facts() -> dict[Path, SourceFacts]:
    """Return the facts of each source file."""
    return {path: facts_of(path) for path in SOURCES}


def facts_of(path: Path) -> SourceFacts:
    found = SourceFacts(set(), [])
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names):
                found.imports |= {name.name for name in names}
            case ast.ImportFrom(module=str(module), names=names):
                found.imports |= {module, *(f"{module}.{name.name}" for name in names)}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.functions.append((node.name, (node.end_lineno or 0) - node.lineno + 1))
            case _:
                pass
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def repository_texts() -> list[tuple[Path, str]]:
    """Return each text file of ours that git tracks or could add, with its text."""
    command = "git -c safe.directory=* ls-files --cached --others --exclude-standard -z"
    try:
        names = subprocess.check_output(command.split(), cwd=ROOT, text=True).split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("git or the repository is missing: cannot list the project's files")
    found: list[tuple[Path, str]] = []
    for path in (ROOT / name for name in names if name and not name.startswith(VENDORED)):
        # Some are removed but not yet committed; some are pictures.
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            found.append((path, read(path)))
    return found


def layers() -> list[list[str]]:
    """Return the layers of `.importlinter`, the highest first."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    lines = config["importlinter:contract:layers"]["layers"].split("\n")
    return [re.findall(r"\w+", line) for line in lines if line]


def drawn_tree() -> list[str]:
    """Return the paths that the tree in ARCHITECTURE.md names, relative to the package."""
    tree = re.search(r"```\nsrc/cellblock/\n(.*?)```", read(ROOT / "ARCHITECTURE.md"), re.DOTALL)
    assert tree is not None, "ARCHITECTURE.md has no tree that begins with src/cellblock/"
    paths: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in tree[1].splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        while parents and parents[-1][0] >= indent:
            parents.pop()
        prefix = parents[-1][1] if parents else ""
        names = re.split(r"\s{2,}", line.strip())[0].split()
        paths += [prefix + name for name in names]
        if names and names[0].endswith("/"):
            parents.append((indent, prefix + names[0]))
    return paths


def imported_names(path: Path, top: Path) -> Iterator[str]:
    """Yield the names that a module imports; imports from outside `top` begin with dots."""
    depth = len(path.relative_to(top).parts)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.ImportFrom) and node.level > depth:
            yield "." * node.level + (node.module or "")


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Return which of `modules` a module of the package imports anywhere in its source."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
        names = {f"{base}.{name.name}" for name in node.names}
        found |= (names & modules) or ({base} & modules)
    return found


# imports


def test_imports_point_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    argv = [linter, "--no-cache", "--no-logo"]
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_is_in_one_layer() -> None:
    existing = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    named = Counter(name for layer in layers() for name in layer)
    assert sorted(existing - {"__init__"} - set(named)) == []
    assert [name for name, times in named.items() if times > 1] == []


def test_no_modules_import_each_other() -> None:
    modules = {module_name(path): path for path in MODULES if path != PACKAGE / "__init__.py"}
    graph = {name: imported_modules(path, set(modules)) for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_runtime_imports_only_the_standard_library() -> None:
    foreign = [
        f"{relative(path)} imports {name}"
        for path in RUNTIME.rglob("*.py")
        for name in imported_names(path, RUNTIME)
        if name.split(".")[0] not in {*sys.stdlib_module_names, *RUNTIME_EXTRAS.get(path.name, ())}
    ]
    assert foreign == []


@pytest.mark.slow
def test_importing_a_module_changes_nothing() -> None:
    # An integration needs its framework, which is no dependency: tests/integrations imports it.
    # `cellblock.compat` is imported for its effect, which tests/compat checks.
    left_out = {PACKAGE / "integrations", PACKAGE / "compat"}
    names = json.dumps([module_name(path) for path in MODULES if not left_out & set(path.parents)])
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    argv = [sys.executable, "-c", WATCH_IMPORTS]
    done = subprocess.run(argv, input=names, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


# public names


def test_public_names_are_sorted_and_exist_also_for_type_checkers() -> None:
    assert cellblock.__all__ == sorted(set(cellblock.__all__))
    assert dir(cellblock) == cellblock.__all__
    assert [name for name in cellblock.__all__ if not hasattr(cellblock, name)] == []
    with pytest.raises(AttributeError, match="Sandbax"):
        cellblock.__getattr__("Sandbax")
    shown = [
        name.asname or name.name
        for node in ast.walk(parsed(PACKAGE / "__init__.py"))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for name in node.names
    ]
    assert sorted(shown) == cellblock.__all__


# size and shape


def test_files_have_at_most_900_lines() -> None:
    sizes = {relative(path): len(read(path).splitlines()) for path in SOURCES}
    assert {name: size for name, size in sizes.items() if size > 900} == {}


def test_functions_have_at_most_60_lines(facts: dict[Path, SourceFacts]) -> None:
    assert [
        (relative(path), name, size)
        for path, found in facts.items()
        for name, size in found.functions
        if size > 60 and path.parent.name != "scenarios"  # each is one story, from top to bottom
    ] == []


def vocabulary(path: Path) -> str:
    """Return what gives the classes of a module their names: a protocol, AutoGen 0.2, or we."""
    folders = path.relative_to(PACKAGE).parts[:-1]
    if folders[:2] == ("server", "doors"):
        return "/".join(folders[:3])
    return "chat" if folders[:1] == ("chat",) else ""


ClassName = tuple[str, str]  # its vocabulary and its name


def depth_of(name: ClassName, bases: dict[ClassName, list[ClassName]]) -> int:
    """Return how many classes of ours are in a row from `name` to its furthest base."""
    return 1 + max((depth_of(base, bases) for base in bases[name] if base in bases), default=0)


def base_names(node: ast.ClassDef, kind: str, known: set[ClassName]) -> list[ClassName]:
    """Return the bases of a class in vocabulary `kind`: its own, or one of ours."""
    named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    names = [base.id for base in named if isinstance(base, ast.Name) and base.id != node.name]
    return [(kind, name) if (kind, name) in known else ("", name) for name in names]


def test_no_two_classes_share_a_name_or_have_more_than_three_bases_of_ours_in_a_row() -> None:
    # The synchronous classes have the names of the asynchronous ones.
    modules = [path for path in MODULES if path.parent != PACKAGE / "sync"]
    found = [
        (vocabulary(path), node)
        for path in modules
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    ]
    names = Counter((kind, node.name) for kind, node in found)
    assert [name for name, times in names.items() if times > 1] == []
    bases = {(kind, node.name): base_names(node, kind, set(names)) for kind, node in found}
    assert {name[1] for name in bases if depth_of(name, bases) > 4} == set()


def test_untyped_dictionaries_become_fewer() -> None:
    counts = Counter[str]()
    for path in MODULES:
        folder, *rest = path.relative_to(PACKAGE).parts
        counts[folder if rest else "."] += len(re.findall(r"dict\[str, Any\]", read(path)))
    assert {
        name: count for name, count in counts.items() if count > UNTYPED_DICTIONARIES.get(name, 0)
    } == {}


def test_no_module_has_a_vague_name() -> None:
    parts = {relative(path): set(path.relative_to(ROOT).with_suffix("").parts) for path in SOURCES}
    assert [name for name, names in parts.items() if VAGUE_NAMES & names] == []


def test_every_folder_says_its_role_in_one_line() -> None:
    folders = [path for path in MODULES if path.name == "__init__.py" and path.parent != PACKAGE]
    texts = {relative(path): ast.get_docstring(parsed(path)) or "" for path in folders}
    assert [path for path, text in texts.items() if not text.strip()] == []


# documents


def test_every_module_has_tests(facts: dict[Path, SourceFacts]) -> None:
    tests = ROOT / "tests"
    of_tests = [found.imports for path, found in facts.items() if path.is_relative_to(tests)]
    imported = set[str]().union(*of_tests)
    others = set[str]()
    for path in MODULES:
        *folders, _ = path.relative_to(PACKAGE).parts
        has_file = any((tests / "".join(folders[:1])).rglob(f"test_{path.name}"))
        has_folder = folders and any(tests.joinpath(*folders).glob("test_*.py"))
        if not (
            path.name == "__init__.py" or module_name(path) in imported or has_file or has_folder
        ):
            others.add("/".join(folders) or path.name)
    rows = [each for listed in TESTS_OF.values() for each in listed.split()]
    assert sorted(rows) == sorted(others), "add the row of a new module; remove what is mirrored"
    assert [name for name in TESTS_OF if not (ROOT / name).exists()] == []


def test_version_changelog_and_extras_agree() -> None:
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    newest = re.search(r"^## (\d\S*)", read(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert project["version"] == newest[1] == cellblock.__version__
    extras = project["optional-dependencies"]
    frameworks = {path.stem.replace("_", "-") for path in (PACKAGE / "integrations").glob("*.py")}
    frameworks.add("ray")
    users = sorted(set(extras) - frameworks - {"all", "dev", "bench", "docs", "kernels"})
    assert extras["all"] == [f"cellblock[{','.join(users)}]"]


def test_a_release_has_at_most_30_changelog_entries_of_20_words() -> None:
    changelog = read(ROOT / "CHANGELOG.md")
    entries = re.findall(r"^- (.*(?:\n  .*)*)", changelog, re.MULTILINE)
    assert [entry for entry in entries if len(entry.split()) > 20] == []
    releases = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    assert [text for text in releases if len(re.findall(r"^- ", text, re.MULTILINE)) > 30] == []


def test_architecture_is_short_and_draws_every_folder_and_the_layers_in_order() -> None:
    assert len(read(ROOT / "ARCHITECTURE.md").splitlines()) <= 150
    folders = {path.parent.relative_to(PACKAGE).as_posix() + "/" for path in MODULES} - {"./"}
    modules = {path.name for path in MODULES if path.parent == PACKAGE}
    assert sorted((folders | modules) - set(drawn_tree())) == []
    assert [name for name in drawn_tree() if not (PACKAGE / name).exists()] == []
    depth = {name: number for number, layer in enumerate(reversed(layers())) for name in layer}
    tops = [name.rstrip("/").removesuffix(".py") for name in drawn_tree()]
    tops = [name for name in tops if "/" not in name and name != "__init__"]
    assert [depth[top] for top in tops] == sorted(depth[top] for top in tops)


def test_scripts_are_executable() -> None:
    scripts = [*sorted((ROOT / "scripts").iterdir()), *sorted((ROOT / ".ci").iterdir())]
    assert [relative(path) for path in scripts if not path.stat().st_mode & 0o111] == []


def test_a_test_runs_every_example() -> None:
    others = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    tests = "\n".join(read(path) for path in others)
    examples = [path for path in (ROOT / "examples").iterdir() if path.is_file()]
    assert [relative(path) for path in examples if path.name not in tests] == []


def test_no_file_names_a_folder_of_one_machine_or_unfinished_work_without_an_issue() -> None:
    machine = re.compile(r"(?<![\w.~-])/(?:work|farm)/")
    unfinished = re.compile(r"\b(?:TO[D]O|FIXM[E]|XX[X])\b(?! ?\(?#\d)")
    for pattern in (machine, unfinished):
        found = [relative(path) for path, text in repository_texts() if pattern.search(text)]
        assert found == []


def test_only_safe_folders_open_what_code_changes() -> None:
    allowed = {
        "runtime/linux/safe_folder.py",
        "sandbox/setup/mounts.py",  # opens what will be mounted, without a right to read it
    }
    flags = re.compile(r"dir_fd|O_NOFOLLOW")
    found = {path for path in MODULES if flags.search(read(path))}
    assert {path.relative_to(PACKAGE).as_posix() for path in found} <= allowed
