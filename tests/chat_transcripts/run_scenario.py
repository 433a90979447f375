"""Run scenarios with one library: run_scenario.py LIBRARY.

LIBRARY is "autogen" or "cellblock". It is imported once; see tests/scenario_process.py.

A scenario has a function `run(lib)` that yields values; each is printed as a line that starts with
the name of its class. What agents print and ask is between them, as a user sees it. `lib` has the
library's names, whatever module they are in.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import re
import sys
import warnings
from types import SimpleNamespace
from typing import Any, cast

from tests.scenario_process import next_scenario

# Where a library has its public names. The first that has a name is the one that counts.
MODULES = {
    "autogen": (
        "autogen",
        "autogen.io",
        "autogen.exception_utils",
        "autogen.coding",
        "autogen.code_utils",
        "autogen.agentchat.contrib.capabilities.transforms",
        "autogen.agentchat.contrib.capabilities.transform_messages",
        "autogen.agentchat.chat",
    ),
    "cellblock": (
        "cellblock.chat",
        "cellblock.chat.errors",
        "cellblock.chat.coding",
        "cellblock.chat.code_utils",
        "cellblock.chat.transforms",
        "cellblock.chat.conversations.chat_queue",
    ),
}

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def load_library(name: str) -> SimpleNamespace:
    """Return the names of a library, in one namespace."""
    modules = [importlib.import_module(each) for each in MODULES[name]]

    class Library(SimpleNamespace):
        def __getattr__(self, attribute: str) -> Any:
            for module in modules:
                if hasattr(module, attribute):
                    return getattr(module, attribute)
            raise AttributeError(f"{name} has no {attribute}.")

    return Library()


def plain(value: Any) -> Any:
    """Return `value` as JSON values that both libraries should agree on."""
    if isinstance(value, BaseException):
        return value.args[0] if len(value.args) == 1 else str(value)
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    if isinstance(value, dict):
        return {_key(key): plain(each) for key, each in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast(list[Any], value)]
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value if isinstance(value, str | int | float | None) else _key(value)


def _key(value: Any) -> str:
    return str(getattr(value, "name", value))


def line(value: Any) -> str:
    """Return the line of a transcript for `value`."""
    text = json.dumps(plain(value), sort_keys=True)
    return f"{type(value).__name__} {ADDRESS.sub('', text)}"


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def print_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    print_line(f"{category.__name__} {message}")


def main(library: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what AutoGen imports
        lib = load_library(library)
    if scenario := next_scenario():
        logging.disable()  # AutoGen's log goes to standard output
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = print_warning
        for value in scenario.run(lib):
            print_line(line(value))


if __name__ == "__main__":
    main(*sys.argv[1:])
