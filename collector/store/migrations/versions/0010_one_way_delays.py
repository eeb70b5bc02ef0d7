"""One-way delays by path and window.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds to the schema before; what there is stays readable."""

    op.create_table(
        "one_way_delays",
        sa.Column("start_time_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("path_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("length_ns", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("sender_clock_error_ns", sa.BigInteger(), nullable=False),
        sa.Column("reflector_clock_error_ns", sa.BigInteger(), nullable=False),
        sa.Column("forward_delay_min_ns", sa.BigInteger(), nullable=False),
        sa.Column("forward_delay_p50_ns", sa.BigInteger(), nullable=False),
        sa.Column("forward_delay_p99_ns", sa.BigInteger(), nullable=False),
        sa.Column("reverse_delay_min_ns", sa.BigInteger(), nullable=False),
        sa.Column("reverse_delay_p50_ns", sa.BigInteger(), nullable=False),
        sa.Column("reverse_delay_p99_ns", sa.BigInteger(), nullable=False),
        sa.Column("forward_histogram", sa.LargeBinary(), nullable=False),
        sa.Column("reverse_histogram", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("start_time_ns", "path_id"),
        sqlite_with_rowid=False,
    )
