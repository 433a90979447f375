"""The checker finds what a program uses of AutoGen, and judges it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from cellblock.compat.check.report import FileReport, Verdict, check_file
from cellblock.compat.check.source_files import find_files


def check(folder: Path, program: str) -> FileReport:
    path = folder / "program.py"
    path.write_text(dedent(program))
    return check_file(path)


def found(report: FileReport, verdict: Verdict) -> dict[str, list[str]]:
    return {finding.name: finding.places for finding in report.with_verdict(verdict)}


# names


def test_imported_names_are_covered(tmp_path: Path) -> None:
    report = check(
        tmp_path,
        """
        from autogen_core.models import UserMessage as Message
        import autogen_agentchat.messages as messages, os
        print(messages.TextMessage, Message, os.path)
        """,
    )
    assert found(report, "covered") == {
        "autogen_core.models.UserMessage": ["line 2", "line 4"],
        "autogen_agentchat.messages": ["line 3"],
        "autogen_agentchat.messages.TextMessage": ["line 4"],
    }
    assert found(report, "missing") == found(report, "differs") == {}


def test_a_finding_has_its_places_and_says_what_to_do(tmp_path: Path) -> None:
    report = check(tmp_path, "from autogen_agentchat.teams import GraphFlow\nGraphFlow()\n")
    [finding] = report.with_verdict("missing")
    assert finding.name == "autogen_agentchat.teams.GraphFlow"
    assert finding.places == ["line 1", "line 2"]
    assert finding.note == "A team can be a participant of another team instead."
    [finding] = check(tmp_path, "from autogen_core import AgentID").with_verdict("missing")
    assert finding.note == "The nearest is autogen_core.AgentId."
    [finding] = check(tmp_path, "from autogen_core import EVENT_LOGGER_NAME").with_verdict(
        "differs"
    )
    assert "Nothing is logged under this name." in finding.note


def test_other_libraries_and_relative_imports_are_not_reported(tmp_path: Path) -> None:
    report = check(
        tmp_path,
        """
        import autogenerate, os.path
        from . import autogen
        from .autogen_core import CodeBlock
        from autogen_utils import ConversableAgent
        use_docker = dict(use_docker=False)
        """,
    )
    assert not report.uses_autogen


def test_overrides_that_would_not_be_called_are_missing(tmp_path: Path) -> None:
    report = check(
        tmp_path,
        """
        from autogen.coding import LocalCommandLineCodeExecutor as Local
        from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
        class Filter(Local):
            SUPPORTED_LANGUAGES = ["python"]
            def _execute_code_dont_check_setup(self, code_blocks): ...
            def _helper(self): ...
        class Quiet(Filter):
            timeout: int = 5
        class Own(DockerCommandLineCodeExecutor):
            async def execute_code_blocks(self, *args): await self._execute_command(args)
            async def _execute_command(self, command): ...
        """,
    )
    name = "autogen.coding.LocalCommandLineCodeExecutor"
    assert found(report, "missing") == {
        f"{name}._execute_code_dont_check_setup": ["line 6"],
        f"{name}.timeout": ["line 9"],
    }
    notes = [finding.note for finding in report.with_verdict("missing")]
    assert notes[0] == "Override execute_code_blocks instead."


# names, arguments and methods of programs

AGENT = """\
from autogen_agentchat.agents import AssistantAgent
agent = AssistantAgent("coder", model_client=None{})
"""
PLAIN = AGENT.format("")
ASSISTANT = "autogen_agentchat.agents.AssistantAgent"
LOCAL = """\
from autogen.coding import LocalCommandLineCodeExecutor
executor = LocalCommandLineCodeExecutor(work_dir="coding")
"""
WITH_STATEMENT = """\
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
async def main():
    async with LocalCommandLineCodeExecutor(work_dir=".") as executor:
        executor.restart()
        executor.rewind()
