"""A Python block in the sandbox behaves like `python -u file.py`, also with preloaded libraries.

Each snippet runs as a block, and once in a shell block that starts a plain interpreter with the
same file. Exit code, stdout and stderr must be equal.
"""

import functools
import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock import CodeBlock, CodeResult
from cellblock.sync import SandboxCommandLineCodeExecutor
from tests.suite.tiers import exhaustive

SNIPPETS = Path(__file__).with_name("fidelity_snippets.txt").read_text(encoding="utf-8")
STANDARD = [
    "random",
    "tempfile",
    "uuid",
    "secrets",
    "logging",
    "asyncio",
    "multiprocessing.pool",
    "concurrent.futures",
]
LIBRARIES = [
    name
    for name in ("numpy", "pandas", "matplotlib.pyplot")
    if importlib.util.find_spec(name.partition(".")[0])
]

MULTIPROCESSING = """
import multiprocessing, sys
class C:
    def __init__(self, value):
        self.value = value
def square(x):
    return x * x
def more(c):
    return C(c.value + 1)
def report():
    print(__name__, sys.modules["__main__"].__file__, sys.argv, sys.path[0])
if __name__ == "__main__":
    context = multiprocessing.get_context("METHOD")
    with context.Pool(2) as pool:
        print(pool.map(square, range(4)), [(type(c), c.value) for c in pool.map(more, [C(1)])])
    process = context.Process(target=report)
    process.start()
    process.join()
    print(process.exitcode, process.name, multiprocessing.current_process().name)
    print(multiprocessing.parent_process())
"""

EXITS = [
    "", "None", "0", "3", "256", "-1", "-2", "'text'", "b'x'", "True", "1.5", "(1, 2)",
    "2 ** 31", "2 ** 70", "-2 ** 70",
    "type('Unprintable', (), {'__str__': lambda self: 1 / 0})()",
]  # fmt: skip

# Where a block differs from a plain interpreter.
DIFFERENCES = {
    "standard modules that cells need are already imported": (
        "import sys\nprint('socket' in sys.modules)"
    ),
    "the stack of a block includes the frame of the bootstrap": (
        "import traceback\ntraceback.print_stack()"
    ),
    "so the recursion limit is lower by two levels": (
        "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n"
        "        return n\nprint(f(0))"
    ),
    "the garbage collector ignores objects from before the fork": (
        "import gc\nprint(gc.get_freeze_count() > 1000)"
    ),
    "the command line in /proc is that of the parent process": (
        "print(open('/proc/self/cmdline').read())"
    ),
    "modules that the block did not import are not cleared at exit": (
        "import json\nclass A:\n    def __del__(self):\n        print('del')\njson.mine = A()"
    ),
    "tracebacks of errors at exit can still read the source": (
        "class A:\n    def __del__(self):\n        1/0\na = A()"
    ),
    "standard output uses another buffer class": "import sys\nprint(type(sys.stdout.buffer))",
    "a profile function sees this buffer class": (
        "import sys\nsys.setprofile(lambda frame, *_: names.add(frame.f_code.co_name))\n"
        "names = set()\nprint()\nsys.setprofile(None)\nprint(names)"
    ),
    "a source with a NUL character gives a shorter error": "print(1)\n\0\n",
    "a coding cookie is ignored": "# -*- coding: latin-1 -*-\nprint(len('\u00e9'))\n",
    "a coding cookie that Python does not know is ignored": "# coding: nonsense\nprint(1)\n",
}

FILES = {
    "broken.py": "def f(:\n",
    "helper.py": "x = 1\n",
    "holder.py": "class A:\n    def __del__(self):\n        print('del')\na = A()\n",
    "other.py": "import sys\nprint(__name__, __file__, __spec__, sys.argv)\n",
    "resource.py": "mine = 1\n",
    "waiter.py": "async def f():\n    pass\nc = f()\n",
    "json/data.txt": "",
    **{f"{name}.py": "" for name in ("cellblock", "init", "kernel", "script", "wire", "zygote")},
}


Observed = tuple[int, str, str]


def open_executor(folder: Path, preload: list[str]) -> SandboxCommandLineCodeExecutor:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return SandboxCommandLineCodeExecutor(work_dir=folder, preload=preload, timeout=15)


@pytest.fixture(scope="module", params=exhaustive(["bare", "preloaded"]))
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SandboxCommandLineCodeExecutor]:
    preload = [*STANDARD, *LIBRARIES] if request.param == "preloaded" else []
    with open_executor(tmp_path_factory.mktemp("work"), preload) as executor:
        yield executor


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Observed]]:
    """Return a function that runs code in a plain interpreter, the same code once only."""

    with open_executor(tmp_path_factory.mktemp("plain"), []) as executor:

        @functools.cache
        def run(code: str) -> Observed:
            Path(executor.work_dir, "tried.py").write_text(f"# filename: tried.py\n{code}")
            command = CodeBlock("exec /opt/env/bin/python -u /workspace/tried.py", "sh")
            return observable(executor.execute_code_blocks([command]))

        yield run


