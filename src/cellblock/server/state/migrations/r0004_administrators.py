"""Which keys may manage all keys in the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column, which is false for the keys that exist."""
    op.add_column(
        "api_keys", sa.Column("is_admin", sa.Boolean, nullable=False, server_default=sa.false())
    )
