"""Runs are kept by who sent them; paths with the place in the log that defines them.

Both tables are derived: analysis has a new version with this schema and fills them again from the log.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

from collector.store.tables import runs

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes ``runs`` anew, and adds ``paths.position``."""
    op.add_column("paths", sa.Column("position", sa.BigInteger(), nullable=False, server_default="0"))
    op.drop_table("runs")
    runs.create(op.get_bind())
