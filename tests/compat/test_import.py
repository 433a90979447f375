"""`import cellblock.compat` makes AutoGen's modules importable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.programs import last_error_of, output_of, run_python


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install another `autogen_core`, as the current folder does for programs that run in it."""
    package = tmp_path / "autogen_core"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("origin = 'installed'\n")
    (package / "models" / "__init__.py").write_text("origin = 'installed'\n")
    return tmp_path


# names


def test_names_are_our_objects_whatever_the_way_to_import_them(tmp_path: Path) -> None:
    program = """
import cellblock, cellblock.compat
import autogen_core
print(autogen_core.code_executor.CodeBlock is cellblock.CodeBlock)
import PIL
print(autogen_core.__version__, PIL.Image.new("RGB", (1, 2)).size)
import autogen_ext.code_executors.local as local
from autogen_agentchat.messages import ChatMessage, TextMessage
print(local.LocalCommandLineCodeExecutor is cellblock.LocalCommandLineCodeExecutor)
print(issubclass(TextMessage, ChatMessage))
from autogen_core.models import *
print(UserMessage.__name__, ModelFamily.__name__)
import autogen_agentchat.teams as teams
print(hasattr(teams, "Swarm"), hasattr(teams, "GraphFlow"), getattr(teams, "GraphFlow", None))
"""
    assert output_of(tmp_path, program).splitlines() == [
        "True",
        "0.7.5 (1, 2)",
        "True",
        "True",
        "UserMessage ModelFamily",
        "True False None",
    ]


def test_importing_a_module_imports_no_executor(tmp_path: Path) -> None:
    program = """
import cellblock.compat, sys
import autogen, autogen_ext.code_executors.local
print(*[name for name in sys.modules if name.startswith("cellblock.executors")])
"""
    assert output_of(tmp_path, program) == ""


NOT_OFFERED = {
    "from autogen_agentchat.teams import GraphFlow": "A team can be a participant of",
    "import autogen_ext.agents.web_surfer": "Use an AssistantAgent with tools",
    "from autogen import AsistantAgent": "The nearest is autogen.AssistantAgent.",
    "from autogen import CodeBlock": "The nearest is autogen.coding.CodeBlock.",
    "from autogen_core import CodeBlock": "autogen_core.code_executor.CodeBlock.",
    "import autogen.agentchat.contrib.gpt_assistant_agent": "Use AssistantAgent and",
    "import autogen; autogen.retrieve_utils": "Search your documents",
    "import autogen.nothing_like_it": "cellblock compat check",
}


def test_an_import_of_what_is_not_offered_names_the_nearest_thing(tmp_path: Path) -> None:
    program = f"""
import cellblock.compat
for statement in {list(NOT_OFFERED)}:
    try:
        exec(statement)
    except (ImportError, AttributeError) as error:
        print(error.name, error)
"""
    found = dict(zip(NOT_OFFERED.items(), output_of(tmp_path, program).splitlines(), strict=True))
    assert found[next(iter(NOT_OFFERED.items()))].startswith("autogen_agentchat.teams.GraphFlow ")
    assert [
        (statement, said)
        for (statement, message), said in found.items()
        if "Cellblock does not offer autogen" not in said or message not in said
    ] == []


# an installed AutoGen


def test_an_installed_autogen_stays_and_a_warning_says_so(installed: Path) -> None:
    program = """
import cellblock.compat
import autogen_core, autogen_core.models
print(autogen_core.origin, autogen_core.models.origin)
from autogen_agentchat.messages import TextMessage
print(TextMessage.__module__)
"""
    done = run_python(installed, "-c", program)
    assert done.stdout == "installed installed\ncellblock.agents.messages\n"
    assert "UserWarning: autogen_core is installed, and stays in place" in done.stderr
    assert done.stderr.count("UserWarning") == 1


def test_an_autogen_that_is_imported_already_is_warned_about(installed: Path) -> None:
    program = "import autogen_core\nimport cellblock.compat\nprint(autogen_core.origin)"
    done = run_python(installed, "-c", program)
    assert done.stdout == "installed\n"
    assert "UserWarning: autogen_core is installed, and stays in place" in done.stderr


def test_a_missing_module_of_an_installed_autogen_is_not_ours(installed: Path) -> None:
    program = "import cellblock.compat\nimport autogen_core.code_executor"
    error = last_error_of(installed, program)
    assert error == "ModuleNotFoundError: No module named 'autogen_core.code_executor'"


def test_force_replaces_an_installed_autogen_that_is_imported_already(installed: Path) -> None:
    program = """
import warnings
with warnings.catch_warnings(action="ignore"):
    import autogen_core.models, cellblock.compat
cellblock.compat.install(force=True)
import autogen_core.models
print(autogen_core, hasattr(autogen_core.models, "origin"))
"""
    assert output_of(installed, program) == "<module 'autogen_core' of Cellblock> False"


def test_uninstall_gives_the_installed_autogen_back(installed: Path) -> None:
    program = """
from cellblock.compat import install, uninstall
install(force=True)
import autogen_core
uninstall()
import autogen_core
print(autogen_core.origin)
"""
    assert output_of(installed, program) == "installed"


def test_uninstall_removes_the_names(tmp_path: Path) -> None:
    program = "import cellblock.compat\nimport autogen_core\ncellblock.compat.uninstall()\n"
    error = last_error_of(tmp_path, f"{program}import autogen_core")
    assert error == "ModuleNotFoundError: No module named 'autogen_core'"


def test_a_module_can_be_imported_from_the_package_beside_an_installed_one(
    installed: Path,
) -> None:
    program = """
from cellblock.compat import autogen_core as ours
from cellblock.compat.autogen_core.models import UserMessage
assert ours.models.UserMessage is UserMessage
print(ours)
"""
    assert output_of(installed, program) == "<module 'cellblock.compat.autogen_core' of Cellblock>"


def test_a_folder_without_code_is_no_installed_autogen(tmp_path: Path) -> None:
    (tmp_path / "autogen_core" / "notes").mkdir(parents=True)
    program = "import cellblock.compat\nimport autogen_core\nprint(autogen_core)"
    assert output_of(tmp_path, program) == "<module 'autogen_core' of Cellblock>"


@pytest.mark.slow
def test_a_test_suite_can_install_the_names_in_its_conftest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import cellblock.compat\n")
    (tmp_path / "test_old.py").write_text(
        "from autogen_core.code_executor import CodeBlock\n"
        "def test_block(): assert CodeBlock(code='1', language='python').code == '1'\n"
    )
    done = run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_old.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
