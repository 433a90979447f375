"""Practice in the zygote: forks pay for fewer pages, and find no trace of it."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cellblock import CodeBlock
from cellblock.runtime import bootstrap
from cellblock.sync import SandboxCommandLineCodeExecutor

CELLBLOCK = Path(bootstrap.__file__).resolve().parent.parent

_ALONE = """
import sys, types
package = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
sys.modules["cellblock"] = package
import gc, os, resource
from cellblock.runtime.cell import script, warmup

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


def _alone(code: str, *arguments: str) -> str:
    argv = [sys.executable, "-c", f"{_ALONE}\n{code}", str(CELLBLOCK), *arguments]
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    ).stdout


def test_fork_writes_to_fewer_pages_after_practice() -> None:
    found = _alone(
        "gc.freeze(); before = faults(); warmup.practise(); gc.freeze(); print(before, faults())"
    )
    before, after = map(int, found.split())
    assert after < before - 5


def test_practice_leaves_no_trace() -> None:
    code = """
before = trace()
warmup.practise()
assert trace() == before
gc.unfreeze()
gc.collect()
assert not [one for one in gc.get_objects() if isinstance(one, type) and one.__name__ == "Point"]
print("as before")
"""
    assert _alone(code) == "as before\n"


_REHEARSAL = """
warmup.practise()
gc.freeze()
script.prepare()
rehearse = warmup.rehearse if sys.argv[2] == "after" else lambda: None
before = trace()
rehearse()
after = trace()
assert before[:3] == after[:3] and before[4:] == after[4:], (before, after)
first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
code, namespace = script.load({"script": os.devnull})
print(sys.argv, sorted(namespace), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - first)
"""


def test_a_rehearsal_leaves_no_trace_and_prints_nothing() -> None:
    namespaces = [_alone(_REHEARSAL, when).rpartition(" ")[0] for when in ("after", "without")]
    assert namespaces[0] == namespaces[1] != ""


LONG = "import os, time\nwhile not os.path.exists('enough'): time.sleep(0.01)"
FAULTS = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"


def faults_after_a_while(executor: SandboxCommandLineCodeExecutor) -> int:
    time.sleep(0.2)
    return int(executor.execute_code_blocks([CodeBlock(FAULTS, "python")]).output)


def test_a_process_that_waits_rehearses_unless_blocks_run_that_need_the_processors() -> None:
    faults, long = [CodeBlock(FAULTS, "python")], [CodeBlock(LONG, "python")]
    at_once = list[int]()
    with SandboxCommandLineCodeExecutor() as executor:
        for _ in range(20):
            at_once.append(int(executor.execute_code_blocks(faults).output))
        few = min(at_once) + 20
        until_rehearsed(executor, few)
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(executor.execute_code_blocks, long)
            for _ in range(10):  # until those are used up that had time before
                executor.execute_code_blocks(faults)
            time.sleep(0.2)
            beside = int(executor.execute_code_blocks(faults).output)
            was_running = not running.done()
            Path(executor.work_dir, "enough").touch()
    assert was_running
    assert few > beside


def until_rehearsed(executor: SandboxCommandLineCodeExecutor, few: int) -> None:
    """Wait until the faults were there before the block came, which needs a moment in which our neighbours are quiet."""
    deadline = time.monotonic() + 60
    while faults_after_a_while(executor) <= few:
        assert time.monotonic() < deadline


def test_nobody_rehearses_while_others_need_the_processors() -> None:
    with SandboxCommandLineCodeExecutor() as executor:
        few = 20 + min(
            int(executor.execute_code_blocks([CodeBlock(FAULTS, "python")]).output)
            for _ in range(20)
        )
        busy = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(2 * (os.cpu_count() or 1))
        ]
        try:
            for _ in range(5):  # until those are used up that had time before
                executor.execute_code_blocks([CodeBlock("1", "python")])
            assert max(faults_after_a_while(executor) for _ in range(5)) < few
        finally:
            for process in busy:
                process.kill()
                process.wait()


def test_block_sees_nothing_of_the_practice() -> None:
    code = "import sys; print(sys.argv, [name for name in dir() if name[0] != '_'], '/dev' in sys.path)"
    with SandboxCommandLineCodeExecutor() as executor:
        result = executor.execute_code_blocks([CodeBlock(f"# filename: a.py\n{code}", "python")])
    assert result.output == "['/workspace/a.py'] ['sys'] False\n"
