"""What a model is shown of a result, word for word."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeExecutor,
    CodeResult,
    Limits,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SessionCodeResult,
)
from cellblock.observation import Picture, observe, shorten

pytestmark = pytest.mark.usefixtures("kept_servers")
PNG = b"\x89PNG\r\n\x1a\n and more"
BLANK = (
    "The script ran but produced no output to console. The POSIX exit code was: {}. If you were "
    "expecting output, consider revising the script to ensure content is printed to stdout."
)
FAILED = "The script ran, then exited with an error (POSIX exit code: {})\nIts output was:\n"


def run(executor: CodeExecutor, *codes: str, language: str = "python") -> CodeResult:
    async def run_blocks() -> CodeResult:
        async with executor:
            blocks = [CodeBlock(code, language) for code in codes]
            return await executor.execute_code_blocks(blocks)

    return asyncio.run(run_blocks())


# AutoGen's texts


def test_output_is_shown_as_it_is_and_blank_output_with_the_exit_code() -> None:
    assert observe(CodeResult(0, " 1\n\n")).text == " 1\n\n"
    assert observe(CodeResult(2, "no\n")).text == FAILED.format(2) + "no\n"
    for exit_code in (0, 3):
        for output in ("", " \n\t\n"):
            assert observe(CodeResult(exit_code, output)).text == BLANK.format(exit_code)


def test_the_signal_of_a_crash_is_told() -> None:
    told = observe(CodeResult(139, "", outcome="error")).text
    assert told == f"{BLANK.format(139)}\nExit code 139: signal 11 (SIGSEGV) killed the program."
    shown = observe(CodeResult(134, "SIGABRT\n", outcome="error")).text
    assert shown == f"{FAILED.format(134)}SIGABRT\n"
    assert "signal" not in observe(CodeResult(130, "", outcome="error")).text


# long output


def test_head_and_tail_of_long_output_are_kept() -> None:
    text = observe(CodeResult(0, "a" * 50 + "b" * 100 + "c" * 50), max_characters=100).text
    assert text == "a" * 50 + "\n[... 100 characters left out ...]\n" + "c" * 50


def test_output_of_just_the_limit_is_kept_whole_and_the_number_left_out_is_exact() -> None:
    assert observe(CodeResult(0, "x" * 20_000)).text == "x" * 20_000
    assert "\n[... 1 characters left out ...]\n" in observe(CodeResult(0, "x" * 20_001)).text
    assert observe(CodeResult(0, "x" * 50_000), max_characters=None).text == "x" * 50_000
    for limit in (1, 2, 5):
        note = f"\n[... {10 - limit} characters left out ...]\n"
        text = shorten("0123456789", limit)
        assert note in text
        assert len(text) == limit + len(note)
    with pytest.raises(ValueError, match="max_characters must be at least 1 or None, not 0"):
        observe(CodeResult(0, ""), max_characters=0)


# tracebacks

PARSE = "import json\ndef parse(text):\n    return json.loads(text)\nparse('{bad')\n"


def frame_lines(text: str) -> list[str]:
    """Return the first lines of frames; how many a library has depends on its version."""
    lines = [line.strip() for line in text.splitlines() if re.match(r" *(File|Cell|\[\d)", line)]
    return [re.sub(r"\d+ library frames?", "N", line) for line in lines]


def test_a_traceback_shows_only_frames_of_the_code() -> None:
    result = run(SandboxCommandLineCodeExecutor(), f"# filename: job.py\n{PARSE}")
    text = observe(result).text
    assert text.startswith(FAILED.format(1) + "Traceback (most recent call last):\n")
    assert frame_lines(text) == [
        'File "/workspace/job.py", line 5, in <module>',
        'File "/workspace/job.py", line 4, in parse',
        "[N left out]",
    ]
    assert "    return json.loads(text)\n" in text
    assert text.endswith(
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)\n"
    )


def test_a_traceback_of_a_session_shows_only_frames_of_the_code() -> None:
    text = observe(run(SandboxSessionCodeExecutor(), PARSE)).text
    assert frame_lines(text) == [
        "Cell In[1], line 4",
        "Cell In[1], line 3, in parse(text)",
        "[N left out]",
    ]
    assert "----> 3     return json.loads(text)\n\n[" in text
    assert "left out]\n\nJSONDecodeError: Expecting property name" in text


# What Python 3.11 and IPython 9 write.
PYTHON_FRAMES = """\
Traceback (most recent call last):
  File "/workspace/job.py", line 5, in <module>
    parse('{bad')
  File "/workspace/job.py", line 3, in parse
    return json.loads(text)
           ^^^^^^^^^^^^^^^^
