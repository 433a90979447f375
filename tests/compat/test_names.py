"""The table of AutoGen's names is right: each leads to an object, and none of AutoGen's is lost."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from cellblock.compat.modules import CONSTANTS, TABLE, TOP_MODULES
from cellblock.compat.names import (
    advice,
    all_modules,
    explain_missing,
    nearest_name,
    offered_names,
    public_names,
)
from cellblock.compat.not_offered import ADVICE
from tests.autogen import ROOT, autogen_02_python, autogen_python, run_python
from tests.suite.tiers import exhaustive

__all__ = ["autogen_02_python", "autogen_python"]

# The modules whose names programs import most.
DOCUMENTED = (
    "autogen_core.code_executor",
    "autogen_core.models",
    "autogen_core.model_context",
    "autogen_core.tools",
    "autogen_ext.models.replay",
    "autogen_ext.tools.code_execution",
    "autogen_agentchat.agents",
    "autogen_agentchat.messages",
    "autogen_agentchat.teams",
    "autogen_agentchat.conditions",
    "autogen_agentchat.ui",
)

# Prints the public names of modules that can be imported, and the names of those that cannot.
LIST_NAMES = """
import importlib, json, pkgutil, sys, types
names, broken = {}, []
for top in sys.argv[1:]:
    package = importlib.import_module(top)
    found = pkgutil.walk_packages(package.__path__, top + ".", onerror=broken.append)
    for module in [top, *(info.name for info in found)]:
        if any(part.startswith("_") for part in module.split(".")):
            continue
        try:
            loaded = importlib.import_module(module)
        except BaseException:
            broken.append(module)
            continue
        own = [
            name for name, value in vars(loaded).items()
            if getattr(value, "__module__", None) == module
        ]
        names[module] = [name for name in getattr(loaded, "__all__", own) if name[0] != "_"]
