"""Real clients: nbclient, jupyter console, and jupyter_kernel_test's own suite."""

from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kernel
_CELLS = (
    "import matplotlib.pyplot as plt\nimport pandas as pd\n"
    "table = pd.DataFrame({'x': [1, 2, 3]})\ntable['square'] = table.x ** 2\ntable",
    "plt.plot(table.x, table.square)\nplt.title('Squares')\nplt.show()",
    "table.plot.bar(x='x')",
    "import os\nos.abort()",
    "int(table.square.sum())",
)


def _notebook() -> Any:
    import nbformat

    notebook: Any = nbformat.v4.new_notebook()  # pyright: ignore[reportUnknownMemberType] - untyped
    notebook.cells = [nbformat.v4.new_code_cell(code) for code in _CELLS]  # pyright: ignore[reportUnknownMemberType] - untyped
    notebook.cells[3].metadata.tags = ["raises-exception"]
    return notebook


@pytest.mark.slow
def test_nbclient_runs_a_notebook_with_plots_and_a_crash(kernels: Path) -> None:
    import nbclient
    import nbformat

    notebook, folder = _notebook(), kernels / "nbclient"
    folder.mkdir()
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="cellblock", resources=resources
    ).execute()
    nbformat.validate(notebook)  # pyright: ignore[reportUnknownMemberType] - untyped
    outputs = [cell.outputs for cell in notebook.cells]
    assert "square" in outputs[0][0].data["text/html"]
    assert [[output.output_type for output in found] for found in outputs[1:]] == [
        ["display_data"],
        ["execute_result", "display_data"],
        ["error"],
        ["execute_result"],
    ]
    assert outputs[1][0].data["image/png"].startswith("iVBOR")
    assert outputs[4][0].data["text/plain"] == "14"
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4, 5]
    assert os.listdir(folder) == ["coding"]
    assert os.listdir(folder / "coding") == []


@pytest.mark.slow
def test_jupyter_console_runs_cells(kernels: Path) -> None:
    import pexpect

    command = [sys.executable, "-m", "jupyter_console", "--kernel=cellblock", "--simple-prompt"]
    (folder := kernels / "console").mkdir()
    terminal: Any = pexpect
    with terminal.spawn(
        *(command[0], command[1:]), cwd=str(folder), encoding="utf-8", timeout=None, echo=False
    ) as console:
        console.expect_exact("In [1]:")
        console.sendline("6 * 7")
        console.expect_exact("Out[1]: 42")
        console.sendline("1/0")
        console.expect_exact("ZeroDivisionError")
        console.sendline("'name ' + input('Who? ')")
        console.expect_exact("Who? ")
        console.sendline("Ada")
        console.expect_exact("'name Ada'")
        console.sendeof()
        console.expect_exact("exit")
        console.sendline("y")
        console.expect(terminal.EOF)


@pytest.mark.slow
def test_the_suite_that_jupyters_authors_publish(kernels: Path) -> None:
    from jupyter_kernel_test import KernelTests

    class Messages(KernelTests):
        kernel_name = "cellblock"
        language_name = "python"
        file_extension = ".py"
        code_hello_world = "print('hello, world')"
        code_stderr = "import sys; print('oops', file=sys.stderr)"
        completion_samples = [{"text": "zi", "matches": {"zip"}}]
        complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
        incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2", "for i in x:"]
        invalid_code_samples = ["import = 7q"]
        code_page_something = "zip?"
        code_generate_error = "raise ValueError"
        code_execute_result = [
            {"code": "1+2+3", "result": "6"},
            {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
        ]
        code_display_data = [
            {"code": "display({'image/png': 'aGk='}, raw=True)", "mime": "image/png"}
        ]
        code_history_pattern = "1?2*"
        supported_history_operations = ("tail", "search", "range")
        code_inspect_sample = "zip"
        code_clear_output = "from IPython.display import clear_output; clear_output()"

    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Messages)
    result = unittest.TestResult()
    tests.run(result)
    assert result.testsRun > 9
    assert [trace for _, trace in (*result.failures, *result.errors)] == []
