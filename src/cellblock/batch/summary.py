"""Summary: how many programs of a batch ended how."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .verdicts import OUTCOMES, Outcome, Verdict


@dataclass
class Summary:
    """How many programs of a batch ended how, so far.

    outcomes      the number of verdicts with each outcome
    resumed       how many of the verdicts were in the journal already
    retries       how many runs were repeated after failures of our own
    cpu_seconds   what all runs used
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    resumed: int = 0
    retries: int = 0
    cpu_seconds: float = 0.0

    @property
    def total(self) -> int:
        """The number of verdicts."""
        return self.outcomes.total()

    def add(self, verdict: Verdict, *, is_resumed: bool = False) -> None:
        """Count `verdict`."""
        self.outcomes[verdict.outcome] += 1
        self.resumed += is_resumed
        self.retries += verdict.attempts - 1
        self.cpu_seconds += verdict.cpu_seconds

    def counts(self) -> str:
        """Return the outcomes as text, such as "2 passed, 1 failed"."""
        counts = [(self.outcomes[name], name.replace("_", " ")) for name in OUTCOMES]
        return ", ".join(f"{count} {name}" for count, name in counts if count)

    def __str__(self) -> str:
        notes = [f"{self.resumed} of them in an earlier run"] if self.resumed else []
        notes += [f"{self.retries} runs repeated"] if self.retries else []
        programs = f"{self.total} program{'s' if self.total != 1 else ''}"
        return "; ".join([f"{programs}: {self.counts() or 'none judged'}", *notes])
