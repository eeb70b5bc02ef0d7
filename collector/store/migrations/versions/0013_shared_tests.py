"""Tests that saturate something shared.

Revision ID: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds a table."""
    op.create_table(
        "shared_tests",
        sa.Column("position", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("record_index", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("ordered_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
    )