"""
PYTHON_END = """\
  File "/workspace/job.py", line 9, in hook
    boom()
ValueError: in hook
"""
PYTHON_TRACEBACK = f"""\
{PYTHON_FRAMES}  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "<frozen importlib._bootstrap>", line 1204, in _gcd_import
  File "/venv/lib/python3.11/site-packages/simplejson/decoder.py", line 353, in raw_decode
    obj, end = self.scan_once(s, idx)
               ^^^^^^^^^^^^^^^^^^^^^^
  [Previous line repeated 8 more times]
{PYTHON_END}"""
CUT_PYTHON_TRACEBACK = f"{PYTHON_FRAMES}  [3 library frames left out]\n{PYTHON_END}"
IPYTHON_FRAMES = """\
---------------------------------------------------------------------------
JSONDecodeError                           Traceback (most recent call last)
Cell In[3], line 1
----> 1 parse("{bad")

File /workspace/job.py:3, in parse(text)
      2 def parse(text):
----> 3     return json.loads(text)

"""
IPYTHON_END = "\nJSONDecodeError: Expecting property name enclosed in double quotes\n"
IPYTHON_TRACEBACK = f"""\
{IPYTHON_FRAMES}File ~/.pyenv/versions/3.11.7/lib/python3.11/json/__init__.py:346, in loads(s, cls)
    345         parse_constant is None and object_pairs_hook is None and not kw):
--> 346     return _default_decoder.decode(s)
    347 if cls is None:

