"""Where the dict form of `code_execution_config` runs code, and for how long it is kept."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cellblock.chat import ConversableAgent
from tests.chat.console import console
from tests.sandbox.test_guarantees import run_in_container_filter

WITHOUT_NAMESPACES = """
from cellblock import SandboxUnavailable
from cellblock.chat.code_utils import execute_code
try:
    print(execute_code("print('ran')", use_docker=False))
except SandboxUnavailable as error:
    print("unavailable:", error)
print(execute_code("print('ran')", use_docker=False, sandbox=False))
"""
WHEEL = {
    "tiny.py": "ANSWER = 42\n",
    "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny-1.0.dist-info/RECORD": "",
}


def agent(**config: object) -> ConversableAgent:
    return ConversableAgent(
        "a",
        llm_config=False,
        human_input_mode="NEVER",
        code_execution_config={"use_docker": False, **config},
    )


def reply_to(one: ConversableAgent, tag: str, code: str) -> str:
    with console():
        reply = one.generate_reply([{"role": "user", "content": f"```{tag}\n{code}\n```"}])
    return str(reply)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve an index with the package `tiny`, and name it where pip looks for it."""
    folder = tmp_path / "index" / "simple" / "tiny"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in WHEEL.items():
            wheel.writestr(name, text)
    handler = functools.partial(_Quiet, directory=str(tmp_path / "index"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", url)
    yield url
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_later_code_imports_what_earlier_code_installed(package_index: str) -> None:
    one = agent()
    code = "import tiny\nprint(tiny.ANSWER)"
    assert "No module named 'tiny'" in reply_to(one, "python", code)
    assert "execution succeeded" in reply_to(one, "sh", "pip install --no-cache-dir tiny")
    assert reply_to(one, "python", code).endswith("\n42\n")
    assert "No module named 'tiny'" in reply_to(agent(), "python", code), "agents share nothing"


def test_without_the_sandbox_the_error_says_what_to_do() -> None:
    found = run_in_container_filter(WITHOUT_NAMESPACES)
    assert found.startswith("unavailable: "), found
    assert '"use_docker": True in code_execution_config' in found
    assert '"sandbox": False to run it on this machine' in found
    assert found.endswith("(0, 'ran\\n', None)\n"), "sandbox=False is what the error says it is"


def test_executors_end_with_their_agent() -> None:
    one = agent(sandbox=False)
    server = int(reply_to(one, "python", "import os; print(os.getppid())").split()[-1])
    assert os.path.exists(f"/proc/{server}")
    del one
    gc.collect()
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{server}") and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    assert not os.path.exists(f"/proc/{server}")


def test_the_work_folder_is_the_one_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = agent(work_dir="coding")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        reply_to(one, "sh", "touch made")
        assert (tmp_path / name / "coding" / "made").exists()


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"work_dir": 5}, {"use_docker": 5}])
def test_wrong_settings_are_errors(wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        agent(**wrong).run_code("print(1)", **{"use_docker": False, **wrong})


RUNS_UNTIL_INTERRUPTED = """
import sys
from cellblock.chat import ConversableAgent
config = {"use_docker": False, "work_dir": sys.argv[1]}
a = ConversableAgent("a", llm_config=False, human_input_mode="NEVER", code_execution_config=config)
code = "open('started', 'w'); import time; time.sleep(60); open('late', 'w')"
message = {"role": "user", "content": f"```python\\n{code}\\n```"}
try:
    a.generate_reply([message])
except KeyboardInterrupt:
    print("interrupted", a.run_code("print('still works')", **config))
"""


def test_an_interrupt_ends_the_code_and_leaves_the_agent_usable(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS_UNTIL_INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "started").exists():
        threading.Event().wait(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert output.endswith("interrupted (0, 'still works\\n', None)\n")
    assert not (tmp_path / "late").exists()