"""
MISSPELLED_KEY = """\
import autogen
config = {"code_execution_config": {"executor": x, "other": 1}}
autogen.UserProxyAgent("u", code_execution_config={"work_dirr": "x", "timeout": 1})
"""
# What the program does -> the program, a verdict, and the findings with it.
PROGRAMS: dict[str, tuple[str, Verdict, dict[str, list[str]]]] = {
    "names a name below an imported top module": (
        "import autogen_ext.models.replay\nprint(autogen_ext.models.replay.X)",
        "missing",
        {"autogen_ext.models.replay.X": ["line 2"]},
    ),
    "uses a name of a star import": (
        "from autogen_agentchat.ui import *\nConsole(1)\nprint(other)",
        "covered",
        {"autogen_agentchat.ui": ["line 1"], "autogen_agentchat.ui.Console": ["line 2"]},
    ),
    "passes a parameter that ours lacks": (
        AGENT.format(", memory=[]"),
        "missing",
        {f"{ASSISTANT}(memory=)": ["line 2"]},
    ),
    "passes known parameters": (AGENT.format(", tools=[], **options"), "missing", {}),
    "calls a method that ours lacks": (
        f"{PLAIN}agent.run(task='x')\nagent.fly(1)\nagent.name\n",
        "missing",
        {f"{ASSISTANT}.fly": ["line 4"]},
    ),
    "passes a parameter that our method lacks": (
        f"{PLAIN}agent.run(task='x', speed=1)\n",
        "missing",
        {f"{ASSISTANT}.run(speed=)": ["line 3"]},
    ),
    "calls a method of what a with statement opens": (
        WITH_STATEMENT,
        "missing",
        {"autogen_ext.code_executors.local.LocalCommandLineCodeExecutor.rewind": ["line 5"]},
    ),
    "calls a method that an executor passes on": (
        f"{LOCAL}executor.format_functions_for_prompt()",
        "missing",
        {},
    ),
    "calls a static method of an instance": (
        f'{LOCAL}executor.sanitize_command("sh", "ls")',
        "missing",
        {},
    ),
    "has a parameter with the name": (f"{PLAIN}def f(agent):\n    agent.fly()", "missing", {}),
    "has a keyword parameter with the name": (
        f"{PLAIN}async def f(*, agent=None):\n    agent.fly()",
        "missing",
        {},
    ),
    "has a loop variable with the name": (
        f"{PLAIN}for agent in []:\n    agent.fly()",
        "missing",
        {},
    ),
    "uses the variable behind such a function": (
        f"{PLAIN}def f(agent):\n    agent = 1\nagent.fly()\n",
        "missing",
        {f"{ASSISTANT}.fly": ["line 5"]},
    ),
    "gives the variable another value": (f"{PLAIN}agent = open('x')\nagent.fly()\n", "missing", {}),
    "derives a class from ours": (
        f"{PLAIN}class Own(AssistantAgent): ...\nOwn(speed=1).fly()\n",
        "missing",
        {},
    ),
    "calls a method that refuses to work": (
        "import autogen\nautogen.Cache.redis()\nautogen.Cache.disk(1)",
        "missing",
        {"autogen.Cache.redis": ["line 2"]},
    ),
    "passes an argument that no agent takes": (
        "import autogen\nautogen.AssistantAgent('a', unknown_arg=4, silent=True)",
        "missing",
        {"autogen.AssistantAgent(unknown_arg=)": ["line 2"]},
    ),
    "passes a keyword that a model client lacks": (
        "from autogen_ext.models.openai import OpenAIChatCompletionClient as C\n"
        "C(model='m', temprature=1, store=True, extra_body={})",
        "missing",
        {"autogen_ext.models.openai.OpenAIChatCompletionClient(temprature=)": ["line 2"]},
    ),
    "misspells a key of the code config": (
        MISSPELLED_KEY,
        "missing",
        {"code_execution_config['work_dirr']": ["line 3"]},
    ),
    "runs code without Docker": (
        'import autogen\nconfig = {"use_docker": False}\n',
        "differs",
        {"use_docker=False": ["line 2"]},
    ),
    "says so by keyword": (
        "import autogen\nconfig = dict(use_docker=False)\n",
        "differs",
        {"use_docker=False": ["line 2"]},
    ),
    "runs code in Docker": ('import autogen\nconfig = {"use_docker": True}\n', "differs", {}),
}


def test_what_a_program_does_is_judged(tmp_path: Path) -> None:
    reports = {
        what: found(check(tmp_path, program), verdict)
        for what, (program, verdict, _) in PROGRAMS.items()
    }
    wrong = {what: report for what, report in reports.items() if report != PROGRAMS[what][2]}
    assert wrong == {}


def test_too_many_positional_arguments_are_reported(tmp_path: Path) -> None:
    program = (
        "from autogen_agentchat.conditions import MaxMessageTermination as Max\nMax(1, 2, 3, 4)"
    )
    [name] = found(check(tmp_path, program), "missing")
    assert name.startswith("autogen_agentchat.conditions.MaxMessageTermination(4 positional")
    program = f'{LOCAL}executor.sanitize_command("sh", "ls", "more")'
    assert list(found(check(tmp_path, program), "missing").values()) == [["line 3"]]


# notebooks and files


def write_notebook(path: Path, *cells: str | list[str]) -> Path:
    text: dict[str, Any] = {"cell_type": "markdown", "metadata": {}, "source": "import autogen_no"}
    code: list[dict[str, Any]] = [{**text, "cell_type": "code", "source": cell} for cell in cells]
    notebook: object = {"cells": [text, *code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))
    return path


def test_cells_of_a_notebook_share_their_names(tmp_path: Path) -> None:
    path = write_notebook(
        tmp_path / "a.ipynb",
        ["!pip install pyautogen\n", "%matplotlib inline\n", "import autogen_agentchat.teams as t"],
        "t.GraphFlow()",
    )
    report = check_file(path)
    assert report.problems == []
    assert found(report, "missing") == {"autogen_agentchat.teams.GraphFlow": ["cell 3, line 1"]}


def test_cells_with_a_magic_for_python_are_read(tmp_path: Path) -> None:
    for magic in ("%%time", "%%capture out", "%%time\n%%capture"):
        cell = f"{magic}\nimport autogen\n%matplotlib inline\nautogen.browser_utils.Browser()"
        report = check_file(write_notebook(tmp_path / "a.ipynb", cell))
        line = len(cell.splitlines())
        assert found(report, "missing") == {"autogen.browser_utils": [f"cell 2, line {line}"]}
        assert report.problems == [], magic


def test_cells_of_other_languages_are_unread_if_they_mention_autogen(tmp_path: Path) -> None:
    cells = ("%%writefile a.py\nimport autogen", "%%bash\npip install pyautogen", "%%html\n<p>")
    report = check_file(write_notebook(tmp_path / "a.ipynb", *cells))
    assert report.problems == [
        "cell 2, line 1: a cell with the magic %%writefile is not read, and mentions AutoGen"
    ]


def test_a_cell_that_is_no_python_does_not_hide_the_others(tmp_path: Path) -> None:
    report = check_file(
        write_notebook(tmp_path / "a.ipynb", "from autogen_core import CodeBlock", "x = = 1")
    )
    assert list(found(report, "missing")) == ["autogen_core.CodeBlock"]
    assert report.problems == ["cell 3, line 1: invalid syntax"]


DAMAGED = [
    ("a.py", "def (:", "line 1: invalid syntax"),
    ("a.py", "print(1)\0", "null bytes"),
    ("a.py", "x = " + "(" * 5000, ""),
    ("a.ipynb", "{", "no notebook: Expecting"),
    ("a.ipynb", "[]", "no notebook: the file holds no JSON object"),
    ("a.ipynb", "{}", 'no notebook: "cells" is missing'),
    ("a.ipynb", "[" * 100_000, "no notebook: "),
]


def test_a_damaged_file_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    assert check_file(tmp_path / "gone.py").problems == ["No such file or directory"]
    faults: list[tuple[str, list[str]]] = []
    for name, content, problem in DAMAGED:
        path = tmp_path / name
        path.write_text(content)
        problems = check_file(path).problems
        if len(problems) != 1 or problem not in problems[0]:
            faults.append((content[:20], problems))
    assert faults == []


def test_a_script_in_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes("# coding: latin-1\nimport autogen  # é\n".encode("latin-1"))
    assert found(check_file(path), "covered") == {"autogen": ["line 2"]}


@pytest.mark.parametrize("suffix", [".md", ".mdx"])
def test_blocks_of_python_in_a_page_are_read(tmp_path: Path, suffix: str) -> None:
    page = """
    # Page
    ```python title="a.py"
    from autogen import UserProxyAgent
    ```
    <Tab>
        ~~~py
        !pip install autogen
        UserProxyAgent("u", speed=1)
        ~~~
    </Tab>
    ```python
    while not Python: ...
      ...
    ```
    ```python
    import autogen, ...
    ```
    ```sh
    import autogen.never
    ```
    """
    path = tmp_path / f"page{suffix}"
    path.write_text(dedent(page))
    report = check_file(path)
    assert found(report, "missing") == {"autogen.UserProxyAgent(speed=)": ["line 9"]}
    assert [problem.partition(":")[0] for problem in report.problems] == ["line 17"]


def test_folders_are_searched_without_environments_and_hidden_folders(tmp_path: Path) -> None:
    read = [tmp_path / name for name in ("a.py", "sub/b.ipynb", "sub/c.md", "sub/d.mdx")]
    named = tmp_path / "f.txt"
    others = [tmp_path / name for name in (".git/c.py", "venv/d.py", "node_modules/e.py")]
    for path in (*read, named, *others, tmp_path / "venv" / "pyvenv.cfg"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert list(find_files([tmp_path, named])) == [*read, named]
