"""A block whose error IPython only shows has failed: in a `__repr__`, `%run`, a figure, a magic."""

from __future__ import annotations

import pytest

from cellblock import SandboxSessionServer
from tests.executors.session.live_session import LiveSession, open_session

CLASSES = """class Bad:
    def __repr__(self): raise ValueError('bad text')
class BadPage:
    def __repr__(self): return 'good text'
    def _repr_html_(self): raise ValueError('bad page')
open('fails.py', 'w').write('1 / 0')
open('exits.py', 'w').write('import sys; sys.exit(3)')
open('ends.py', 'w').write('import sys; sys.exit()');
"""
SHOWN_ERRORS = {
    "Bad()": "ValueError: bad text",
    "[Bad()]": "ValueError: bad text",
    "BadPage()": "ValueError: bad page\ngood text",
    "display(BadPage())\nafter = 1": "ValueError: bad page\ngood text",
    "%run fails.py": "ZeroDivisionError",
    "%run fails.py\nafter = 1": "ZeroDivisionError",
    "%%capture caught\n1 / 0": "ZeroDivisionError",
    "%%capture caught\nBad()": "ValueError: bad text",
    "%run -m fails": "ZeroDivisionError",
}


def test_an_error_that_ipython_only_shows_ends_the_block_with_it(live: LiveSession) -> None:
    live.run_ok(CLASSES)
    for code, shown in SHOWN_ERRORS.items():
        result = live.run(code)
        assert (result.exit_code, result.outcome) == (1, "error"), (code, result)
        assert shown in result.output, code
        assert live.run_ok("1") == "1", code


def test_a_figure_that_cannot_be_drawn_is_an_error(shared: SandboxSessionServer) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    with open_session(shared, timeout=None) as live:  # for a large library on a busy machine
        live.run_ok("import matplotlib.pyplot as plt")
        for code in ("", "\nplt.show()"):
            result = live.run(f"plt.plot([1])\nplt.title(r'$\\nosuch{{$');{code}")
            assert (result.exit_code, result.outcome) == (1, "error"), result
            assert "nosuch" in result.output
            live.run_ok("plt.close('all')")


def test_a_script_that_exits_ends_the_block_with_its_exit_code(live: LiveSession) -> None:
    live.run_ok(CLASSES)
    assert live.run("%run exits.py").exit_code == 3
    assert live.run("%run ends.py").outcome == "ok"


HANDLED = {
    "a traceback that the block shows": (
        "try: 1 / 0\nexcept ZeroDivisionError: get_ipython().showtraceback()"
    ),
    "the last traceback": "%tb",
    "a cell that the block runs": "assert get_ipython().run_cell('1 / 0').error_in_exec;",
    "a representation that is not there": (
        "class Plain:\n    def _repr_html_(self): raise NotImplementedError\nPlain()"
    ),
}


def test_an_error_that_the_block_handles_is_none(live: LiveSession) -> None:
    for name, code in HANDLED.items():
        live.run("1 / 0")
        assert live.run(code).outcome == "ok", name


def test_a_library_that_fails_to_import_shows_no_frame_of_the_session(live: LiveSession) -> None:
    live.run_ok(
        "import os; os.makedirs('plotly/io')\nfor name in ('', 'io/'):\n"
        "    with open(f'plotly/{name}__init__.py', 'w') as file: file.write(name and '1 / 0')"
    )
    for code in ("import plotly.io", "try: import plotly.io\nexcept Exception: raise ValueError"):
        output = live.run(code).output
        assert "io/__init__.py" in output
        assert "library_settings" not in output
        assert "importlib" not in output


def test_what_a_block_captures_has_no_traceback_as_in_a_notebook(live: LiveSession) -> None:
    live.run("%%capture caught\nprint('kept')\n1 / 0")
    assert live.run_ok("caught.stdout, caught.stderr") == r"('kept\n', '')"
