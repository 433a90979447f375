"""A Python block in the sandbox behaves like `python -u file.py`, also with preloaded libraries.

Each snippet runs twice in one sandbox: as a block, and in a shell block that starts a plain
interpreter with the same file. Exit code, stdout and stderr must be equal.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import CodeBlock, CodeResult
from cellblock.sync import SandboxCommandLineCodeExecutor

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
    "",
    "None",
    "0",
    "3",
    "256",
    "-1",
    "'text'",
    "True",
    "1.5",
    "(1, 2)",
    "2 ** 70",
    "-2 ** 70",
    "2 ** 31",
    "b'x'",
    "-2",
    "type('Unprintable', (), {'__str__': lambda self: 1 / 0})()",
]

# Where a block differs from a plain interpreter.
DIFFERENCES = {
    (
        "standard modules that cells need are already imported"
    ): "import sys\nprint('socket' in sys.modules)",
    (
        "the stack of a block includes the frame of the bootstrap"
    ): "import traceback\ntraceback.print_stack()",
    "so the recursion limit is lower by two levels": (
        "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n"
        "        return n\nprint(f(0))"
    ),
    "the garbage collector ignores objects from before the fork": (
        "import gc\nprint(gc.get_freeze_count() > 1000)"
    ),
    (
        "the command line in /proc is that of the parent process"
    ): "print(open('/proc/self/cmdline').read())",
    "modules that the block did not import are not cleared at exit": (
        "import json\nclass A:\n    def __del__(self):\n        print('del')\njson.mine = A()"
    ),
    "tracebacks of errors at exit can still read the source": (
        "class A:\n    def __del__(self):\n        1/0\na = A()"
    ),
    "standard output uses another buffer class": "import sys\nprint(type(sys.stdout.buffer))",
    (
        "a profile function sees this buffer class"
    ): "import sys\nsys.setprofile(lambda frame, *_: names.add(frame.f_code.co_name))\n"
    "names = set()\nprint()\nsys.setprofile(None)\nprint(names)",
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


@pytest.fixture(scope="module", params=["bare", "preloaded"])
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SandboxCommandLineCodeExecutor]:
    folder = tmp_path_factory.mktemp("work")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    preload = [*STANDARD, *LIBRARIES] if request.param == "preloaded" else []
    with SandboxCommandLineCodeExecutor(work_dir=folder, preload=preload, timeout=15) as executor:
        yield executor


def as_block(executor: SandboxCommandLineCodeExecutor, code: str) -> CodeResult:
    return executor.execute_code_blocks([CodeBlock(f"# filename: tried.py\n{code}", "python")])


def as_plain(executor: SandboxCommandLineCodeExecutor, code: str) -> CodeResult:
    Path(executor.work_dir, "tried.py").write_text(f"# filename: tried.py\n{code}")
    return executor.execute_code_blocks(
        [CodeBlock("exec /opt/env/bin/python -u /workspace/tried.py", "sh")]
    )


# Before 3.12.8 and 3.13.1, Python reports an error in computing the exit code late (gh-125842).
LATE_REPORT = (
    r"(Exception ignored on threading shutdown:\n)?(Traceback .*\n(  "
    r".*\n)+)?(Overflow|ZeroDivision)Error: .*\n\Z"
)


def observable(result: CodeResult) -> tuple[int, str, str]:
    stdout, stderr = (
        re.sub("0x[0-9a-f]{6,}", "0x…", text) for text in (result.stdout, result.stderr)
    )
    return result.exit_code, stdout, stderr


PARTS = re.split(r"^### (.+)\n", SNIPPETS, flags=re.MULTILINE)


@pytest.mark.parametrize("code", PARTS[2::2], ids=PARTS[1::2])
def test_block_behaves_as_a_plain_interpreter(
    executor: SandboxCommandLineCodeExecutor, code: str
) -> None:
    assert observable(as_block(executor, code)) == observable(as_plain(executor, code))


@pytest.mark.parametrize("value", EXITS)
def test_exit_behaves_as_in_a_plain_interpreter(
    executor: SandboxCommandLineCodeExecutor, value: str
) -> None:
    code = f"import sys\nsys.exit({value})"
    exit_code, stdout, stderr = observable(as_plain(executor, code))
    assert observable(as_block(executor, code)) == (
        exit_code,
        stdout,
        re.sub(LATE_REPORT, "", stderr),
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_behaves_as_in_a_plain_interpreter(
    executor: SandboxCommandLineCodeExecutor, method: str
) -> None:
    code = MULTIPROCESSING.replace("METHOD", method)
    block = as_block(executor, code)
    assert observable(block) == observable(as_plain(executor, code))
    assert block.exit_code == 0


@pytest.mark.parametrize("code", DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_a_declared_difference_still_exists(
    executor: SandboxCommandLineCodeExecutor, code: str
) -> None:
    assert observable(as_block(executor, code)) != observable(as_plain(executor, code))


DRAWS = {
    "random": "import random\nprint(random.random(), random.Random().random())",
    "uuid": "import uuid\nprint(uuid.uuid4())",
    "uuid1": "import uuid\nprint(uuid.uuid1())",
    "secrets": "import secrets\nprint(secrets.token_hex())",
    "tempfile": "import tempfile\nprint(tempfile.mkdtemp())",
    "multiprocessing": (
        "import multiprocessing\nprint(bytes(multiprocessing.current_process().authkey))"
    ),
    "numpy": "import numpy\nprint(numpy.random.rand(), numpy.random.randint(1 << 30))",
    "numpy's generator": "import numpy\nprint(numpy.random.default_rng().random())",
    "pandas": "import pandas\nprint(list(pandas.Series(range(10 ** 6)).sample(5)))",
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_of_a_library_differ_between_runs(
    executor: SandboxCommandLineCodeExecutor, name: str
) -> None:
    pytest.importorskip(re.sub(r"\W.*|1", "", name), reason=f"{name} is not installed")
    drawn = [
        executor.execute_code_blocks([CodeBlock(DRAWS[name], "python")]).check().output
        for _ in range(4)
    ]
    assert len(set(drawn)) == 4


def test_a_seed_set_by_the_block_is_respected(executor: SandboxCommandLineCodeExecutor) -> None:
    code = "import random\nrandom.seed(1)\nprint(random.random())"
    assert observable(as_block(executor, code)) == observable(as_plain(executor, code))


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
