"""Run one scenario with one library and print its transcript: run_scenario.py LIBRARY FILE.

LIBRARY is "autogen" or "cellblock". A scenario has a function `run(lib)` that yields messages,
events, results, texts or exceptions. `lib` has the library's names, whatever module they are in.
Each line that is printed starts with the class name. IDs and times are left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from tests.scenario_process import next_scenario

MODULES = {
    "autogen": (
        "autogen_core",
        "autogen_core.code_executor",
        "autogen_core.models",
        "autogen_core.model_context",
        "autogen_core.tools",
        "autogen_agentchat.base",
        "autogen_agentchat.messages",
        "autogen_agentchat.agents",
        "autogen_agentchat.conditions",
        "autogen_agentchat.teams",
        "autogen_agentchat.ui",
        "autogen_ext.code_executors.local",
        "autogen_ext.models.openai",
        "autogen_ext.models.replay",
        "autogen_ext.tools.code_execution",
    ),
    "cellblock": (
        "cellblock",
        "cellblock.models",
        "cellblock.tools",
        "cellblock.agents",
        "cellblock.teams",
        "cellblock.message_runtime",
    ),
}
LEFT_OUT = {"id", "created_at", "full_message_id", "request_id", "version"}


def load_library(name: str) -> SimpleNamespace:
    names: dict[str, Any] = {}
    for module_name in MODULES[name]:
        module = importlib.import_module(module_name)
        public: list[str] = getattr(module, "__all__", [])
        names |= {each: getattr(module, each) for each in public}
    return SimpleNamespace(**names)


def plain(value: Any) -> Any:
    """Return `value` as JSON values that both libraries should agree on."""
    if hasattr(value, "chat_message"):
        return {"chat_message": line(value.chat_message), "inner": lines(value.inner_messages)}
    if hasattr(value, "stop_reason"):
        return {"stop_reason": value.stop_reason, "messages": lines(value.messages)}
    if isinstance(value, BaseException):
        return str(value)
    if hasattr(value, "exit_code"):
        return {"exit_code": value.exit_code, "output": value.output}
    if hasattr(value, "model_dump"):
        fields: list[str] = list(cast(Any, kind_of(value)).model_fields)
        return {key: plain(getattr(value, key)) for key in fields}
    if dataclasses.is_dataclass(value):
        fields_of = [field.name for field in dataclasses.fields(value) if field.repr]
        return {name: plain(getattr(value, name)) for name in fields_of}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast(list[Any], value)]
    return value if isinstance(value, str | int | float | None) else str(value)


def kind_of(value: object) -> type[object]:
    return type(value)


def line(value: Any) -> str:
    content: object = plain(value)
    if isinstance(content, dict):
        content = {k: v for k, v in cast(dict[str, Any], content).items() if k not in LEFT_OUT}
    return f"{kind_of(value).__name__} {json.dumps(content, sort_keys=True)}"


def lines(values: Any) -> list[str]:
    return [line(value) for value in cast(list[Any], values or [])]


async def print_values(library: SimpleNamespace, scenario: ModuleType) -> None:
    async for item in scenario.run(library):
        sys.stdout.write(line(item) + "\n")


def main(name: str) -> None:
    warnings.simplefilter("ignore")
    library = load_library(name)
    if scenario := next_scenario():
        asyncio.run(print_values(library, scenario))


if __name__ == "__main__":
    main(*sys.argv[1:])
