"""Blocks in Jupyter kernels on this machine: Python and bash."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    Display,
    FunctionError,
    JupyterCodeExecutor,
    Limits,
    load_component,
    sync,
)
from tests.executors.blocks import area
from tests.executors.jupyter.kernels import run
from tests.executors.programs import run_python

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("kernel_specs")]


@pytest.fixture(scope="module")
def python(work: Path, kernel_specs: None) -> Iterator[sync.JupyterCodeExecutor]:
    with sync.JupyterCodeExecutor(work_dir=work, timeout=30) as executor:
        yield executor


@pytest.fixture(scope="module")
def bash(
    tmp_path_factory: pytest.TempPathFactory, kernel_specs: None
) -> Iterator[sync.JupyterCodeExecutor]:
    with sync.JupyterCodeExecutor(
        "bash", timeout=2, work_dir=tmp_path_factory.mktemp("bash")
    ) as executor:
        yield executor


# notebook semantics


def test_images_and_html_pages_are_saved_as_files(python: sync.JupyterCodeExecutor) -> None:
    code = """
from IPython.display import HTML, SVG, Image, display
import base64
display(Image(base64.b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAA="), format="gif"))
display({"image/png": "aGVsbG8=", "image/jpeg": "aGVsbG8="}, raw=True)
display(SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"))
HTML("<b>bold</b>")
"""
    result = run(python, code)
    assert [path.suffix for path in result.output_files] == [".gif", ".png", ".svg", ".html"]
    assert all(path.parent == python.output_dir for path in result.output_files)
    assert result.output_files[1].read_bytes() == b"hello"
    assert result.output_files[-1].read_text() == "<b>bold</b>"
    assert "<IPython.core.display.HTML object>\n" in result.output
    assert result.displays[-1]["text/html"] == "<b>bold</b>"
    assert result.blocks[0].output_files == result.output_files


@pytest.mark.slow
def test_a_display_that_cannot_be_saved_takes_no_output_away(tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    with sync.JupyterCodeExecutor(output_dir=folder) as executor:
        code = (
            f"open({str(folder)!r}, 'x').close()\nprint('one')\n"
            "display({'text/html': '<b>bold</b>'}, raw=True)\nprint('two')"
        )
        result = run(executor, code)
    assert (result.exit_code, result.output_files) == (0, [])
    assert result.stdout.startswith("one\n")
    assert result.stdout.endswith("two\n")
    assert "cannot be saved" in result.stderr
    assert result.displays == [{"text/html": "<b>bold</b>"}]


def test_the_first_block_is_the_first_entry_of_the_history_and_output_files_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with sync.JupyterCodeExecutor(output_dir="shown") as executor:
        assert run(executor, "print(In)").output == "['', 'print(In)']\n"
        assert "Cell In[2], line 1" in run(executor, "1 / 0").output
        result = run(executor, "from IPython.display import HTML\nHTML('<b>')")
    assert [path.parent for path in result.output_files] == [tmp_path / "shown"]


@pytest.mark.slow
def test_a_matplotlib_figure_is_saved_as_an_image(python: sync.JupyterCodeExecutor) -> None:
    result = run(
        python, "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()"
    )
    assert result.exit_code == 0, result.output
    assert [path.read_bytes()[:4] for path in result.output_files] == [b"\x89PNG"]


def test_sys_exit_sets_the_exit_code_and_leaves_the_kernel_running(
    python: sync.JupyterCodeExecutor,
) -> None:
    run(python, "kept = 1")
    for argument, exit_code, output in (
        ("3", 3, ""),
        ("0", 0, ""),
        ("None", 0, ""),
        ("'x'", 1, "x\n"),
    ):
        result = run(python, f"import sys; sys.exit({argument})")
        assert (argument, result.exit_code, result.output) == (argument, exit_code, output)
    assert run(python, "kept").output == "1\n"


def test_the_last_expression_and_a_traceback_are_as_in_a_notebook(
    python: sync.JupyterCodeExecutor,
) -> None:
    assert run(python, "6 * 7").displays == [{"text/plain": "42"}]
    result = run(python, "print('before')\n1/0")
    assert (result.exit_code, result.outcome, result.stdout) == (1, "error", "before\n")
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_display_events_name_their_files(python: sync.JupyterCodeExecutor) -> None:
    events = python.execute_stream(
        [CodeBlock("from IPython.display import HTML\nHTML('x')", "python")]
    )
    (display,) = [event for event in events if isinstance(event, Display)]
    assert [Path(path).suffix for path in display.files] == [".html"]


def test_output_of_child_processes_belongs_to_their_block(python: sync.JupyterCodeExecutor) -> None:
    for number in range(10):
        code = f"import subprocess\nsubprocess.run(['echo', '{number}'])\nNone"
        assert run(python, code).output == f"{number}\n"


def test_output_of_child_processes_is_awaited_though_its_reader_is_slow(
    python: sync.JupyterCodeExecutor,
) -> None:
    code = """
        import subprocess, sys, time
        for stream in sys.stdout, sys.stderr:
            stream.write = lambda text, write=stream.write: (time.sleep(0.02), write(text))
        subprocess.run("seq 1000 >&DESCRIPTOR", shell=True)
        None
    """
    for descriptor in ("1", "2"):
        result = run(python, textwrap.dedent(code).replace("DESCRIPTOR", descriptor))
        run(python, "del sys.stdout.write, sys.stderr.write")
        assert result.output == "".join(f"{number}\n" for number in range(1, 1001))


def test_output_over_the_limit_is_truncated(work: Path) -> None:
    with sync.JupyterCodeExecutor(
        limits=Limits(output_bytes=1000), save_output=True, work_dir=work / "much"
    ) as executor:
        result = run(executor, "print('a' * 5000 + 'z')")
    assert result.output == "a" * 500 + "\n[... 4002 bytes left out ...]\n" + "a" * 498 + "z\n"
    (saved,) = result.files
    assert (work / "much" / saved).read_text() == "a" * 5000 + "z\n"


def test_saved_output_stays_in_its_file_when_code_replaces_that_by_a_link(work: Path) -> None:
    private = work / "private"
    private.write_text("secret")
    code = f"""
    import glob, os, time
    print("first", flush=True)
    while not (found := glob.glob("output_*.txt")): time.sleep(0.01)
    os.remove(found[0])
    os.symlink({str(private)!r}, found[0])
    print("second", flush=True)
    """
    with sync.JupyterCodeExecutor(save_output=True, work_dir=work / "replaced") as executor:
        run(executor, textwrap.dedent(code))
    assert private.read_text() == "secret"


# languages, files and functions


def test_blocks_in_other_languages_run_as_fresh_processes(
    python: sync.JupyterCodeExecutor, work: Path
) -> None:
    result = python.execute_code_blocks(
        [
            CodeBlock("open('shared.txt', 'w').write('from python')\nkept = 1", "py"),
            CodeBlock("cat shared.txt; echo; echo error >&2; command -v python", "sh"),
            CodeBlock("kept", "python"),
            CodeBlock("{}", "json"),
            CodeBlock("x", "brainfuck"),
        ]
    )
    python_program = Path(result.blocks[1].stdout.splitlines()[1])
    assert result.blocks[1].stdout.startswith("from python\n")
    assert result.blocks[1].stderr == "error\n"
    assert python_program.parent == Path(sys.executable).parent
    assert [block.exit_code for block in result.blocks] == [0, 0, 0, 0, 1]
    assert result.output.endswith("unknown language brainfuck")
    assert "shared.txt" in result.files
    assert (work / "shared.txt").exists()


def test_named_blocks_are_saved_inside_the_work_folder_only(
    python: sync.JupyterCodeExecutor, work: Path
) -> None:
    result = run(python, "# filename: twice.py\ndef twice(x):\n    return 2 * x")
    assert result.exit_code == 0
    assert result.blocks[0].code_file == str(work / "twice.py")
    assert run(python, "import twice\ntwice.twice(4)").output == "8\n"
    outside = run(python, "# filename: ../outside.py\nprint('ran')")
    assert (outside.exit_code, outside.output) == (1, "Filename is not in the workspace")


@pytest.mark.slow
def test_a_bash_kernel_keeps_its_state_also_after_a_timeout(bash: sync.JupyterCodeExecutor) -> None:
    assert run(bash, "number=41", "bash").exit_code == 0
    assert run(bash, "echo $((number + 1)); false", "sh").output == "42\n"
    assert run(bash, "(exit 42)", "shell").exit_code == 42
    assert run(bash, "print(6 * 7)", "python").output == "42\n"
    result = run(bash, "echo so far; sleep 60", "bash")
    assert (result.exit_code, result.outcome, result.stdout.strip()) == (124, "timeout", "so far")
    assert run(bash, "echo $number", "bash").output == "41\n"


def failing() -> None:
    """Fail."""
    raise ValueError("told in the traceback")


@pytest.mark.slow
def test_functions_can_be_imported_and_survive_a_restart(work: Path) -> None:
    with sync.JupyterCodeExecutor(
        work_dir=work, functions=[area, failing], functions_module="tools"
    ) as executor:
        assert run(executor, "from tools import area\narea(2)").output == "13\n"
        assert (
            "told in the traceback"
            in run(executor, "import tools\ntools.failing()").stderr.splitlines()[-1]
        )
        run(executor, "import os; os._exit(1)")
        assert run(executor, "from tools import area\narea(2)").output == "13\n"
        assert not (work / "tools.py").exists()
        assert "def area(radius: float) -> int:" in executor.format_functions_for_prompt()


def test_functions_require_a_python_kernel(work: Path) -> None:
    with pytest.raises(FunctionError, match="bash"):
        sync.JupyterCodeExecutor("bash", work_dir=work, functions=[area]).start()


# errors at the start, saving and loading


def test_the_error_for_a_missing_kernel_lists_the_installed_ones() -> None:
    with pytest.raises(
        BackendError, match=r"'nothing' is not installed; installed are: bash, broken, python3"
    ):
        sync.JupyterCodeExecutor("nothing").start()


def test_the_error_for_a_kernel_that_does_not_start_quotes_its_output() -> None:
    with pytest.raises(BackendError, match="no kernel today"):
        sync.JupyterCodeExecutor("broken").start()


def test_invalid_arguments_raise_value_errors() -> None:
    with pytest.raises(ValueError, match="Timeout must be greater than or equal to 1."):
        JupyterCodeExecutor(timeout=0)
    with pytest.raises(ValueError, match="kernel_name"):
        JupyterCodeExecutor("")
    with pytest.warns(DeprecationWarning, match="current directory as output_dir"):
        JupyterCodeExecutor(output_dir=".")


def test_without_the_extra_the_error_names_the_package_to_install() -> None:
    code = (
        "import sys; sys.modules['jupyter_client'] = None\n"
        "from cellblock.sync import JupyterCodeExecutor\n"
        "try: JupyterCodeExecutor().start()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = run_python("-c", code)
    assert done.stdout.startswith("BackendError")
    assert "pip install 'cellblock[jupyter]'" in done.stdout


def test_an_executor_can_be_saved_and_loaded(tmp_path: Path) -> None:
    made = JupyterCodeExecutor(
        "python3",
        5,
        tmp_path / "out",
        work_dir=tmp_path,
        functions=[area],
        limits=Limits(output_bytes=9),
        save_output=True,
    )
    loaded = load_component(json.loads(made.dump_component().to_json()))
    assert isinstance(loaded, JupyterCodeExecutor)
    assert loaded.dump_component() == made.dump_component()
    assert (loaded.kernel_name, loaded.timeout, loaded.output_dir) == (
        "python3",
        5,
        tmp_path / "out",
    )
    assert loaded.limits == replace(Limits.unlimited(), output_bytes=9)


def test_a_configuration_of_autogen_can_be_loaded() -> None:
    loaded = load_component(
        {
            "provider": "autogen_ext.code_executors.jupyter.JupyterCodeExecutor",
            "component_type": "code_executor",
            "version": 1,
            "component_version": 1,
            "config": {"kernel_name": "python3", "timeout": 7, "output_dir": None},
        }
    )
    assert isinstance(loaded, JupyterCodeExecutor)
    assert loaded.timeout == 7
