"""Owner: the API key on whose behalf a request is made, and what it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..limits import Limits
from ..policy import Policy
from .refusals import TooManySessions
from .settings import ServedSettings

ANONYMOUS_ID = "anonymous"


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """How much one key may use. None means that only the limits of the server apply.

    sessions             sessions at one time
    running              runs at one time
    cpu_seconds_a_day    CPU seconds of all runs in one day (UTC)
    disk_bytes           bytes on disk of the files of all sessions together
    """

    sessions: int | None = None
    running: int | None = None
    cpu_seconds_a_day: float | None = None
    disk_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("sessions", "running", "cpu_seconds_a_day", "disk_bytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Quotas.{name} must be above 0 or None, not {value!r}.")


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """The limits and the policy of one key's sessions, where they differ from the server's.

    limits   a limit that is not named keeps the server's
    policy   fields as in `Policy.to_dict`. Those that are not named keep the server's
    """

    limits: Limits = Limits()
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __post_init__(self) -> None:
        """Raise `ValueError` if the policy is not valid."""
        complete = Policy.from_dict(self.policy).to_dict()
        named = {name: complete[name] for name in self.policy}
        object.__setattr__(self, "policy", named)

    def apply_to(self, settings: ServedSettings) -> ServedSettings:
        """Return the settings of the key's sessions on a server with `settings`."""
        return replace(
            settings,
            limits=self.limits.with_defaults(settings.limits),
            policy=Policy.from_dict({**settings.policy.to_dict(), **self.policy}),
        )


@dataclass(frozen=True)
class Owner:
    """Who owns a session. `id` is the identifier of the key, never the key itself.

    name       the name of the key
    door       through which the present request came
    is_admin   whether the key may manage all keys, and see what they have done
    """

    id: str
    quotas: Quotas = Quotas()
    overrides: Overrides = Overrides()
    name: str = ""
    door: str = ""
    is_admin: bool = False

    @property
    def visible_key_id(self) -> str | None:
        """The ID of the only key whose records the owner may see; None for all keys."""
        return None if self.is_admin else self.id

    def check_session_quota(self, count: int) -> None:
        """Raise `TooManySessions` if the owner can have no more than `count` sessions."""
        quota = self.quotas.sessions
        if quota is not None and count >= quota:
            raise TooManySessions(
                f"This key already has {quota} sessions. End one, or wait until one expires."
            )


ANONYMOUS = Owner(ANONYMOUS_ID)