File <frozen runpy>:198, in run()
{IPYTHON_END}"""
CUT_IPYTHON_TRACEBACK = f"{IPYTHON_FRAMES}[2 library frames left out]\n{IPYTHON_END}"


def test_a_cut_traceback_word_for_word() -> None:
    for output, shown in (
        (PYTHON_TRACEBACK, CUT_PYTHON_TRACEBACK),
        (IPYTHON_TRACEBACK, CUT_IPYTHON_TRACEBACK),
    ):
        assert observe(CodeResult(1, output)).text == FAILED.format(1) + shown
        around = observe(CodeResult(1, f"before\n{output}after\n")).text
        assert around == f"{FAILED.format(1)}before\n{shown}after\n"


def test_frames_between_those_of_the_code_are_left_out_in_place(tmp_path: Path) -> None:
    code = (
        "import functools\ndef fail(a, b):\n    raise KeyError(a)\nfunctools.reduce(fail, [1, 2])"
    )
    callback = (
        "import asyncio\nasync def main():\n    raise KeyError(3)\nasync def outer():\n"
        "    await asyncio.wait_for(main(), 5)\nasyncio.run(outer())\n"
    )
    with pytest.warns(UserWarning, match="local machine"):
        executor = LocalCommandLineCodeExecutor(work_dir=tmp_path)
    text = observe(run(executor, f"# filename: job.py\n{callback}")).text
    assert frame_lines(text) == [
        f'File "{tmp_path}/job.py", line 7, in <module>',
        "[N left out]",
        f'File "{tmp_path}/job.py", line 6, in outer',
        "[N left out]",
        f'File "{tmp_path}/job.py", line 4, in main',
    ]
    assert "left out" not in observe(run(executor, code)).text


def test_a_chain_and_a_group_of_errors_stay_readable() -> None:
    code = (
        "import json\n"
        "try:\n    json.loads('')\n"
        "except ValueError as error:\n    raise ExceptionGroup('several', [error, KeyError(2)])\n"
    )
    text = observe(run(SandboxCommandLineCodeExecutor(), code)).text
    assert text.count("\n  [3 library frames left out]\n") == 1
    assert "\n    |   [3 library frames left out]\n" in text
    assert "During handling of the above exception" in text
    assert "lib/python3" not in text


def test_a_traceback_of_a_success_or_without_a_frame_of_the_code_is_kept() -> None:
    output = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/runpy.py", line 198, in _run_module_as_main\n'
        "    return _run_code(code, main_globals, None,\n"
        "ImportError: no\n"
    )
    assert observe(CodeResult(1, output)).text == FAILED.format(1) + output
    assert observe(CodeResult(0, PYTHON_TRACEBACK)).text == PYTHON_TRACEBACK


# notes


def test_files_are_named() -> None:
    code = "open('a.csv', 'w')\nopen('b.csv', 'w')\nopen('c\\n.csv', 'w')\nprint(1)"
    text = observe(run(SandboxCommandLineCodeExecutor(), code)).text
    assert text == "1\nFiles created or changed: a.csv, b.csv, 'c\\n.csv'"
    names = [f"{number}.txt" for number in range(60)]
    text = observe(CodeResult(0, "x", files=names)).text
    assert text.endswith("48.txt, 49.txt, and 10 more")
    assert observe(CodeResult(0, "", files=["a"])).text == (
        BLANK.format(0) + "\nFiles created or changed: a"
    )


def test_a_limit_is_told_once() -> None:
    wait = "import time; print(1, flush=True); time.sleep(600)"
    timeout = run(SandboxCommandLineCodeExecutor(limits=Limits(wall_seconds=2)), wait)
    assert observe(timeout).text == FAILED.format(124) + "1\n\nTimeout"
    limits = Limits(memory_bytes=64 << 20)
    memory = run(SandboxCommandLineCodeExecutor(limits=limits), "b'x' * (1 << 30)")
    assert observe(memory).text == (
        FAILED.format(137) + "\nOut of memory: the limit of 67108864 bytes (memory_bytes)."
    )
    # An ending that the output does not tell is added.
    for outcome, limit, note in (
        ("out_of_memory", None, "The code ran out of memory."),
        ("timeout", "wall_seconds", "The code reached the time limit."),
        ("killed", "written_bytes", "The code reached the limit written_bytes."),
    ):
        result = CodeResult(137, "x", outcome=outcome, limit=limit)  # pyright: ignore[reportArgumentType] - a loop variable
        assert observe(result).text == f"{FAILED.format(137)}x\n{note}"


def test_a_restored_and_a_new_session_are_told_once() -> None:
    died = run(
        SandboxSessionCodeExecutor(), "import os\nx = 1", "print(x, flush=True)\nos._exit(3)"
    )
    assert observe(died).text == (
        FAILED.format(3)
        + "1\nThe session was restored: its variables are as they were before this block."
    )
    notice = "The session was restarted: its variables are gone."
    lost = SessionCodeResult(1, f"x\n{notice}", notice=notice)
    assert observe(lost).text == f"{FAILED.format(1)}x\n{notice}"


# pictures


def displays(*bundles: Mapping[str, Any]) -> CodeResult:
    return CodeResult(0, "x", displays=list(bundles))


def test_a_picture_of_a_session_is_shown() -> None:
    picture = base64.b64encode(PNG).decode()
    code = (
        "from IPython.display import display\n"
        f"display({{'image/png': '{picture}', 'text/plain': '<a plot>'}}, raw=True)"
    )
    seen = observe(run(SandboxSessionCodeExecutor(), code))
    assert re.fullmatch(r"<a plot>\nFiles created or changed: \w+\.png", seen.text)
    assert seen.pictures == (Picture("image/png", PNG),)


def test_what_is_no_picture_for_models_is_not_shown() -> None:
    svg = {"image/svg+xml": "<svg/>", "text/html": "<p>"}
    assert observe(displays(svg, {"image/png": "not base64!"}, {"image/png": 3})).pictures == ()


def test_large_and_many_pictures_are_left_out_and_told() -> None:
    large = {"image/png": base64.b64encode(bytes(5_000_000)).decode()}
    small = {"image/jpeg": base64.b64encode(b"x").decode()}
    seen = observe(displays(large, *[small] * 12))
    assert seen.pictures == (Picture("image/jpeg", b"x"),) * 10
    assert seen.text == (
        "x\nPictures left out because they are too large: 1\n"
        "Pictures left out because there are too many: 2"
    )
