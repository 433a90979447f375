"""KeyStore: add, list, revoke and look up API keys."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import socket
import time
from dataclasses import asdict, dataclass

from sqlalchemy import Engine, or_, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from ...errors import CellblockError
from ...limits import Limits
from ..owners import Overrides, Owner, Quotas
from ..refusals import InvalidRequest, NotAuthenticated
from ..state.database import database_error
from ..state.records import AuditRecord, KeyAction
from ..state.tables import AuditRow, KeyRow

KEY_PREFIX = "cb_"
_COMMAND_LINE = "command line"  # as a door of the audit log
_KEY_BYTES = 32
_MAX_KEY_LENGTH = 500
_KEPT_SECONDS = 1.0
_MAX_KEPT = 1000


@dataclass(frozen=True)
class KeyInfo:
    """The description of a key. Times are seconds since 1970."""

    id: str
    name: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    quotas: Quotas
    overrides: Overrides
    is_admin: bool = False

    @property
    def state(self) -> str:
        """Return "active", "expired" or "revoked"."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if _is_to_come(self.expires_at) else "expired"

    @property
    def owner(self) -> Owner:
        """The owner of what is done with the key."""
        return Owner(self.id, self.quotas, self.overrides, self.name, is_admin=self.is_admin)


def _is_to_come(expires_at: int | None) -> bool:
    return expires_at is None or expires_at > time.time()


class _RecentKeys:
    """The keys that were read last, by digest. Times are of `time.monotonic`."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, KeyInfo]] = {}  # oldest first

    def get(self, digest: str, now: float) -> KeyInfo | None:
        """Return a key that was added less than `_KEPT_SECONDS` before `now`."""
        read_at, info = self._found.get(digest, (0.0, None))
        return info if now - read_at < _KEPT_SECONDS else None

    def add(self, digest: str, info: KeyInfo, read_at: float) -> None:
        """Add a key that was in the database at the time `read_at`."""
        self._found.pop(digest, None)
        self._found[digest] = read_at, info
        if len(self._found) > _MAX_KEPT:
            del self._found[next(iter(self._found))]


class KeyStore:
    """The keys in a database. Methods that are not `async` block for a few milliseconds.

    A key that was found is not read again for one second: so long may a revoked key be accepted.
    All methods raise `BackendError` if the database fails.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recent = _RecentKeys()

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    # administration

    def add(
        self,
        name: str,
        *,
        quotas: Quotas | None = None,
        overrides: Overrides | None = None,
        expires_at: int | None = None,
        is_admin: bool = False,
        by: Owner | None = None,
    ) -> tuple[KeyInfo, str]:
        """Create a key. Return its description and the key itself, which is not stored.

        `is_admin` lets its holder manage all keys in the console. `by` is the administrator who
        creates it, for the audit log; None for the command line.
        A key of this name that was revoked or has expired is removed. Raise
        `InvalidRequest` if the name is empty, too long or in use.
        """
        _check_name(name)
        quotas, overrides = quotas or Quotas(), overrides or Overrides()
        key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        row = KeyRow(
            id=secrets.token_hex(6),
            name=name,
            digest=digest_of(key),
            created_at=int(time.time()),
            expires_at=expires_at,
            revoked_at=None,
            **_quota_columns(quotas),
            limits=overrides.limits.to_dict(),
            policy=dict(overrides.policy),
            is_admin=is_admin,
        )
        try:
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                old = session.scalars(select(KeyRow).where(KeyRow.name == name)).first()
                if old is not None and _to_info(old).state != "active":
                    session.delete(old)
                    session.flush()
                session.add_all([row, _audit_row("key.add", row, by)])
        except SQLAlchemyError as error:
            raise _write_error(error, name) from error
        return _to_info(row), key

    def change(
        self,
        key_id: str,
        *,
        name: str,
        quotas: Quotas,
        expires_at: int | None,
        is_admin: bool,
        by: Owner,
    ) -> None:
        """Change what `add` has set of the key with this ID. Its limits and policy stay.

        `by` is the administrator who does it. Raise `InvalidRequest` if the key is unknown or
        revoked, if `by` would end its own right to manage keys, and for a name as in `add`.
        """
        _check_name(name)
        if by.id == key_id and not (is_admin and _is_to_come(expires_at)):
            raise InvalidRequest("Another administrator must do this: it is your own key.")
        try:
            with Session(self._engine) as session, session.begin():
                row = session.get(KeyRow, key_id)
                if row is None or row.revoked_at is not None:
                    raise InvalidRequest("There is no such key, or it is revoked. Add another one.")
                changed = {"name": name, "expires_at": expires_at, "is_admin": is_admin}
                for column, value in {**changed, **_quota_columns(quotas)}.items():
                    setattr(row, column, value)
                session.add(_audit_row("key.change", row, by))
        except SQLAlchemyError as error:
            raise _write_error(error, name) from error

    def list_keys(self) -> list[KeyInfo]:
        """Return all keys, oldest first."""
        try:
            with Session(self._engine) as session:
                rows = session.scalars(select(KeyRow).order_by(KeyRow.created_at, KeyRow.name))
                return [_to_info(row) for row in rows]
        except SQLAlchemyError as error:
            raise database_error(error) from error

    def revoke(self, name_or_id: str, *, by: Owner | None = None) -> KeyInfo:
        """Revoke a key by its name or ID, with `by` as in `add`.

        Raise `InvalidRequest` if there is no such key.
        """
        try:
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                matches = or_(KeyRow.name == name_or_id, KeyRow.id == name_or_id)
                row = session.scalars(select(KeyRow).where(matches)).first()
                if row is None:
                    raise InvalidRequest(
                        f"There is no key {name_or_id!r}. See `cellblock keys list`."
                    )
                row.revoked_at = row.revoked_at or int(time.time())
                session.add(_audit_row("key.revoke", row, by))
                return _to_info(row)
        except SQLAlchemyError as error:
            raise database_error(error) from error

    # requests

    async def find_owner(self, key: str) -> Owner:
        """Return the owner with this key.

        Raise `NotAuthenticated` if the key is unknown, expired or revoked.
        """
        return (await self.find_active(digest_of(key))).owner

    async def find_active(self, digest: str) -> KeyInfo:
        """Return the key with this digest. Raises as `find_owner` does."""
        info = await self._find(digest)
        if info is None or info.state != "active":
            what = "is unknown" if info is None else f"was {info.state}"
            what = "has expired" if info is not None and info.state == "expired" else what
            raise NotAuthenticated(
                f"The API key {what}. Create one with `cellblock keys add`, in the database of the "
                "server."
            )
        return info

    async def _find(self, digest: str) -> KeyInfo | None:
        now = time.monotonic()
        if (info := self._recent.get(digest, now)) is None:
            info = await asyncio.to_thread(self._read, digest)
            if info is not None:
                self._recent.add(digest, info, now)
        return info

    def _read(self, digest: str) -> KeyInfo | None:
        try:
            with Session(self._engine) as session:
                row = session.scalars(select(KeyRow).where(KeyRow.digest == digest)).first()
                return None if row is None else _to_info(row)
        except SQLAlchemyError as error:
            raise database_error(error) from error


