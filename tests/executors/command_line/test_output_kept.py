"""All output of a program is kept, even if the program does not wait for space in a full pipe."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeResult,
    DockerCommandLineCodeExecutor,
    DockerSessionCodeExecutor,
)
from cellblock.sync import SandboxSessionCodeExecutor, SyncCodeExecutor
from tests.executors.session import session_image
from tests.sandbox.probes import checked_output, local, sandbox

LINES = 500
NODE = f"""
for (let number = 0; number < {LINES}; number++) {{
  console.log("out " + number); console.error("err " + number);
}}
process.exit(3);
"""
UNCAUGHT_ERROR = (
    "console.log('out'); console.error('err'); console.log('out'); throw new Error('thrown')"
)
WRITE = f"""
for number in range({LINES}):
    os.write(1, b"out %d\\n" % number)
    os.write(2, b"err %d\\n" % number)
"""
PYTHON = f"import os; os.set_blocking(1, False); os.set_blocking(2, False){WRITE}"
FLAGS = (
    f"import fcntl, os; [fcntl.fcntl(stream, fcntl.F_SETFL, os.O_NONBLOCK) for stream in (1, "
    f"2)]{WRITE}"
)
BOTH = "".join(f"out {number}\nerr {number}\n" for number in range(LINES))


@pytest.fixture(scope="module", params=["sandbox", "weaker sandbox", "session", "local"])
def executor(request: pytest.FixtureRequest) -> Iterator[SyncCodeExecutor]:
    kinds = {"session": SandboxSessionCodeExecutor, "local": local}
    options: dict[str, Any] = {"isolation": "landlock"} if request.param == "weaker sandbox" else {}
    with kinds.get(request.param, sandbox)(**options) as made:
        yield made


def run(executor: SyncCodeExecutor, code: str, language: str) -> CodeResult:
    return executor.execute_code_blocks([CodeBlock(code, language)])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_programs_of_node_keep_their_output(executor: SyncCodeExecutor) -> None:
    ended = run(executor, NODE, "javascript")
    assert (ended.exit_code, ended.output) == (3, BOTH)
    code = f"cat > ends.js <<'END'\n{NODE}\nEND\nnode ends.js; echo ended $?"
    assert run(executor, code, "sh").output == f"{BOTH}ended 3\n"
    thrown = run(executor, UNCAUGHT_ERROR, "javascript")
    assert thrown.output.startswith("out\nerr\nout\n"), thrown.output
    assert "Error: thrown" in thrown.stderr
    version = checked_output(executor, "node --version", "sh")
    assert thrown.stderr.endswith(f"Node.js {version}\n")


@pytest.mark.parametrize("executor", ["sandbox", "weaker sandbox", "session"], indirect=True)
def test_a_non_blocking_stream_keeps_all_output(executor: SyncCodeExecutor) -> None:
    for code in (PYTHON, FLAGS):
        assert checked_output(executor, code) == BOTH.strip(), code


@pytest.mark.parametrize("executor", ["sandbox", "session"], indirect=True)
def test_a_print_interrupted_by_signals_keeps_all_output(executor: SyncCodeExecutor) -> None:
    code = """
import signal, sys
signal.signal(signal.SIGALRM, lambda *_: print("!", end="", file=sys.stderr))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(10):
    print("x" * 80_000)
none_left = signal.setitimer(signal.ITIMER_REAL, 0)
"""
    result = run(executor, code, "python")
    assert result.stdout == ("x" * 80_000 + "\n") * 10, result.stderr[-500:]
    assert set(result.stderr) == {"!"}


@pytest.mark.engine
@pytest.mark.parametrize("kind", [DockerCommandLineCodeExecutor, DockerSessionCodeExecutor])
def test_a_non_blocking_stream_in_a_container_keeps_all_output(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = session_image.use_session_image(monkeypatch)

    async def main() -> CodeResult:
        async with kind(image) as executor:
            return await executor.execute_code_blocks([CodeBlock(PYTHON, "python")])

    assert asyncio.run(main()).output == BOTH


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_callers_node_options_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_OPTIONS", "--stack-trace-limit=3")
    with local() as executor:
        assert (
            checked_output(
                executor, "console.log(Error.stackTraceLimit); process.exit()", "javascript"
            )
            == "3"
        )


def test_without_node_the_environment_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with local() as executor:
        assert (
            checked_output(executor, "import os; print(os.environ.get('NODE_OPTIONS'))") == "None"
        )
