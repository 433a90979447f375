"""The tables of the database. Times are seconds since 1970, days are days since 1970."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    Index,
    Integer,
    String,
    Text,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The base of all tables."""


class KeyRow(Base):
    """An API key. `digest` is the SHA-256 of the key, which is not stored itself.

    `limits` and `policy` have only what differs from the server's. Holders of the keys of
    administrators manage all keys in the console.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int | None] = mapped_column(BigInteger)
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)
    max_sessions: Mapped[int | None] = mapped_column(Integer)
    max_running: Mapped[int | None] = mapped_column(Integer)
    cpu_seconds_a_day: Mapped[float | None] = mapped_column(Float)
    max_disk_bytes: Mapped[int | None] = mapped_column(BigInteger)
    limits: Mapped[dict[str, Any]] = mapped_column(JSON)
    policy: Mapped[dict[str, Any]] = mapped_column(JSON)
    is_admin: Mapped[bool] = mapped_column(Boolean, server_default=false())


class UsageRow(Base):
    """What one key has used on one day (UTC). It stays when the key is removed.

    run_seconds   wall time of all runs
    sessions      how many it has made
    """

    __tablename__ = "daily_usage"

    key_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    day: Mapped[int] = mapped_column(Integer, primary_key=True)
    key_name: Mapped[str] = mapped_column(String(200))
    runs: Mapped[int] = mapped_column(BigInteger)
    sessions: Mapped[int] = mapped_column(BigInteger, server_default="0")
    run_seconds: Mapped[float] = mapped_column(Float)
    cpu_seconds: Mapped[float] = mapped_column(Float)


class AuditRow(Base):
    """Who did what, and when: see `AuditRecord`. Rows are added, and removed when they are old."""

    __tablename__ = "audit"

    # SQLite counts only INTEGER up.
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    time: Mapped[float] = mapped_column(Float, index=True)
    key_id: Mapped[str] = mapped_column(String(16), index=True)
    key_name: Mapped[str] = mapped_column(String(200))
    server: Mapped[str] = mapped_column(Text)
    door: Mapped[str] = mapped_column(String(40))
    action: Mapped[str] = mapped_column(String(40))
    session: Mapped[str | None] = mapped_column(Text)
    run: Mapped[str | None] = mapped_column(Text)
    language: Mapped[str | None] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(String(40))
    seconds: Mapped[float] = mapped_column(Float)
    cpu_seconds: Mapped[float] = mapped_column(Float)
    target: Mapped[str | None] = mapped_column(Text)
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    by_key_id: Mapped[str | None] = mapped_column(String(16))


class ServerRow(Base):
    """A server that uses the database at present.

    seen_at   when it has written last
    batch     the number of what it has written last, so that a repeated attempt is not counted
              twice
    """

    __tablename__ = "servers"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    started_at: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[float] = mapped_column(Float)
    batch: Mapped[int] = mapped_column(BigInteger)


class SessionRow(Base):
    """A session of any server, or one that has ended.

    server       the name of the server, which stays when the server has ended
    used_at      about when it was used last
    expires_at   when it ends if it is not used
    ending       why it has ended, or "lost" if its server has
    """

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_key_id_ended_at", "key_id", "ended_at"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(16))
    identifier: Mapped[str] = mapped_column(Text)
    server_id: Mapped[str] = mapped_column(String(32), index=True)
    server: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(Float)
    used_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float] = mapped_column(Float)
    ended_at: Mapped[float | None] = mapped_column(Float, index=True)
    ending: Mapped[str | None] = mapped_column(String(40))
