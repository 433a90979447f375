"""Practice in the zygote: forks pay for fewer pages, and find no trace of it."""

import subprocess
import sys
from pathlib import Path

from cellblock import CodeBlock
from cellblock.cell import boot
from cellblock.sync import SandboxCommandLineCodeExecutor

CELLBLOCK = Path(boot.__file__).resolve().parent.parent

_ALONE = """
import sys, types
package = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
sys.modules["cellblock"] = package
import gc, os, resource
from cellblock.cell import practice, script

def faults():
    reader, writer = os.pipe()
    if os.fork() == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        script.prepare()
        code, namespace = script.load({"script": os.devnull})
        exec(compile("def f(x):\\n    return x + 1\\nf(1)", "f", "exec", dont_inherit=True), namespace)
        script.let_go()
        os.write(writer, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 100))

def trace():
    return list(sys.modules), sys.modules["__main__"], sys.path[:], sys.argv, sorted(vars(sys)), dict(os.environ)
"""


def _alone(code: str) -> str:
    argv = [sys.executable, "-c", f"{_ALONE}\n{code}", str(CELLBLOCK)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def test_fork_writes_to_fewer_pages_after_practice() -> None:
    found = _alone("gc.freeze(); before = faults(); practice.practise(); gc.freeze(); print(before, faults())")
    before, after = map(int, found.split())
    assert after < before - 5


def test_practice_leaves_no_trace() -> None:
    code = """
before = trace()
practice.practise()
assert trace() == before
gc.unfreeze()
gc.collect()
assert not [one for one in gc.get_objects() if isinstance(one, type) and one.__name__ == "Point"]
print("as before")
"""
    assert _alone(code) == "as before\n"


def test_block_sees_nothing_of_the_practice() -> None:
    code = "import sys; print(sys.argv, [name for name in dir() if name[0] != '_'], '/dev' in sys.path)"
    with SandboxCommandLineCodeExecutor() as executor:
        result = executor.execute_code_blocks([CodeBlock(f"# filename: a.py\n{code}", "python")])
    assert result.output == "['/workspace/a.py'] ['sys'] False\n"
