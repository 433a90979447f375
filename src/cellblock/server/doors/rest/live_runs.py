"""LiveRuns: the current runs of all keys, and those that ended a short time ago."""

from __future__ import annotations

import asyncio
from collections import Counter

from ....limits import MIB
from ...owners import Owner
from ...refusals import RunIdReused, RunNotFound
from ...sessions.store import SessionStore
from .live_run import LiveRun, LiveRunSettings

_KEEP_SECONDS = 300.0
_KEEP_BYTES = 32 * MIB  # of the ended runs of one key
_RUN_BYTES = 5_000  # of memory, besides the events


class LiveRuns:
    """Starts runs and finds them by their ID. Belongs to one event loop."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._runs = dict[str, LiveRun]()
        self._keyed = dict[tuple[str, str], LiveRun]()  # by owner and the key of the client
        self._ended = dict[str, dict[str, int]]()  # the sizes of the ended runs of each key
        self._bytes = Counter[str]()  # their sums

    def start(self, owner: Owner, settings: LiveRunSettings) -> LiveRun:
        """Start a run. `check` of the run raises what prevented it."""
        live = LiveRun(self._store, owner, settings)
        self._runs[live.run.id] = live
        if settings.key is not None:
            self._keyed[owner.id, settings.key] = live
        live.add_done_callback(self._keep)
        return live

    def find_retried(self, owner: Owner, settings: LiveRunSettings) -> LiveRun | None:
        """Return the run that was started with the key of these settings; None if there is none.

        Raise `RunIdReused` if it has other settings. A run that could not be carried out is not
        found, so that it can be tried again.
        """
        live = None if settings.key is None else self._keyed.get((owner.id, settings.key))
        if live is None or live.error is not None:
            return None
        if live.settings != settings:
            raise RunIdReused(
                "The header Idempotency-Key was sent with another request before. Use a new key "
                "for each run, and the same body for a retry."
            )
        return live

    def find(self, owner: Owner, run_id: str) -> LiveRun:
        """Return a run. Raise `RunNotFound` if the owner has none with this ID."""
        live = self._runs.get(run_id)
        if live is None or live.owner.id != owner.id:
            raise RunNotFound(
                f"There is no run {run_id[:100]!r}. Runs can be requested until 5 minutes after "
                "their end."
            )
        return live

    def of_session(self, owner: Owner, session_id: str) -> list[LiveRun]:
        """Return the runs in a session, oldest first."""
        return [
            live
            for live in self._runs.values()
            if live.owner.id == owner.id and live.settings.session_id == session_id
        ]

    def _keep(self, live: LiveRun) -> None:
        """Forget an ended run later, and the oldest ones now if they use too much memory."""
        key, size = live.owner.id, live.size_bytes + _RUN_BYTES
        ended = self._ended.setdefault(key, {})
        ended[live.run.id] = size
        self._bytes[key] += size
        while self._bytes[key] > _KEEP_BYTES and len(ended) > 1:
            self._forget(key, next(iter(ended)))
        asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._forget, key, live.run.id)

    def _forget(self, key: str, run_id: str) -> None:
        ended = self._ended.get(key, {})
        if run_id not in ended:
            return
        live = self._runs.pop(run_id)
        own_key = key, live.settings.key or ""
        if self._keyed.get(own_key) is live:
            del self._keyed[own_key]
        self._bytes[key] -= ended.pop(run_id)
        if not ended:
            del self._ended[key], self._bytes[key]
