"""Runs are kept by who sent them; paths with the place in the log that defines them.

Both tables are derived: analysis has a new version with this schema and fills them again from the log.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes ``runs`` anew, and adds ``paths.position``."""
    op.add_column("paths", sa.Column("position", sa.BigInteger(), nullable=False, server_default="0"))
    op.drop_table("runs")
    op.create_table(
        "runs",
        sa.Column("slot_id", sa.LargeBinary(), nullable=False),
        sa.Column("role", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("path_id", sa.BigInteger(), nullable=False),
        sa.Column("profile_id", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Integer(), nullable=False),
        sa.Column("outcome_detail", sa.Text(), nullable=False),
        sa.Column("start_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("engine_version", sa.Text(), nullable=False),
        sa.Column("throughput_bps", sa.Float(), nullable=True),
        sa.Column("sender_bytes", sa.BigInteger(), nullable=True),
        sa.Column("receiver_bytes", sa.BigInteger(), nullable=True),
        sa.Column("receiver_duration_ns", sa.BigInteger(), nullable=True),
        sa.Column("receiver_derived", sa.Boolean(), nullable=False),
        sa.Column("retransmits", sa.BigInteger(), nullable=True),
        sa.Column("gates_tripped", sa.Text(), nullable=False),
        sa.Column("flags", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("slot_id", "role", "agent_id"),
    )
    op.create_index("runs_by_end", "runs", ["end_time_ns"], unique=False)
