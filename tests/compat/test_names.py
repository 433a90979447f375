"""The table of AutoGen's names is right: each leads to an object, and none of AutoGen's is lost."""

from __future__ import annotations

import json
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
from tests.autogen import autogen_python, run_python
from tests.autogen_02 import autogen_02_python

__all__ = ["autogen_02_python", "autogen_python"]

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


@pytest.mark.parametrize("module", TABLE)
def test_every_name_of_the_table_is_an_object_here(module: str) -> None:
    missing: list[str] = []
    for name, target in offered_names(module).items():
        try:
            target.load()
        except (ImportError, AttributeError) as error:
            missing.append(f"{name}: {error}")
    assert missing == []


def test_no_name_is_both_offered_and_not_offered() -> None:
    offered = {f"{module}.{name}" for module in TABLE for name in public_names(module)}
    assert sorted(offered & set(ADVICE)) == []
    assert sorted(all_modules() & set(ADVICE)) == []


def test_advice_names_no_module_that_does_not_exist() -> None:
    tops = {name.partition(".")[0] for name in (*TABLE, *ADVICE, *CONSTANTS)}
    assert tops == set(TOP_MODULES)
    assert [text for text in ADVICE.values() if not text.endswith(".")] == []


@pytest.mark.parametrize(
    "name",
    [
        "autogen.LLMConfig",
        "autogen.agentchat.contrib.capabilities.agent_capability.AgentCapability",
        "autogen.agentchat.contrib.society_of_mind_agent.SocietyOfMindAgent",
        "autogen.runtime_logging.start",
        "autogen.code_utils.PATH_SEPARATOR",
        "autogen.code_utils.WIN32",
        "autogen.llm_config.LLMConfig",
        "autogen_agentchat.messages.SelectorEvent",
        "autogen_core.InMemoryStore",
        "autogen_ext.cache_store.diskcache.DiskCacheStore",
        "autogen_ext.models.cache.CHAT_CACHE_VALUE_TYPE",
    ],
)
def test_names_that_scripts_miss_are_offered(name: str) -> None:
    module, _, last = name.rpartition(".")
    assert last in offered_names(module)


# the nearest thing


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("autogen.coding.CodeBlok", "autogen.coding.CodeBlock"),
        ("autogen.UserProxy", "autogen.UserProxyAgent"),
        ("autogen.LocalCommandLineCodeExecutor", "autogen.coding.LocalCommandLineCodeExecutor"),
        ("autogen_core.UserMessage", "autogen_core.models.UserMessage"),
        ("autogen_agentchat.TextMessage", "autogen_agentchat.messages.TextMessage"),
        ("autogen.TextMentionTermination", "autogen_agentchat.conditions.TextMentionTermination"),
        ("autogen.Zzz", None),
    ],
)
def test_the_nearest_name_is_the_same_or_a_similar_one(name: str, nearest: str | None) -> None:
    assert nearest_name(name) == nearest


def test_advice_comes_before_a_similar_name() -> None:
    message = explain_missing("autogen_core.DefaultInterventionHandler")
    assert message == (
        "Cellblock does not offer autogen_core.DefaultInterventionHandler. "
        "Refuse a message in the handler itself: raise CantHandleException."
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
def test_every_public_name_of_autogen_0_7_is_offered_or_advised_on(autogen_python: Path) -> None:
    assert unexplained_names(autogen_python, *TOP_MODULES[1:]) == []


@pytest.mark.autogen
@pytest.mark.network
@pytest.mark.timeout(300)
def test_every_public_name_of_autogen_0_2_is_offered_or_advised_on(
    autogen_02_python: Path,
) -> None:
    assert unexplained_names(autogen_02_python, "autogen") == []


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
