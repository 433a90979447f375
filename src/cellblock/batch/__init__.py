"""Judge many programs: run each in its own sandbox, and say what became of it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasets import human_eval, mbpp
    from .journal import Journal, JournalError
    from .judge import judge
    from .programs import JudgeLimits, Program
    from .run import run_many
    from .summary import Summary
    from .tests import Case, CheckerTests, FunctionTests, InputOutputTests, Tests
    from .verdicts import CaseResult, Outcome, Verdict

__all__ = [
    "Case",
    "CaseResult",
    "CheckerTests",
    "FunctionTests",
    "InputOutputTests",
    "Journal",
    "JournalError",
    "JudgeLimits",
    "Outcome",
    "Program",
    "Summary",
    "Tests",
    "Verdict",
    "human_eval",
    "judge",
    "mbpp",
    "run_many",
]

# Module -> the names that it defines. `judge` and `run_many` import executors: on first use.
_MODULES = {
    "datasets": "human_eval mbpp",
    "journal": "Journal JournalError",
    "judge": "judge",
    "programs": "JudgeLimits Program",
    "run": "run_many",
    "summary": "Summary",
    "tests": "Case CheckerTests FunctionTests InputOutputTests Tests",
    "verdicts": "CaseResult Outcome Verdict",
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names.split():
            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
