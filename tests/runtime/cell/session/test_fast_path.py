"""The fast path shows, numbers and remembers exactly what IPython does."""

from __future__ import annotations

import json

import pytest

from tests.runtime.python_process import run_python

pytest.importorskip("IPython")
FORMATTERS = "get_ipython().display_formatter.formatters"
BLOCKS = [
    "1", "x = 2; x", "'a\\nb'", "x", "_", "__", "Out", "_2", "In[-1]",
    "get_ipython().execution_count", "[1, 2]", "None",
    "float('nan')", "1.0;", "x;  # c", "x # c", "10**5000", "raise ValueError(1)", "x; 1/0",
    "import builtins; builtins._ = 5",
    "3", "_", "del builtins._", "True", "___", "_ = 9", "8", "_", "__", "del _", "7", "_",
    "Out.clear()", "6", "_",
    "b'x'", "1j", "%precision 3\n1.23456", "2.34567", "_i3", "f(",
    "def f():\n  return 5\nf()",
    f"{FORMATTERS}['text/plain'].for_type(int, lambda n, p, c: p.text('int'))", "7", "str(7)",
    f"{FORMATTERS}['text/html'].for_type(str, lambda s: '<b>')", "'s'",
]  # fmt: skip

PROGRAM = """
import contextlib, io, json, sys
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
if sys.argv[1] == "ipython":
    shell._fast_path.compile_block = lambda code: None
for code in json.load(sys.stdin):
    shown, out, err = [], io.StringIO(), io.StringIO()
    shell.publish = lambda data, metadata: shown.append([dict(data), dict(metadata)])
    shell.publish_last = lambda data: shell.publish(data, {})
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        exit_code = shell.run(code)
        shell.run_deferred_work()
    last_values = sorted(name for name in shell.hidden if not name.strip("_0123456789"))
    counts = shell._shell.execution_count, sorted(shell.variables["_oh"]), last_values
    manager = shell._shell.history_manager
    outputs = getattr(manager, "outputs", {}).items()
    outputs = {number: [output.bundle for output in of_block] for number, of_block in outputs}
    inputs = manager.input_hist_parsed[:], manager.input_hist_raw[:]
    history = [outputs, dict(manager.output_hist_reprs), *inputs]
    record = [exit_code, shown, out.getvalue(), err.getvalue(), counts, history]
    json.dump(record, sys.__stdout__)
    print()
"""


def test_the_fast_path_shows_what_ipython_shows() -> None:
    program = PROGRAM.replace("json.load(sys.stdin)", repr(BLOCKS))
    fast, ipython = (run_python(program, path).splitlines() for path in ("fast", "ipython"))
    assert len(fast) == len(BLOCKS)
    for code, ours, theirs in zip(BLOCKS, fast, ipython, strict=True):
        assert json.loads(ours) == json.loads(theirs), code


def test_the_history_does_not_grow_without_bound() -> None:
    program = """
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
sizes = []
for number in range(3000):
    shell.run(f"{number}")
    shell.run_deferred_work()
    sizes.append((len(shell.hidden), len(shell._shell.compile._filename_map)))
is_bounded = max(sizes[2000:]) < (max(sizes[1000:2000])[0] * 1.1, 1001)
print(is_bounded, shell.variables["_i2950"], "_i1" in shell.variables)
"""
    assert run_python(program).splitlines()[-1] == "True 2949 False"


def test_blocks_with_simple_values_take_the_fast_path() -> None:
    program = """
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
shell.run("None", silent=True)  # as a zygote does: IPython changes the compiler's flags once
def refuse(*_, **__):
    raise AssertionError("not the fast path")
shell._shell.run_cell = shell._shell.display_formatter.format = refuse
shell._fast_path._hooks._list_extensions = refuse  # unchanged hooks are not compared again
print([shell.run(code) for code in ("x = 2", "x", "x; 'text'", "1.5", "None")])
"""
    assert run_python(program).splitlines() == ["2", "'text'", "1.5", "[0, 0, 0, 0, 0]"]


CAN_USE_FAST_PATH_AFTER = """
import json
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
def can_use_fast_path_after(code):
    shell.run(code)
    return shell._fast_path.compile_block("1") is not None
"""


# Blocks that extend the shell, and blocks that remove the extension.
EXTENSIONS = [
    ("ip.input_transformers_post.append(list)", "ip.input_transformers_post.clear()"),
    ("ip.input_transformers_post = [list]", "ip.input_transformers_post = []"),
    ("t = ip.input_transformer_manager.line_transforms; old = t[0]; t[0] = list", "t[0] = old"),
    (
        "m = ip.input_transformer_manager; old = m.cleanup_transforms\n"
        "m.cleanup_transforms = old[1:]",
        "m.cleanup_transforms = old",
    ),
    (
        "f = lambda: None; ip.events.register('post_execute', f)",
        "ip.events.unregister('post_execute', f)",
    ),
    ("ip.ast_transformers += [__import__('ast').NodeTransformer()]", "del ip.ast_transformers[0]"),
    ("from __future__ import annotations", ""),
]


def test_extensions_of_the_shell_turn_the_fast_path_off_until_they_are_removed() -> None:
    program = f"""{CAN_USE_FAST_PATH_AFTER}
for code, undone in {EXTENSIONS}:
    found = [*map(can_use_fast_path_after, ["ip = get_ipython()", code, "3", undone, "4"])]
    print(json.dumps([code, found == [True, False, False, bool(undone), bool(undone)]]))
"""
    found = [json.loads(line) for line in run_python(program).splitlines() if line[0] == "["]
    assert found == [[code, True] for code, _ in EXTENSIONS]