def digest_of(key: str) -> str:
    """Return what the database has of a key: its SHA-256; "" for a text that is too long."""
    # A key has 256 random bits, so a slow hash would protect nothing.
    is_short = len(key) <= _MAX_KEY_LENGTH
    return hashlib.sha256(key.encode(errors="replace")).hexdigest() if is_short else ""


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise InvalidRequest("The name of a key must have 1 to 200 printable characters.")


def _write_error(error: SQLAlchemyError, name: str) -> CellblockError:
    if isinstance(error, IntegrityError):
        return InvalidRequest(f"There is a key named {name!r}. Use another name.")
    return database_error(error)


def _quota_columns(quotas: Quotas) -> dict[str, float | None]:
    return {
        "max_sessions": quotas.sessions,
        "max_running": quotas.running,
        "cpu_seconds_a_day": quotas.cpu_seconds_a_day,
        "max_disk_bytes": quotas.disk_bytes,
    }


def _audit_row(action: KeyAction, key: KeyRow, by: Owner | None) -> AuditRow:
    record = AuditRecord(
        time=round(time.time(), 6),  # as clients see it
        key_id=key.id,
        key_name=key.name,
        server=socket.gethostname(),
        door=_COMMAND_LINE if by is None else by.door,
        action=action,
        by_key_id=None if by is None else by.id,
    )
    return AuditRow(**asdict(record))


def _to_info(row: KeyRow) -> KeyInfo:
    quotas = Quotas(
        sessions=row.max_sessions,
        running=row.max_running,
        cpu_seconds_a_day=row.cpu_seconds_a_day,
        disk_bytes=row.max_disk_bytes,
    )
    return KeyInfo(
        id=row.id,
        name=row.name,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        quotas=quotas,
        overrides=Overrides(limits=Limits.from_dict(row.limits), policy=row.policy),
        is_admin=row.is_admin,
    )
