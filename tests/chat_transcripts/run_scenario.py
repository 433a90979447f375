"""Run scenarios with one library: run_scenario.py LIBRARY.

LIBRARY is "autogen" or "cellblock". It is imported once. Each line of standard input is a request,
a JSON array: the file of a scenario, and the folder that it runs in, in a process of its own. The
folder has the file `answers`, which the process reads as its standard input; its output goes to
the files `transcript` and `errors`. The answer to a request is a line with the exit code.

A scenario has a function `run(lib)` that yields values; each is printed as a line that starts with
the name of its class. What agents print and ask is between them, as a user sees it. `lib` has the
library's names, whatever module they are in.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any, cast

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

WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
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


def load_scenario(path: str) -> ModuleType:
    """Import the file of a scenario."""
    spec = importlib.util.spec_from_file_location("scenario", path)
    assert spec is not None
    assert spec.loader is not None
    scenario = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scenario)
    return scenario


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def print_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    print_line(f"{category.__name__} {message}")


def run_scenario(lib: SimpleNamespace, path: str, folder: str) -> None:
    """Run a scenario in `folder`, in a forked process."""
    os.chdir(folder)
    for descriptor, name in enumerate(("answers", "transcript", "errors")):
        os.dup2(os.open(name, WRITE if descriptor else os.O_RDONLY, 0o600), descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    scenario = load_scenario(path)
    logging.disable()  # AutoGen's log goes to standard output
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = print_warning
    for value in scenario.run(lib):
        print_line(line(value))


def main(library: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what AutoGen imports
        lib = load_library(library)
    for request in sys.stdin:
        if child := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print_line(str(status))
            sys.stdout.flush()
        else:
            run_scenario(lib, *json.loads(request))
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
