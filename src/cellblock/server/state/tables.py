"""The tables of the database. Times are whole seconds since 1970, days are days since 1970."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The base of all tables."""


class KeyRow(Base):
    """An API key. `digest` is the SHA-256 of the key, which is not stored itself.

    `limits` and `policy` have only what differs from the server's.
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


class UsageRow(Base):
    """The CPU seconds of one key on one day (UTC)."""

    __tablename__ = "usage"

    key_id: Mapped[str] = mapped_column(
        String(16), ForeignKey("api_keys.id", ondelete="CASCADE"), primary_key=True
    )
    day: Mapped[int] = mapped_column(Integer, primary_key=True)
    cpu_seconds: Mapped[float] = mapped_column(Float, default=0.0)
