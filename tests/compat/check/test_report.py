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


def test_names_below_an_imported_top_module_are_found(tmp_path: Path) -> None:
    report = check(tmp_path, "import autogen_ext.models.replay\nprint(autogen_ext.models.replay.X)")
    assert found(report, "missing") == {"autogen_ext.models.replay.X": ["line 2"]}


def test_a_name_that_is_not_offered_is_missing_with_advice(tmp_path: Path) -> None:
    report = check(tmp_path, "from autogen_agentchat.teams import GraphFlow\nGraphFlow()\n")
    [finding] = report.with_verdict("missing")
    assert finding.name == "autogen_agentchat.teams.GraphFlow"
    assert finding.places == ["line 1", "line 2"]
    assert finding.note == "A team can be a participant of another team instead."


def test_a_misspelled_name_is_missing_with_the_nearest(tmp_path: Path) -> None:
    [finding] = check(tmp_path, "from autogen_core import AgentID").with_verdict("missing")
    assert finding.note == "The nearest is autogen_core.AgentId."


def test_a_name_that_differs_says_how(tmp_path: Path) -> None:
    report = check(tmp_path, "from autogen_core import EVENT_LOGGER_NAME")
    [finding] = report.with_verdict("differs")
    assert "Nothing is logged under this name." in finding.note


def test_names_of_a_star_import_are_found_where_they_are_used(tmp_path: Path) -> None:
    report = check(tmp_path, "from autogen_agentchat.ui import *\nConsole(1)\nprint(other)")
    assert found(report, "covered") == {
        "autogen_agentchat.ui": ["line 1"],
        "autogen_agentchat.ui.Console": ["line 2"],
    }


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


# arguments and methods

AGENT = """
from autogen_agentchat.agents import AssistantAgent
agent = AssistantAgent("coder", model_client=None{})
"""


def test_a_parameter_that_ours_lacks_is_missing(tmp_path: Path) -> None:
    report = check(tmp_path, AGENT.format(", memory=[]"))
    name = "autogen_agentchat.agents.AssistantAgent(memory=)"
    assert found(report, "missing") == {name: ["line 3"]}


def test_known_parameters_are_covered(tmp_path: Path) -> None:
    report = check(tmp_path, AGENT.format(", tools=[], **options"))
    assert found(report, "missing") == {}


def test_a_method_that_ours_lacks_is_missing(tmp_path: Path) -> None:
    report = check(tmp_path, f"{AGENT.format('')}agent.run(task='x')\nagent.fly(1)\nagent.name\n")
    name = "autogen_agentchat.agents.AssistantAgent"
    assert found(report, "missing") == {f"{name}.fly": ["line 5"]}


def test_a_parameter_of_a_method_that_ours_lacks_is_missing(tmp_path: Path) -> None:
    report = check(tmp_path, f"{AGENT.format('')}agent.run(task='x', speed=1)\n")
    name = "autogen_agentchat.agents.AssistantAgent.run(speed=)"
    assert found(report, "missing") == {name: ["line 4"]}


def test_methods_of_what_a_with_statement_opens_are_checked(tmp_path: Path) -> None:
    program = """
    from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
    async def main():
        async with LocalCommandLineCodeExecutor(work_dir=".") as executor:
            executor.restart()
            executor.rewind()
    """
    report = check(tmp_path, program)
    name = "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor.rewind"
    assert found(report, "missing") == {name: ["line 6"]}


def test_an_executor_passes_on_methods_that_its_class_does_not_have(tmp_path: Path) -> None:
    program = """
    from autogen.coding import LocalCommandLineCodeExecutor
    executor = LocalCommandLineCodeExecutor(work_dir="coding")
    executor.format_functions_for_prompt()
    """
    assert found(check(tmp_path, program), "missing") == {}


def test_a_static_method_can_be_called_on_an_instance(tmp_path: Path) -> None:
    program = """
    from autogen.coding import LocalCommandLineCodeExecutor
    executor = LocalCommandLineCodeExecutor(work_dir="coding")
    executor.sanitize_command("sh", "ls")
    executor.sanitize_command("sh", "ls", "more")
    """
    missing = found(check(tmp_path, program), "missing")
    assert list(missing.values()) == [["line 5"]]


@pytest.mark.parametrize(
    "shadow",
    [
        "def f(agent):\n    agent.fly()",
        "async def f(*, agent=None):\n    agent.fly()",
        "for agent in []:\n    agent.fly()",
    ],
)
def test_a_parameter_or_loop_variable_is_another_object(tmp_path: Path, shadow: str) -> None:
    assert found(check(tmp_path, f"{AGENT.format('')}{shadow}\n"), "missing") == {}


def test_a_variable_keeps_its_object_behind_a_function(tmp_path: Path) -> None:
    program = f"{AGENT.format('')}def f(agent):\n    agent = 1\nagent.fly()\n"
    assert list(found(check(tmp_path, program), "missing").values()) == [["line 6"]]


