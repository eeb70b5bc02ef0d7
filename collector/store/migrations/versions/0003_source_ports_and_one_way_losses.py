"""Ports of paths, and one-way losses.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds to the first schema; what there is stays readable."""

    for name in ("source_port", "destination_port"):
        op.add_column("paths", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "one_way_losses",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("record_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("entry", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path_id", sa.BigInteger(), nullable=False),
        sa.Column("direction", sa.Integer(), nullable=False),
        sa.Column("first_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("send_time_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("position", "record_index", "entry"),
    )
    op.create_index("one_way_losses_by_time", "one_way_losses", ["send_time_ns"], unique=False)
