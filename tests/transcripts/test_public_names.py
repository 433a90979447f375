"""The names of AutoGen 0.7.5 are here, in the packages that docs/autogen.md says."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from tests.autogen import ROOT, autogen_python, run_python

__all__ = ["autogen_python"]

pytestmark = [pytest.mark.autogen, pytest.mark.network, pytest.mark.timeout(300)]

# Module of AutoGen -> our package, and the names that it does not have.
MODULES: dict[str, tuple[str, str]] = {
    "autogen_core.code_executor": ("cellblock", "Import"),
    "autogen_core.models": ("cellblock.models", "ModelCapabilities"),
    "autogen_core.model_context": ("cellblock.models", "ChatCompletionContextState"),
    "autogen_ext.models.replay": ("cellblock.models", ""),
    "autogen_core.tools": (
        "cellblock.tools",
        "BaseStreamTool BaseToolWithState StaticStreamWorkbench StreamTool Tool",
    ),
    "autogen_ext.tools.code_execution": ("cellblock.tools", ""),
    "autogen_agentchat.agents": (
        "cellblock.agents",
        "MessageFilterAgent MessageFilterConfig PerSourceFilter SocietyOfMindAgent",
    ),
    "autogen_agentchat.messages": (
        "cellblock.agents",
        "AgentEvent ChatMessage MemoryQueryEvent StructuredContentType StructuredMessageFactory",
    ),
    "autogen_agentchat.teams": (
        "cellblock.teams",
        "DiGraph DiGraphBuilder DiGraphEdge DiGraphNode GraphFlow MagenticOneGroupChat",
    ),
    "autogen_agentchat.conditions": ("cellblock.teams", ""),
    "autogen_agentchat.ui": ("cellblock.teams", ""),
}
# In `cellblock.agents` or `cellblock.teams`.
BASE = "autogen_agentchat.base"

LIST_NAMES = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__all__ for name in sys.argv[1:]}))
"""

# `ToolSchema` and `ParametersSchema` are data for models here; AutoGen has them with its tools.
ELSEWHERE = {"autogen_core.tools": {"ParametersSchema", "ToolSchema"}}


@pytest.fixture(scope="module")
def their_names(autogen_python: Path) -> dict[str, set[str]]:
    output = run_python(autogen_python, "-W", "ignore", "-c", LIST_NAMES, *MODULES, BASE)
    return {module: set(names) for module, names in json.loads(output).items()}


@pytest.mark.parametrize("module", MODULES)
def test_a_package_has_the_names_of_its_autogen_module(
    module: str, their_names: dict[str, set[str]]
) -> None:
    package, left_out = MODULES[module]
    missing = their_names[module] - set(import_module(package).__all__)
    assert missing - ELSEWHERE.get(module, set()) == set(left_out.split())


def test_the_interfaces_of_agents_and_teams_are_here(their_names: dict[str, set[str]]) -> None:
    packages = ("cellblock.agents", "cellblock.teams")
    ours = {name for package in packages for name in import_module(package).__all__}
    assert their_names[BASE] <= ours


def test_the_page_for_users_of_autogen_says_where_names_are() -> None:
    table = (ROOT / "docs" / "autogen.md").read_text().partition("\n\n```")[0].splitlines()
    for module, (package, _) in MODULES.items():
        name = module if module.startswith("autogen_core") else module.rpartition(".")[0]
        rows = [row for row in table if f"`{name}" in row or f"`{module}" in row]
        assert any(f"`{package}`" in row for row in rows), module
