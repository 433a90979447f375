"""The short way of plain cells: what is shown, numbered and remembered is the same as by the shell's own way."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CELLS = [
    "1", "x = 2; x", "'a\\nb'", "x", "_", "__", "Out", "_2", "In[-1]", "get_ipython().execution_count", "[1, 2]", "None",
    "float('nan')", "1.0;", "x;  # c", "x # c", "10**5000", "raise ValueError(1)", "x; 1/0",
    "import builtins; builtins._ = 5",
    "3", "_", "del builtins._", "True", "___", "_ = 9", "8", "_", "__", "del _", "7", "_", "Out.clear()", "6", "_",
    "b'x'", "1j", "%precision 3\n1.23456", "2.34567", "_i3", "f(",
    "def f():\n  return 5\nf()",
    "get_ipython().display_formatter.formatters['text/plain'].for_type(int, lambda n, p, c: p.text('int'))", "7", "str(7)",
    "get_ipython().display_formatter.formatters['text/html'].for_type(str, lambda s: '<b>')", "'s'",
]  # fmt: skip

PROGRAM = """
import contextlib, io, json, sys
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
if sys.argv[1] == "long":
    shell._plain.compiled = lambda code: None
for code in json.load(sys.stdin):
    shown, out, err = [], io.StringIO(), io.StringIO()
    shell.publish = lambda data, metadata: shown.append([dict(data), dict(metadata)])
    shell.publish_last = lambda data: shell.publish(data, {})
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code_of_exit = shell.run(code)
        shell.tidy()
    shown_before = sorted(name for name in shell.hidden if name.strip("_").isdigit() or not name.strip("_"))
    counts = shell._shell.execution_count, sorted(shell.variables["_oh"]), shown_before
    history = shell._shell.history_manager
    noted = {number: [one.bundle for one in ones] for number, ones in getattr(history, "outputs", {}).items()}
    noted = [noted, dict(history.output_hist_reprs), history.input_hist_parsed[:], history.input_hist_raw[:]]
    json.dump([code_of_exit, shown, out.getvalue(), err.getvalue(), counts, noted], sys.__stdout__)
    print()
"""


def records(way: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, way]
    ended = subprocess.run(
        command, input=json.dumps(CELLS), capture_output=True, text=True, check=True
    )
    return ended.stdout.splitlines()


def test_the_short_way_shows_what_the_long_way_shows() -> None:
    pytest.importorskip("IPython")
    short, long = records("short"), records("long")
    assert len(short) == len(CELLS)
    for code, one, other in zip(CELLS, short, long, strict=True):
        assert json.loads(one) == json.loads(other), code


def test_what_is_remembered_of_cells_does_not_grow_for_ever() -> None:
    pytest.importorskip("IPython")
    program = """
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
sizes = []
for number in range(3000):
    shell.run(f"{number}")
    shell.tidy()
    sizes.append((len(shell.hidden), len(shell._shell.compile._filename_map)))
print(max(sizes[2000:]) < (max(sizes[1000:2000])[0] * 1.1, 1001), shell.variables["_i2950"], "_i1" in shell.variables)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "True 2949 False", ended.stderr


def test_cells_of_plain_values_go_the_short_way() -> None:
    pytest.importorskip("IPython")
    program = """
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
shell.run("None", quietly=True)  # as a zygote does: the long way once, which makes the compiler's flags anew
def refuse(*_, **__):
    raise AssertionError("the long way")
shell._shell.run_cell = shell._shell.display_formatter.format = refuse
shell._plain._additions._extensions = refuse  # nor is anything looked through that nobody has changed
print([shell.run(code) for code in ("x = 2", "x", "x; 'text'", "1.5", "None")])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == ["2", "'text'", "1.5", "[0, 0, 0, 0, 0]"]


MARKS = """
from cellblock.runtime.cell.session.shell import Shell
shell = Shell()
ip, way = shell._shell, shell._plain
def plain(code):
    shell.run(code)
    return way.compiled("1") is not None
"""


@pytest.mark.parametrize(
    ("code", "undone"),
    [
        ("get_ipython().input_transformers_post.append(list)", "get_ipython().input_transformers_post.clear()"),
        ("get_ipython().input_transformers_post = [list]", "get_ipython().input_transformers_post = []"),
        ("t = get_ipython().input_transformer_manager.line_transforms; old = t[0]; t[0] = list", "t[0] = old"),
        ("m = get_ipython().input_transformer_manager; old = m.cleanup_transforms; m.cleanup_transforms = old[1:]",
         "m.cleanup_transforms = old"),
        ("f = lambda: None; get_ipython().events.register('post_execute', f)",
         "get_ipython().events.unregister('post_execute', f)"),
        ("get_ipython().ast_transformers += [__import__('ast').NodeTransformer()]", "del get_ipython().ast_transformers[0]"),
        ("from __future__ import annotations", ""),
    ],
)  # fmt: skip
def test_what_code_adds_to_the_shell_is_seen_and_that_it_is_gone_again(
    code: str, undone: str
) -> None:
    pytest.importorskip("IPython")
    program = (
        f"{MARKS}\nprint([plain('2'), plain({code!r}), plain('3'), plain({undone!r}), plain('4')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    seen = json.loads(ended.stdout.splitlines()[-1].lower())
    assert seen == [True, False, False, bool(undone), bool(undone)]
