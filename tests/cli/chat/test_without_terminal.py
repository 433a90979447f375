"""`cellblock chat` in a script: a task in, an answer out, and clear errors."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.chat.model_service import answer, ask, model_service
from tests.cli.cli_process import run_command
from tests.command_server import CommandProcess
from tests.suite.tiers import exhaustive

WRONG_USAGE = {
    "--demo task": "--demo plays its own conversation",
    "--save notes.txt --demo": "notes.txt must end with .md or .ipynb",
    "--resume notes.txt task": "a file that ends with .md or .ipynb",
    "--price 3 --demo": "'3' is not two prices such as 2.5/10",
    "--price -1/2 --demo": "'-1/2' is not two prices such as 2.5/10",
    "task": "code cannot be approved",
    "--approve never": "there is no task",
    "--max-turns 0 --demo": "0 is not in the range",
    "--image x --demo": "--image applies only to",
    "--approve never --resume gone.md task": "gone.md cannot be read: No such",
    "--demo --save notes.md": "notes.md exists: pass --resume notes.md",
}
CODE = "I count.\n\n```python\nprint(6 * 7)\n```\n"


def test_without_a_model_three_lines_say_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_command("chat", "--approve", "never", "a task")
    assert done.returncode == 3
    first, second, third = done.stderr.splitlines()
    assert "--demo" in first
    assert "OPENAI_API_KEY" in second
    assert "--model" in second
    assert "--base-url" in third
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")  # a key alone is no model
    done = run_command("chat", "--approve", "never", "a task")
    assert done.returncode == 3
    assert "--model NAME" in done.stderr


def test_wrong_usage_is_refused() -> None:
    Path("notes.md").write_text("precious")
    faults: list[object] = []
    for arguments, message in WRONG_USAGE.items():
        done = run_command("chat", *arguments.split())
        told = message in done.stderr and "see cellblock chat --help" in done.stderr
        if (done.returncode, told) != (2, True):
            faults.append((arguments, done))
    assert faults == []
    assert Path("notes.md").read_text() == "precious"


@pytest.mark.usefixtures("sandbox")
def test_the_demo_runs_its_code(cwd: Path) -> None:
    done = run_command("chat", "--demo")
    assert done.returncode == 0, done.stderr
    assert "  7  16.51%  16.67%" in done.stdout
    assert "TypeError" in done.stderr  # the model's mistake, which it corrects
    assert (cwd / "coding" / "mandelbrot.png").read_bytes().startswith(b"\x89PNG")
    assert "created coding/mandelbrot.png" in done.stderr


@pytest.mark.usefixtures("sandbox")
def test_the_model_sees_the_output_of_its_code() -> None:
    with model_service(CODE, "It is 42.") as service:
        done = ask(service, "--price", "2.5/10", "What is 6 * 7?")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{CODE}42\n\nIt is 42.\n"
        assert "2,000 tokens read, 400 written, about $0.009" in done.stderr
        assert service.request_count == 2
        system, *rest = service.messages()
        assert system[0] == "system"
        assert rest == [
            ("user", "What is 6 * 7?"),
            ("assistant", CODE.strip()),
            ("user", "42\n"),
        ]


@pytest.mark.usefixtures("sandbox")
def test_the_task_can_come_from_standard_input() -> None:
    with model_service("Hello.") as service:
        assert ask(service, given="Say hello.\n").stdout == "Hello.\n"
        assert service.messages()[-1] == ("user", "Say hello.\n")


@pytest.mark.usefixtures("sandbox")
def test_code_that_looks_risky_is_refused_without_a_person() -> None:
    risky = "```python\nimport socket\nprint('ran')\n```\n"
    with model_service(risky, "I stop.") as service:
        done = ask(service, "--approve", "risky", "a task")
        assert "ran\n" not in done.stdout.replace(risky, "")
        assert "line 1: network (imports socket)" in service.messages()[-1][1]


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(("turns", "told"), exhaustive([("1", "once"), ("3", "3 times")]))
def test_a_model_that_does_not_come_to_an_end_is_stopped(turns: str, told: str) -> None:
    with model_service(*(f"```python\nprint({n})\n```\n" for n in range(3))) as service:
        done = ask(service, "--max-turns", turns, "a task")
        assert (done.returncode, service.request_count) == (1, int(turns))
        assert f"answered {told} (--max-turns)" in done.stderr


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("approve", "code", "told"),
    exhaustive(
        [
            ("never", "1 / 0", "code that fails"),
            ("never", "print('same')", "code whose output stays the same"),
            ("risky", "import socket", "code that fails"),
            ("never", "import nope", "code that fails"),
        ],
        keep=2,
    ),
)
def test_a_model_that_repeats_itself_is_stopped(approve: str, code: str, told: str) -> None:
    with model_service(f"```python\n{code}\n```\n") as service:
        done = ask(service, "--approve", approve, "a task")
        assert (done.returncode, service.request_count) == (1, 3)
        assert f"the model repeats {told}" in done.stderr


@pytest.mark.usefixtures("sandbox")
def test_code_of_an_answer_that_is_cut_off_does_not_run(cwd: Path) -> None:
    half = "```python\nopen('ran', 'w')\n"
    with model_service(answer(half, finish_reason="length")) as service:
        done = ask(service, "a task")
        assert "the answer was cut off" in done.stderr
        assert "the code did not run: its end may be missing" in done.stderr
        assert done.returncode == 1
        assert not (cwd / "ran").exists()


@pytest.mark.usefixtures("sandbox")
def test_a_server_that_does_not_answer_is_an_error_and_the_task_is_saved(cwd: Path) -> None:
    arguments = ("--base-url", "http://127.0.0.1:9/v1", "--model", "local", "--approve", "never")
    done = run_command("chat", *arguments, "--save", "notes.md", "the task")
    assert done.returncode == 3
    assert "cellblock: " in done.stderr
    assert "the task" in (cwd / "notes.md").read_text()


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("name", exhaustive(["notes.ipynb", "notes.md"]))
def test_a_saved_conversation_goes_on(cwd: Path, name: str) -> None:
    with model_service(CODE, "It is 42.", "It was 6 * 7.") as service:
        ask(service, "--save", name, "What is 6 * 7?")
        first = service.messages()
        done = ask(service, "--resume", name, "What was the question?")
        assert done.stdout == "It was 6 * 7.\n"
        expected = [*first[1:], ("assistant", "It is 42."), ("user", "What was the question?")]
        assert service.messages()[1:] == expected
        assert "It was 6 * 7." in (cwd / name).read_text()


@pytest.mark.usefixtures("sandbox")
def test_ctrl_c_ends_the_command_and_keeps_the_output(cwd: Path) -> None:
    code = "```python\nimport time\nprint('be' + 'gun', flush=True)\ntime.sleep(60)\n```\n"
    with model_service(code, "Done.") as service:
        arguments = ["--base-url", service.url, "--model", "local", "--approve", "never"]
        process = CommandProcess[bytes](
            ["chat", *arguments, "--save", "notes.md", "a task"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        while process.stdout.readline() != b"begun\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
        assert service.request_count == 1
        assert "begun" in (cwd / "notes.md").read_text()
