"""When agents doubted their own delays, and what they say of themselves.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds to what there is; that stays readable."""
    op.add_column("round_trip_windows", sa.Column("doubtful", sa.Text(), nullable=True))
    op.add_column("agents", sa.Column("self_check", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("agents", sa.Column("gaps", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("agents", sa.Column("last_gap_time_ns", sa.BigInteger(), nullable=True))
    op.create_table(
        "doubts",
        sa.Column("start_time_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("start_time_ns", "node"),
        sqlite_with_rowid=False,
    )
