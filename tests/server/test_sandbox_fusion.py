"""The SandboxFusion door: verdicts of programs, by its own client and as trainers call it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from cellblock import Limits
from cellblock.batch import FunctionTests
from cellblock.environments.virtualenv import environment_for, python_of
from cellblock.limits import MIB
from cellblock.server.owners import Overrides
from tests.batch.published import download_human_eval, mixed_solutions

from .rest.requesting import wait_for
from .serving import Server, leaving_post

pytestmark = pytest.mark.timeout(300)


def _run(client: httpx.Client, code: str, **body: Any) -> dict[str, Any]:
    answer = client.post("/run_code", json={"code": code, "language": "python", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_program_gets_its_input_and_files(client: httpx.Client) -> None:
    done = _run(
        client,
        "print(input() + open('in.txt').read())\nopen('out.txt', 'w').write('made')",
        stdin="a line\nmore",
        files={"in.txt": base64.b64encode(b" and a file").decode(), "none": None},
        fetch_files=["out.txt", "missing"],
    )
    assert (done["status"], done["compile_result"]) == ("Success", None)
    assert done["run_result"]["stdout"] == "a line and a file\n"
    assert (done["run_result"]["status"], done["run_result"]["return_code"]) == ("Finished", 0)
    assert done["files"] == {"out.txt": base64.b64encode(b"made").decode()}


def test_late_and_failing_programs_have_their_own_verdicts(client: httpx.Client) -> None:
    done = _run(client, "print('before', flush=True)\nimport signal; signal.pause()", run_timeout=1)
    run = done["run_result"]
    assert (done["status"], run["status"]) == ("Failed", "TimeLimitExceeded")
    assert (run["stdout"], run["return_code"]) == ("before\n", None)
    assert run["execution_time"] > 0.9
    failed = _run(client, "raise SystemExit(3)")
    assert (failed["status"], failed["run_result"]["return_code"]) == ("Failed", 3)


@pytest.mark.slow
def test_large_output_is_complete(client: httpx.Client) -> None:
    done = _run(client, "print('x' * 60_000_000)")
    assert done["status"] == "Success"
    assert done["run_result"]["stdout"] == "x" * 60_000_000 + "\n"


def test_the_memory_limit_ends_a_program(client: httpx.Client) -> None:
    code = "data = bytearray(500_000_000)\nprint(len(data))"
    assert _run(client, code, memory_limit_MB=-1)["status"] == "Success"
    done = _run(client, code, memory_limit_MB=256)
    assert done["status"] == "Failed"
    assert "MemoryError" in done["run_result"]["stderr"]


def test_line_ends_and_coding_cookies_of_a_request_do_not_matter(client: httpx.Client) -> None:
    for language, code in (
        ("bash", "if true; then\r\necho 2\r\nfi\r\n"),
        ("python", "# coding: latin-1\r\nprint(len('\u20ac\u00e9'))\r\n"),
    ):
        assert _run(client, code, language=language)["run_result"]["stdout"] == "2\n"


def test_shell_and_compiled_languages_run(client: httpx.Client) -> None:
    assert _run(client, "cat; exit 0", language="bash", stdin="in")["run_result"]["stdout"] == "in"
    if shutil.which("g++"):
        good = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n + 1; }"
        done = _run(client, good, language="cpp", stdin="41")
        assert (done["status"], done["run_result"]["stdout"]) == ("Success", "42")
        done = _run(client, "int main() { return x; }", language="cpp")
        assert (done["status"], done["run_result"]) == ("Failed", None)
        assert "error" in done["compile_result"]["stderr"]


def test_a_missing_program_is_no_verdict(client: httpx.Client) -> None:
    if shutil.which("rustc") is None:
        assert _run(client, "fn main() {}", language="rust")["status"] == "SandboxError"
    answer = client.post("/run_code", json={"code": "", "language": "klingon"})
    assert answer.status_code == 400


_ACTIVE_RUNS = "cellblock_runs_active "
_LOOK = """import os, site, sys
home, packages = os.path.expanduser("~"), site.getsitepackages()[0]
folders = ".", home, "/tmp", "/dev/shm", packages, sys.prefix + "/bin"
print([sorted(os.listdir(folder)) for folder in folders])
print([oct(os.stat(folder).st_mode) for folder in folders], [os.listxattr(one) for one in folders])
import json; print(json.__file__)
"""
_LEAVE = {
    "a file": "open('left.txt', 'w').write('x')",
    "folders": "import os; os.makedirs('a/b/c'); os.chmod('a/b', 0); open('a/f', 'w')",
    "many files": "for number in range(300): open(f'left-{number}', 'w').write('x')",
    "a home": "import os; os.makedirs(os.path.expanduser('~/.config/x'))",
    "a module": "import site; open(site.getsitepackages()[0] + '/json.py', 'w').write('1/0')",
    "a command": "import os, sys; os.remove(sys.prefix + '/bin/pip')",
    "permissions": "import os; os.chmod('.', 0o500); os.chmod(os.path.expanduser('~'), 0)",
    "an attribute": "import os; os.setxattr('.', 'user.left', b'x')",
    "temporary files": "for top in '/tmp', '/dev/shm': open(top + '/left', 'w').write('x')",
    "a process": "import subprocess; subprocess.Popen(['sh', '-c', 'while :; do :> f; done'])",
}


@pytest.mark.depends_on_user
def test_runs_see_nothing_of_each_other(client: httpx.Client) -> None:
    before = _run(client, _LOOK)
    assert before["status"] == "Success", before
    changed = dict[str, list[Any]]()
    for what, code in _LEAVE.items():
        _run(client, code)
        after = [_run(client, _LOOK)["run_result"]["stdout"] for _ in range(2)]
        if after != [before["run_result"]["stdout"]] * 2:
            changed[what] = after
    assert changed == {}


@pytest.mark.slow
def test_programs_that_take_long_do_not_hold_up_others(
    server: Server, client: httpx.Client
) -> None:
    body = {"code": "while True: pass", "language": "python", "run_timeout": 100}
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            stack.enter_context(leaving_post(server, client, "/run_code", body))
        wait_for(lambda: _active_runs(server, client) == os.cpu_count())
        assert _run(client, "print(1)")["status"] == "Success"
        assert _active_runs(server, client) == os.cpu_count()


def _active_runs(server: Server, client: httpx.Client) -> float:
    text = httpx.get(f"{server.url}/metrics", headers=client.headers).text
    return next(float(line[22:]) for line in text.splitlines() if line[:22] == _ACTIVE_RUNS)


def test_load_does_not_change_a_verdict(client: httpx.Client) -> None:
    code = "end = sum(i for i in range(1_000_000))\nprint(end)"
    with ThreadPoolExecutor(24) as pool:
        done = [pool.submit(_run, client, code, run_timeout=2) for _ in range(24)]
        assert {each.result()["status"] for each in done} == {"Success"}


@pytest.mark.slow
@pytest.mark.network
def test_the_client_from_the_registry(server: Server, key: str) -> None:
    python = python_of(asyncio.run(environment_for(["sandbox-fusion==0.3.7"])))
    url = server.url.replace("://", f"://cellblock:{key}@")  # a URL is all that it takes
    scenario = Path(__file__).parent / "scenarios" / "sandbox_fusion_client.py"
    done = subprocess.run(
        [python, "-W", "ignore", scenario, url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Success", "42", "Failed", "TimeLimitExceeded"]


def test_output_does_not_depend_on_files_of_the_program(client: httpx.Client) -> None:
    cases = {
        ("bash", "echo a; echo b > /dev/stdout; echo c"): ("a\nb\nc\n", ""),
        ("bash", "echo a >&2; echo warn > /dev/stderr; echo c >&2"): ("", "a\nwarn\nc\n"),
        ("python", "import shutil, os; shutil.rmtree(os.getcwd(), True)\nprint(42)"): ("42\n", ""),
        ("python", "import os; print(os.listdir('.'), input())"): ("['main.py'] given\n", ""),
        ("python", "import sys; print('x', file=sys.stderr); sys.exit(3)"): ("", "x\n"),
    }
    for (language, code), output in cases.items():
        run = _run(client, code, language=language, stdin="given\n")["run_result"]
        assert (run["stdout"], run["stderr"]) == output, code


@pytest.mark.slow
def test_what_is_left_out_of_an_answer_is_named(client: httpx.Client) -> None:
    code = "open('big', 'wb').truncate(65 << 20)\nprint('x' * (65 << 20))"
    done = _run(client, code, fetch_files=["big"])
    assert (done["status"], done["files"]) == ("Success", {})
    assert "big is larger than 67108864 bytes" in done["message"]
    assert "The middle of the output was left out" in done["message"]


def test_the_limit_that_ended_a_program_is_named(server: Server) -> None:
    # So few pages that also a busy machine writes to them within the time limit.
    little = Overrides(limits=Limits(memory_bytes=200 * MIB))
    with server.client(server.add_key("little memory", overrides=little)) as client:
        done = _run(
            client, "data = bytearray(1 << 30)\nfor i in range(0, len(data), 4096): data[i] = 1"
        )
    assert done["status"] == "Failed"
    assert "memory" in done["message"] + done["run_result"]["stderr"].lower(), done


@pytest.mark.slow
@pytest.mark.network
def test_human_eval_has_the_verdicts_of_a_batch(client: httpx.Client, tmp_path: Path) -> None:
    passed = list[bool]()
    for program in mixed_solutions(download_human_eval(tmp_path)):
        assert isinstance(program.tests, FunctionTests)
        check = f"{program.tests.code}\ncheck({program.tests.entry_point})\n"
        done = _run(client, f"{program.code}\n{check}", run_timeout=60)
        passed.append(done["status"] == "Success")
    # As in tests/batch/test_ray.py.
    assert passed == [number % 10 > 0 for number in range(164)]
