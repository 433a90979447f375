"""What the audit log holds of forks, uploads, and keys that administrators add and revoke."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns, which older records leave empty."""
    op.add_column("audit", sa.Column("target", sa.Text))
    op.add_column("audit", sa.Column("size_bytes", sa.BigInteger))
    op.add_column("audit", sa.Column("by_key_id", sa.String(16)))
