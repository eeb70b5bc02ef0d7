"""Pauses of throughput tests, and under which outcome a slot was counted first.

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds a table and a column; analysis makes what was derived before anew."""
    op.create_table(
        "pauses",
        sa.Column("position", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("record_index", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("until_time_ns", sa.BigInteger()),
        sa.Column("reason", sa.Text(), nullable=False),
    )
    op.add_column("slots", sa.Column("counted", sa.Text(), nullable=False, server_default=""))
