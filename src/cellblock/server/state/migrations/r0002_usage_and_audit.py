"""More of what keys use, which stays when a key is removed; the audit log; the servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the new tables, and move the CPU seconds of keys to one of them."""
    _create_daily_usage()
    _create_audit()
    op.create_table(
        "servers",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.Float, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
    )


def _create_daily_usage() -> None:
    op.create_table(
        "daily_usage",
        sa.Column("key_id", sa.String(16), primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True),
        sa.Column("key_name", sa.String(200), nullable=False),
        sa.Column("runs", sa.BigInteger, nullable=False),
        sa.Column("run_seconds", sa.Float, nullable=False),
        sa.Column("cpu_seconds", sa.Float, nullable=False),
    )
    op.execute(
        "INSERT INTO daily_usage (key_id, day, key_name, runs, run_seconds, cpu_seconds) "
        "SELECT key_id, day, name, 0, 0, cpu_seconds FROM usage JOIN api_keys ON id = key_id"
    )
    op.drop_table("usage")


def _create_audit() -> None:
    counter = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "audit",
        sa.Column("id", counter, primary_key=True),
        sa.Column("time", sa.Float, nullable=False, index=True),
        sa.Column("key_id", sa.String(16), nullable=False, index=True),
        sa.Column("key_name", sa.String(200), nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("door", sa.String(40), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("session", sa.Text),
        sa.Column("run", sa.Text),
        sa.Column("language", sa.Text),
        sa.Column("outcome", sa.String(40), nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("cpu_seconds", sa.Float, nullable=False),
    )
