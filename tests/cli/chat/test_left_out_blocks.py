"""`cellblock chat` never takes code that does not run for success."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.model_service import ask, model_service
from tests.models.http_service import Reply, stream_reply
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("sandbox")
RUST = "```rust\nfn main() {}\n```\n"
TOLD = "Blocks in rust were not run: only blocks in python, sh, bash, pwsh and javascript are."


def test_the_model_learns_that_none_of_its_code_ran_and_can_correct_it() -> None:
    with model_service(RUST, "```python\nprint(6 * 7)\n```\n", "It is 42.") as service:
        done = ask(service, "a task")
        assert done.returncode == 0
        assert TOLD in service.messages(1)[-1][1]
        assert "blocks in rust were not run" in done.stderr


def test_a_model_that_writes_only_code_that_cannot_run_has_not_answered() -> None:
    with model_service(RUST) as service:
        done = ask(service, "a task")
        assert (done.returncode, service.request_count) == (1, 2)
        assert "only code that cannot run here" in done.stderr


def tool_call(name: str, arguments: dict[str, str]) -> Reply:
    """Return the stream of a native call of a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    delta: dict[str, Any] = {
        "tool_calls": [{"index": 0, "id": "1", "type": "function", "function": function}]
    }
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    return stream_reply({"choices": [{"index": 0, "delta": delta}]}, {"choices": [end]})


def test_calls_of_tools_run_if_they_are_code_and_else_the_model_is_told_the_form() -> None:
    call = {"name": "python", "arguments": {"code": "x = 6\nprint(x * 7)"}}
    text = f"<tool_call>\n{json.dumps(call)}\n</tool_call>\n"
    other = tool_call("get_weather", {"city": "Bonn"})
    code = tool_call("python", {"code": "print(x * 7)"})
    with model_service(other, code, text, "It is 42.") as service:
        done = ask(service, "a task", "--max-turns", "5")
        assert done.returncode == 0, done.stderr
        assert "the model called a tool, and is told to write blocks" in done.stderr
        assert "blocks that begin with ```python" in service.messages(1)[-1][1]
        assert ("assistant", "```python\nprint(x * 7)\n```") in service.messages()
        assert "```python\nprint(x * 7)\n```\n" in done.stdout
        assert "```python\nx = 6\nprint(x * 7)\n```\n42\n" in done.stdout  # not only JSON
        assert service.messages()[-1] == ("user", "42\n")
    with model_service(other) as service:
        done = ask(service, "a task")
        assert (done.returncode, service.request_count) == (1, 2)
        assert "the model calls tools, although there are none" in done.stderr


@pytest.mark.parametrize("tag", exhaustive(["rust", "sql", "diff", "json", "html"]))
def test_blocks_that_did_not_run_are_named_beside_the_output_of_the_others(tag: str) -> None:
    with model_service(f"```python\nprint(6 * 7)\n```\n\n```{tag}\nx\n```\n", "42.") as service:
        assert f"blocks in {tag} were not run" in ask(service, "a task").stderr
        assert "42\n" in service.messages()[-1][1]
        assert f"Blocks in {tag} were not run" in service.messages()[-1][1]


@pytest.mark.parametrize("tag", exhaustive(["dockerfile", "diff", "json"]))
@pytest.mark.slow
def test_other_text_that_does_not_run_is_named_and_the_answer_counts(tag: str) -> None:
    with model_service(f"Save this:\n\n```{tag}\nFROM x\n```\n") as service:
        done = ask(service, "a task")
        assert done.returncode == 0
        assert f"blocks in {tag} were not run" in done.stderr


@pytest.mark.parametrize("tag", exhaustive(["sql", "html"]))
def test_only_sql_or_a_page_is_no_answer_and_the_model_is_told(tag: str) -> None:
    with model_service(f"Done:\n\n```{tag}\nSELECT 1\n```\n") as service:
        assert ask(service, "a task").returncode == 1
        assert f"Blocks in {tag} were not run" in service.messages()[-1][1]
        assert "`# filename: NAME`" in service.messages()[-1][1]


@pytest.mark.parametrize("block", exhaustive(["js\nconsole.log(6 * 7)", "tool_code\nprint(6 * 7)"]))
def test_blocks_of_gemini_and_of_javascript_run(block: str) -> None:
    if block.startswith("js") and shutil.which("node") is None:
        pytest.skip("node is missing")
    with model_service(f"```{block}\n```\n", "It is 42.") as service:
        assert ask(service, "a task").returncode == 0
        assert service.messages()[-1] == ("user", "42\n")


@pytest.mark.parametrize(
    ("block", "content"),
    exhaustive(
        [
            ("```csv\n# filename: report.csv\na,b\n```\n", "a,b\n"),
            ("```html\n<!-- filename: report.csv -->\n<p>\n```\n", None),
        ]
    ),
)
def test_data_that_names_a_file_is_saved(cwd: Path, block: str, content: str | None) -> None:
    reader = "```python\nprint(open('report.csv').read())\n```\n"
    with model_service(f"{block}\n{reader}", "Done.") as service:
        done = ask(service, "a task")
        assert (done.returncode, "were not run" in done.stderr) == (0, False)
        saved = (cwd / "coding" / "report.csv").read_text()
        assert saved.strip() in service.messages()[-1][1]
        assert content in (saved, None)


def test_output_in_an_answer_needs_no_word() -> None:
    with model_service("It printed:\n\n```text\n42\n```\n") as service:
        done = ask(service, "a task")
        assert (done.returncode, "not run" in done.stderr) == (0, False)


@pytest.mark.parametrize("text", exhaustive(["", "<think>Well...</think>\n"]))
def test_an_empty_answer_is_no_answer(text: str) -> None:
    with model_service(text) as service:
        done = ask(service, "a task")
        assert done.returncode == 1
        assert "the model's answer is empty" in done.stderr
