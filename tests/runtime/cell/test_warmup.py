"""The warm-up of the zygote: forks copy fewer pages, and blocks see no trace of it."""

from pathlib import Path

from cellblock.runtime import bootstrap
from tests.runtime.python_process import run_python
from tests.sandbox.probes import output_of, sandbox

CELLBLOCK = Path(bootstrap.__file__).resolve().parent.parent

_ZYGOTE = """
import sys, types
package = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
sys.modules["cellblock"] = package
import gc, os, resource
from cellblock.runtime.cell import script, warmup
from cellblock.runtime.handshake import CellJob

def faults():
    reader, writer = os.pipe()
    if os.fork() == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        script.prepare_main()
        code, namespace = script.load(CellJob(os.devnull))
        text = "def f(x):\\n    return x + 1\\nf(1)"
        exec(compile(text, "f", "exec", dont_inherit=True), namespace)
        script.release_modules()
        os.write(writer, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 100))

def state():
    modules = list(sys.modules), sys.modules["__main__"]
    return *modules, sys.path[:], sys.argv, sorted(vars(sys)), dict(os.environ)
"""


def _run(code: str, *arguments: str) -> str:
    return run_python(f"{_ZYGOTE}\n{code}", CELLBLOCK, *arguments)


def test_a_fork_copies_fewer_pages_after_the_warm_up() -> None:
    found = _run(
        "gc.freeze(); before = faults(); warmup.warm_up(); gc.freeze(); print(before, faults())"
    )
    before, after = map(int, found.split())
    assert after < before - 5


def test_the_warm_up_leaves_no_trace() -> None:
    code = """
before = state()
warmup.warm_up()
assert state() == before
gc.unfreeze()
gc.collect()
assert not [one for one in gc.get_objects() if isinstance(one, type) and one.__name__ == "Point"]
print("as before")
"""
    assert _run(code) == "as before\n"


_PRETOUCH = """
warmup.warm_up()
gc.freeze()
script.prepare_main()
pretouch = warmup.pretouch if sys.argv[2] == "after" else lambda: None
before = state()
pretouch()
after = state()
assert before[:3] == after[:3] and before[4:] == after[4:], (before, after)
first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
code, namespace = script.load(CellJob(os.devnull))
print(sys.argv, sorted(namespace), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - first)
"""


def test_pretouching_leaves_no_trace_and_prints_nothing() -> None:
    namespaces = [_run(_PRETOUCH, when).rpartition(" ")[0] for when in ("after", "never")]
    assert namespaces[0] == namespaces[1] != ""


def test_a_block_sees_no_trace_of_the_warm_up() -> None:
    names = "[name for name in dir() if name[0] != '_']"
    code = f"# filename: a.py\nimport sys\nprint(sys.argv, {names}, '/dev' in sys.path)"
    with sandbox() as executor:
        assert output_of(executor, code) == "['/workspace/a.py'] ['sys'] False\n"
