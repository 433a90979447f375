"""Check one program: judge each reference to AutoGen."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...chat.code.code_replies import CONFIG_KEYS
from ...overrides import uncalled_overrides
from ..differences import difference, setting_difference
from ..modules import CONSTANTS, TOP_MODULES
from ..names import advice, all_modules, explain_missing, offered_names
from ..not_offered import METHODS
from .arguments import unknown_arguments
from .references import CODE_CONFIG, CODE_CONFIG_KEY, Reference, ReferenceFinder
from .source_files import SourceCell, UnreadableFile, read_cells

Verdict = Literal["covered", "differs", "missing"]


@dataclass
class CompatFinding:
    """A finding about one name: a verdict, a note, and where the program uses the name."""

    verdict: Verdict
    name: str
    note: str = ""
    places: list[str] = field(default_factory=list[str])


@dataclass
class FileReport:
    """The findings about one file. `problems` say what of it could not be read."""

    path: Path
    findings: list[CompatFinding] = field(default_factory=list[CompatFinding])
    problems: list[str] = field(default_factory=list[str])

    @property
    def uses_autogen(self) -> bool:
        """True if the file uses AutoGen, as far as it could be read."""
        return bool(self.findings)

    def with_verdict(self, verdict: Verdict) -> list[CompatFinding]:
        """Return the findings with a verdict."""
        return [finding for finding in self.findings if finding.verdict == verdict]

    def add(self, verdict: Verdict, name: str, note: str, place: str) -> None:
        """Add a finding, or the place to the finding that says the same."""
        for finding in self.findings:
            if (finding.verdict, finding.name, finding.note) == (verdict, name, note):
                if place not in finding.places:
                    finding.places.append(place)
                return
        self.findings.append(CompatFinding(verdict, name, note, [place]))


def check_file(path: Path) -> FileReport:
    """Return what a script, notebook or Markdown page uses of AutoGen."""
    report = FileReport(path)
    try:
        cells = read_cells(path)
    except UnreadableFile as error:
        report.problems.append(str(error))
        return report
    finder = ReferenceFinder()
    for cell in cells:
        _check_cell(cell, finder, report)
    return report


def _check_cell(cell: SourceCell, finder: ReferenceFinder, report: FileReport) -> None:
    if cell.problem:
        report.problems.append(f"{cell.place(1)}: {cell.problem}")
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escapes, which still run
            tree = ast.parse(cell.source)
    except SyntaxError as error:
        report.problems.append(f"{cell.place(error.lineno or 1)}: {error.msg}")
        return
    except (ValueError, RecursionError, MemoryError) as error:
        report.problems.append(f"{cell.place(1)}: {error or type(error).__name__}")
        return
    finder.references.clear()
    finder.settings.clear()
    finder.visit(tree)
    for reference in finder.references:
        for verdict, name, note in judge(reference):
            report.add(verdict, name, note, cell.place(reference.line))
    if report.uses_autogen:
        _check_settings(cell, finder, report)


def _check_settings(cell: SourceCell, finder: ReferenceFinder, report: FileReport) -> None:
    tops = [
        top
        for top in TOP_MODULES
        if any(f"{finding.name}.".startswith(f"{top}.") for finding in report.findings)
    ]
    for setting in finder.settings:
        if setting.key == CODE_CONFIG_KEY and setting.value not in CONFIG_KEYS:
            name = f"{CODE_CONFIG}[{setting.value!r}]"
            report.add("missing", name, "This key is not taken.", cell.place(setting.line))
        for top in tops:
            note = setting_difference(top, setting.key, setting.value)
            if note is not None:
                name = f"{setting.key}={setting.value}"
                report.add("differs", name, note, cell.place(setting.line))


def judge(reference: Reference) -> Iterator[tuple[Verdict, str, str]]:
    """Yield verdicts, names and notes for a reference."""
    name = reference.name
    if name in all_modules():
        yield "covered", name, ""
        return
    module, _, last = name.rpartition(".")
    target = offered_names(module).get(last)
    if target is None:
        if last in CONSTANTS.get(module, {}):
            yield _covered_or_different(name)
        else:
            yield "missing", name, _note_on_missing(name)
        return
    yield _covered_or_different(name)
    yield from _judge_use(reference, target.load())


def _covered_or_different(name: str) -> tuple[Verdict, str, str]:
    note = difference(name)
    return ("covered", name, "") if note is None else ("differs", name, note)


def _note_on_missing(name: str) -> str:
    instead = advice(name)
    return instead or explain_missing(name).partition(f"{name}. ")[2]


def _judge_use(reference: Reference, value: Any) -> Iterator[tuple[Verdict, str, str]]:
    """Yield what ours lacks of the attributes and parameters that a program uses."""
    name, is_bound = reference.name, False
    for override in reference.overrides:
        if isinstance(value, type) and override in (refused := uncalled_overrides(value)):
            yield "missing", f"{name}.{override}", refused[override]
    for attribute in reference.attributes[:1]:
        name = f"{name}.{attribute}"
        if (instead := METHODS.get(".".join(name.split(".")[-2:]))) is not None:
            yield "missing", name, instead
            return
        if not hasattr(value, attribute):
            if isinstance(value, type) and not _may_have(value, attribute):
                yield "missing", name, "There is no such attribute."
            return
        static = inspect.getattr_static(value, attribute, None)
        is_bound = reference.method and not isinstance(static, staticmethod | classmethod)
        value = getattr(value, attribute)
    if reference.call is None or len(reference.attributes) > 1 or not callable(value):
        return
    for argument, note in unknown_arguments(value, reference.call, int(is_bound)):
        yield "missing", f"{name}({argument})", note


def _may_have(cls: type, attribute: str) -> bool:
    """Return True if an instance can have an attribute that its class does not have."""
    annotated = (vars(base).get("__annotations__", {}) for base in cls.__mro__)
    return hasattr(cls, "__getattr__") or any(attribute in names for names in annotated)
