"""Bursts of NICs, cluster bursts, and how far each NIC was watched.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds tables; what there is stays readable."""
    op.create_table(
        "bursts",
        sa.Column("burst_id", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("nic", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("start_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_time_ns", sa.BigInteger(), nullable=True),
        sa.Column("opened_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("error_ns", sa.BigInteger(), nullable=False),
        sa.Column("clock_error_ns", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("other_bytes", sa.BigInteger(), nullable=False),
        sa.Column("peak_bps", sa.Float(), nullable=False),
        sa.Column("mean_bps", sa.Float(), nullable=False),
        sa.Column("usual_bps", sa.Float(), nullable=False),
        sa.Column("threshold_bps", sa.Float(), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("burst_id"),
    )
    op.create_index("bursts_by_start", "bursts", ["start_time_ns"], unique=False)
    op.create_index("bursts_by_end", "bursts", ["end_time_ns"], unique=False)
    op.create_table(
        "cluster_bursts",
        sa.Column("burst_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("start_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_time_ns", sa.BigInteger(), nullable=True),
        sa.Column("opened_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("error_ns", sa.BigInteger(), nullable=False),
        sa.Column("start_spread_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_spread_ns", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("achieved_bps", sa.Float(), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("members", sa.Text(), nullable=False),
        sa.Column("slowest_node", sa.Text(), nullable=False),
        sa.Column("slowest_bps", sa.Float(), nullable=False),
        sa.Column("marked", sa.Boolean(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("mark_time_ns", sa.BigInteger(), nullable=True),
        sa.Column("next_start_time_ns", sa.BigInteger(), nullable=True),
        sa.Column("interval_ns", sa.BigInteger(), nullable=True),
        sa.Column("interval_spread_ns", sa.BigInteger(), nullable=True),
        sa.Column("intervals", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("burst_id"),
    )
    op.create_index("cluster_bursts_by_start", "cluster_bursts", ["start_time_ns"], unique=False)
    op.create_index("cluster_bursts_by_end", "cluster_bursts", ["end_time_ns"], unique=False)
    op.create_table(
        "burst_watches",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("nic", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("meter", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node", "nic"),
    )
