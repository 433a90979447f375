"""The sessions of all servers, and how many of them keys make."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table of sessions, and the column that counts them."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("identifier", sa.Text, nullable=False),
        sa.Column("server_id", sa.String(32), nullable=False, index=True),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("used_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float, index=True),
        sa.Column("ending", sa.String(40)),
    )
    op.create_index("ix_sessions_key_id_ended_at", "sessions", ["key_id", "ended_at"])
    op.add_column(
        "daily_usage", sa.Column("sessions", sa.BigInteger, nullable=False, server_default="0")
    )
