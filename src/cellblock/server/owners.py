"""Owner: the API key on whose behalf a request is made, and what it may use."""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS_ID = "anonymous"


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """How much one key may use. None means that only the limits of the server apply.

    sessions             sessions at one time
    running              runs at one time
    cpu_seconds_a_day    CPU seconds of all runs in one day (UTC)
    """

    sessions: int | None = None
    running: int | None = None
    cpu_seconds_a_day: float | None = None

    def __post_init__(self) -> None:
        for name in ("sessions", "running", "cpu_seconds_a_day"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Quotas.{name} must be above 0 or None, not {value!r}.")


@dataclass(frozen=True)
class Owner:
    """Who owns a session. `id` is the identifier of the key, never the key itself."""

    id: str
    quotas: Quotas = Quotas()


ANONYMOUS = Owner(ANONYMOUS_ID)