def as_block(executor: SandboxCommandLineCodeExecutor, code: str) -> CodeResult:
    return executor.execute_code_blocks([CodeBlock(f"# filename: tried.py\n{code}", "python")])


def observable(result: CodeResult) -> Observed:
    stdout, stderr = (
        re.sub("0x[0-9a-f]{6,}", "0x…", text) for text in (result.stdout, result.stderr)
    )
    return result.exit_code, stdout, stderr


PARTS = re.split(r"^### (.+)\n", SNIPPETS, flags=re.MULTILINE)
CODES = dict(zip(PARTS[1::2], PARTS[2::2], strict=True))


@pytest.mark.parametrize("part", range(3))
def test_blocks_behave_as_a_plain_interpreter(
    executor: SandboxCommandLineCodeExecutor, plain: Callable[[str], Observed], part: int
) -> None:
    faults = [
        (name, found, expected)
        for name, code in itertools.islice(CODES.items(), part, None, 3)
        if (found := observable(as_block(executor, code))) != (expected := plain(code))
    ]
    assert faults == []


# Before 3.12.8 and 3.13.1, Python reports an error in computing the exit code late (gh-125842).
LATE_REPORT = (
    r"(Exception ignored on threading shutdown:\n)?(Traceback .*\n(  "
    r".*\n)+)?(Overflow|ZeroDivision)Error: .*\n\Z"
)


def test_exit_behaves_as_in_a_plain_interpreter(
    executor: SandboxCommandLineCodeExecutor, plain: Callable[[str], Observed]
) -> None:
    faults: list[tuple[str, Observed, Observed]] = []
    for value in EXITS:
        code = f"import sys\nsys.exit({value})"
        exit_code, stdout, stderr = plain(code)
        expected = (exit_code, stdout, re.sub(LATE_REPORT, "", stderr))
        if (found := observable(as_block(executor, code))) != expected:
            faults.append((value, found, expected))
    assert faults == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_behaves_as_in_a_plain_interpreter(
    executor: SandboxCommandLineCodeExecutor, plain: Callable[[str], Observed], method: str
) -> None:
    code = MULTIPROCESSING.replace("METHOD", method)
    block = as_block(executor, code)
    assert observable(block) == plain(code)
    assert block.exit_code == 0


def test_the_declared_differences_still_exist(
    executor: SandboxCommandLineCodeExecutor, plain: Callable[[str], Observed]
) -> None:
    gone = [
        name
        for name, code in DIFFERENCES.items()
        if observable(as_block(executor, code)) == plain(code)
    ]
    assert gone == []


DRAWS = [
    ("random", "random.random(), random.Random().random()"),
    ("uuid", "uuid.uuid4()"),
    ("uuid", "uuid.uuid1()"),
    ("secrets", "secrets.token_hex()"),
    ("tempfile", "tempfile.mkdtemp()"),
    ("multiprocessing", "bytes(multiprocessing.current_process().authkey)"),
    ("numpy", "numpy.random.rand(), numpy.random.randint(1 << 30)"),
    ("numpy", "numpy.random.default_rng().random()"),
    ("pandas", "list(pandas.Series(range(10 ** 6)).sample(5))"),
]


@pytest.mark.slow
def test_random_numbers_of_preloaded_libraries_differ_between_runs(tmp_path: Path) -> None:
    repeated = list[str]()
    with open_executor(tmp_path, [*STANDARD, *LIBRARIES]) as executor:
        for library, draw in DRAWS:
            if importlib.util.find_spec(library):
                block = CodeBlock(f"import {library}\nprint({draw})", "python")
                drawn = [executor.execute_code_blocks([block]).check().output for _ in range(4)]
                repeated += [draw] if len(set(drawn)) < 4 else []
    assert repeated == []


def test_a_seed_set_by_the_block_is_respected(
    executor: SandboxCommandLineCodeExecutor, plain: Callable[[str], Observed]
) -> None:
    code = "import random\nrandom.seed(1)\nprint(random.random())"
    assert observable(as_block(executor, code)) == plain(code)


def test_files_left_open_are_flushed(executor: SandboxCommandLineCodeExecutor) -> None:
    module = "file = open('of_module.txt', 'w')\nfile.write('kept')\ndef f():\n    return file\n"
    Path(executor.work_dir, "opener.py").write_text(module)
    main = module.replace("of_module", "of_main")
    assert as_block(executor, f"import opener\n{main}").exit_code == 0
    assert [
        Path(executor.work_dir, name).read_text() for name in ("of_module.txt", "of_main.txt")
    ] == ["kept"] * 2


def test_a_data_folder_with_a_librarys_name_does_not_reload_the_library(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    code = "import json, decoder_of\nprint(json.decoder.JSONDecoder is decoder_of.kind)"
    Path(executor.work_dir, "decoder_of.py").write_text(
        "from json.decoder import JSONDecoder as kind\n"
    )
    assert as_block(executor, code).output == "True\n"
