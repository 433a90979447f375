"""RunOptions: what one run does differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..languages import Action
from ..limits import Limits
from .displays import DisplayFiles


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run differs from what `execute_code_blocks` does by default.

    run_seconds       its time limit, if that is lower than the executor's
    replaces_timeout  `run_seconds` is its time limit in place of the executor's `timeout`
    written_bytes     its limit of written bytes, if that is lower than the executor's
    cpu_seconds       a fresh process: its limit of CPU time, if that is lower than the executor's
    shows_value       a fresh Python process prints the value of its last line
    execution_policies  those of fresh processes, in place of the executor's

    The others are for blocks of a live session:

    is_silent         show no value, and do not count the block
    has_colours       tracebacks have colours
    show_interrupts   the traceback of an interrupt is shown
    terminal_mode     the form of tracebacks, if output is that of IPython in a terminal
    columns           the width of the terminal that shows the output; 0 if there is none
    answers_input     False if nobody answers `input()`, although there is an `input_callback`
    no_input          the error of `input()` if nobody answers it
    input_is_timed    False if waiting for an answer to `input()` does not count as time
    displays          where displayed content is saved; None means the work folder
    """

    run_seconds: float | None = None
    replaces_timeout: bool = False
    written_bytes: int | None = None
    cpu_seconds: float | None = None
    shows_value: bool = False
    execution_policies: Mapping[str, Action] | None = None
    is_silent: bool = False
    has_colours: bool = False
    show_interrupts: bool = False
    terminal_mode: str | None = None
    columns: int = 0
    answers_input: bool = True
    no_input: str = (
        "input() is not available: create the session with an input_callback to answer it."
    )
    input_is_timed: bool = True
    displays: DisplayFiles | None = None

    def lowered(self, limits: Limits) -> Limits:
        """Return the limits of the run on an executor with `limits`."""
        for name in ("written_bytes", "cpu_seconds"):
            own, allowed = getattr(self, name), getattr(limits, name)
            if own is not None:
                limits = replace(limits, **{name: own if allowed is None else min(own, allowed)})
        return limits