print("\\n" + json.dumps([names, broken]))
"""


def test_every_name_of_the_table_is_a_public_object_here() -> None:
    faults: list[str] = []
    for module in TABLE:
        for name, target in offered_names(module).items():
            try:
                target.load()
            except (ImportError, AttributeError) as error:
                faults.append(f"{module}.{name}: {error}")
            if target.module.count(".") < 2 and target.name not in public_in(target.module):
                faults.append(f"{module}.{name}: {target.module} does not list {target.name}")
    assert faults == []


def public_in(module: str) -> list[str]:
    """Return what `import *` imports from a module of ours."""
    return getattr(import_module(module), "__all__", [])


def test_the_page_for_users_of_autogen_says_where_names_are() -> None:
    table = (ROOT / "docs" / "autogen.md").read_text().partition("\n\n```")[0].splitlines()
    faults: list[str] = []
    for module in DOCUMENTED:
        name = module if module.startswith("autogen_core") else module.rpartition(".")[0]
        rows = [row for row in table if f"`{name}" in row or f"`{module}" in row]
        packages = {target.module for target in offered_names(module).values()}
        if not any(f"`{package}`" in row for row in rows for package in packages):
            faults.append(f"{module} is in {packages}")
    assert faults == []


def test_no_name_is_both_offered_and_not_offered() -> None:
    offered = {f"{module}.{name}" for module in TABLE for name in public_names(module)}
    assert sorted(offered & set(ADVICE)) == []
    assert sorted(all_modules() & set(ADVICE)) == []


def test_advice_names_no_module_that_does_not_exist() -> None:
    tops = {name.partition(".")[0] for name in (*TABLE, *ADVICE, *CONSTANTS)}
    assert tops == set(TOP_MODULES)
    assert [text for text in ADVICE.values() if not text.endswith(".")] == []


def test_names_that_are_no_public_names_in_autogen_are_offered() -> None:
    names = """
        autogen.LLMConfig autogen.llm_config.LLMConfig autogen.runtime_logging.start
        autogen.agentchat.contrib.capabilities.agent_capability.AgentCapability
        autogen.agentchat.contrib.society_of_mind_agent.SocietyOfMindAgent
        autogen.code_utils.PATH_SEPARATOR autogen.code_utils.WIN32
        autogen_agentchat.messages.SelectorEvent autogen_core.InMemoryStore
        autogen_ext.cache_store.diskcache.DiskCacheStore
        autogen_ext.code_executors._common.CommandLineCodeResult
        autogen_ext.code_executors.local.CommandLineCodeResult
        autogen_ext.models.cache.CHAT_CACHE_VALUE_TYPE
    """.split()
    split = [name.rpartition(".") for name in names]
    assert [name for name in split if name[2] not in offered_names(name[0])] == []


# the nearest thing


def test_the_nearest_name_is_the_same_or_a_similar_one() -> None:
    nearest = {
        "autogen.coding.CodeBlok": "autogen.coding.CodeBlock",
        "autogen.UserProxy": "autogen.UserProxyAgent",
        "autogen.LocalCommandLineCodeExecutor": "autogen.coding.LocalCommandLineCodeExecutor",
        "autogen_core.UserMessage": "autogen_core.models.UserMessage",
        "autogen_agentchat.TextMessage": "autogen_agentchat.messages.TextMessage",
        "autogen.TextMentionTermination": "autogen_agentchat.conditions.TextMentionTermination",
        "autogen_core.CommandLineCodeResult": (
            "autogen_ext.code_executors.local.CommandLineCodeResult"
        ),
        "autogen.CommandLineCodeResult": "autogen.coding.base.CommandLineCodeResult",
        "autogen.Zzz": None,
    }
    assert {name: nearest_name(name) for name in nearest} == nearest


def test_advice_comes_before_a_similar_name() -> None:
    message = explain_missing("autogen_core.models.ModelCapabilities")
    assert message == (
        "Cellblock does not offer autogen_core.models.ModelCapabilities. Use ModelInfo."
    )


def test_advice_on_a_module_holds_for_all_in_it() -> None:
    name = "autogen.agentchat.contrib.vectordb"
    assert advice(f"{name}.base.VectorDB") == advice(name) is not None


# AutoGen's own names


def unexplained_names(python: Path, *tops: str) -> list[str]:
    """Return the names of AutoGen that are neither offered nor advised on."""
    output = run_python(python, "-W", "ignore", "-c", LIST_NAMES, *tops)
    names, broken = json.loads(output.strip().splitlines()[-1])
    known = all_modules()
    full = [*names, *broken, *(f"{module}.{name}" for module in names for name in names[module])]
    return sorted(
        name
        for name in full
        if name not in known
        and name.rpartition(".")[2] not in public_names(name.rpartition(".")[0])
        and advice(name) is None
    )


@pytest.mark.autogen
@pytest.mark.network
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", exhaustive(["0.7", "0.2"]))
def test_every_public_name_of_autogen_is_offered_or_advised_on(
    version: str, request: pytest.FixtureRequest
) -> None:
    fixture = {"0.7": "autogen_python", "0.2": "autogen_02_python"}[version]
    tops = {"0.7": TOP_MODULES[1:], "0.2": ("autogen",)}[version]
    assert unexplained_names(request.getfixturevalue(fixture), *tops) == []


@pytest.mark.autogen
@pytest.mark.network
@pytest.mark.timeout(300)
def test_an_installed_autogen_stays_until_it_is_replaced(autogen_python: Path) -> None:
    program = """
import warnings, cellblock.compat
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from autogen_core.code_executor import CodeBlock
print(CodeBlock.__module__, [str(w.message)[:25] for w in caught if w.category is UserWarning])
from cellblock.compat import autogen_core as ours
print(ours.code_executor.CodeBlock.__module__)
cellblock.compat.install(force=True)
from autogen_core.code_executor import CodeBlock
print(CodeBlock.__module__)
"""
    assert run_python(autogen_python, "-c", program).splitlines() == [
        "autogen_core.code_executor._base ['autogen_core is installed']",
        "cellblock.blocks",
        "cellblock.blocks",
    ]