def test_a_method_that_refuses_to_work_is_missing(tmp_path: Path) -> None:
    report = check(tmp_path, "import autogen\nautogen.Cache.redis()\nautogen.Cache.disk(1)")
    assert found(report, "missing") == {"autogen.Cache.redis": ["line 2"]}


def test_a_variable_with_another_value_is_not_checked(tmp_path: Path) -> None:
    report = check(tmp_path, f"{AGENT.format('')}agent = open('x')\nagent.fly()\n")
    assert found(report, "missing") == {}


def test_a_class_derived_from_ours_may_have_other_parameters(tmp_path: Path) -> None:
    program = f"{AGENT.format('')}class Own(AssistantAgent): ...\nOwn(speed=1).fly()\n"
    assert found(check(tmp_path, program), "missing") == {}


def test_too_many_positional_arguments_are_reported(tmp_path: Path) -> None:
    program = """
    from autogen_core.models import ModelFamily, UserMessage
    from autogen_agentchat.conditions import MaxMessageTermination
    MaxMessageTermination(1, True, 3, 4)
    """
    [name] = found(check(tmp_path, program), "missing")
    assert name.startswith("autogen_agentchat.conditions.MaxMessageTermination(4 positional")


@pytest.mark.parametrize("config", ['{"use_docker": False}', "dict(use_docker=False)"])
def test_code_without_docker_differs(tmp_path: Path, config: str) -> None:
    report = check(tmp_path, f"import autogen\nconfig = {config}\n")
    assert found(report, "differs") == {"use_docker=False": ["line 2"]}


def test_code_in_docker_is_covered(tmp_path: Path) -> None:
    report = check(tmp_path, 'import autogen\nconfig = {"use_docker": True}\n')
    assert found(report, "differs") == {}


def test_an_argument_that_no_agent_takes_is_missing(tmp_path: Path) -> None:
    program = """
    from autogen import AssistantAgent
    AssistantAgent("a", unknown_arg=4, code_execution_config=False, silent=True)
    """
    assert found(check(tmp_path, program), "missing") == {
        "autogen.AssistantAgent(unknown_arg=)": ["line 3"]
    }


def test_a_misspelled_key_of_the_code_config_is_missing(tmp_path: Path) -> None:
    program = """
    import autogen
    config = {"code_execution_config": {"executor": x, "other": 1}}
    autogen.UserProxyAgent("u", code_execution_config={"work_dirr": "x", "timeout": 1})
    """
    assert found(check(tmp_path, program), "missing") == {
        "code_execution_config['work_dirr']": ["line 4"]
    }


# notebooks and files


def write_notebook(path: Path, *cells: str | list[str]) -> Path:
    listed: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "source": cell} for cell in cells
    ]
    text: dict[str, Any] = {
        "cell_type": "markdown",
        "metadata": {},
        "source": "import autogen_nothing",
    }
    notebook: dict[str, Any] = {
        "cells": [text, *listed],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
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


@pytest.mark.parametrize("magic", ["%%time", "%%capture out", "%%time\n%%capture"])
def test_cells_with_a_magic_for_python_are_read(tmp_path: Path, magic: str) -> None:
    cell = f"{magic}\nimport autogen\n%matplotlib inline\nautogen.browser_utils.Browser()"
    report = check_file(write_notebook(tmp_path / "a.ipynb", cell))
    line = len(cell.splitlines())
    assert found(report, "missing") == {"autogen.browser_utils": [f"cell 2, line {line}"]}
    assert report.problems == []


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


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.py", "def (:", "line 1: invalid syntax"),
        ("a.py", "print(1)\0", "null bytes"),
        ("a.py", "x = " + "(" * 5000, ""),
        ("a.ipynb", "{", "no notebook: Expecting"),
        ("a.ipynb", "[]", "no notebook: the file holds no JSON object"),
        ("a.ipynb", "{}", 'no notebook: "cells" is missing'),
        ("a.ipynb", "[" * 100_000, "no notebook: "),
    ],
)
def test_a_damaged_file_is_a_problem_and_no_crash(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    [said] = check_file(path).problems
    assert problem in said


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    assert check_file(tmp_path / "gone.py").problems == ["No such file or directory"]


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
    names = [
        "a.py",
        "sub/b.ipynb",
        "sub/c.md",
        "sub/d.mdx",
        ".git/c.py",
        "venv/d.py",
        "node_modules/e.py",
        "f.txt",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    named = tmp_path / "f.txt"
    found_files = list(find_files([tmp_path, named]))
    in_folder = [Path("a.py"), Path("sub/b.ipynb"), Path("sub/c.md"), Path("sub/d.mdx")]
    assert found_files == [*(tmp_path / each for each in in_folder), named]
