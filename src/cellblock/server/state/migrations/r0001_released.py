"""Keys and their CPU seconds, as versions up to 0.5 made them, without a revision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables that are missing: such a database may have them."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("max_sessions", sa.Integer),
        sa.Column("max_running", sa.Integer),
        sa.Column("cpu_seconds_a_day", sa.Float),
        sa.Column("max_disk_bytes", sa.BigInteger),
        sa.Column("limits", sa.JSON, nullable=False),
        sa.Column("policy", sa.JSON, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "usage",
        sa.Column(
            "key_id",
            sa.String(16),
            sa.ForeignKey("api_keys.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("day", sa.Integer, primary_key=True),
        sa.Column("cpu_seconds", sa.Float, nullable=False),
        if_not_exists=True,
    )
