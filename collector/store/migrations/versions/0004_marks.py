"""What trainers said.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds a table; what there is stays readable."""
    op.create_table(
        "marks",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("record_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("said_time_ns", sa.BigInteger(), nullable=True),
        sa.Column("phase", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("process_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("position", "record_index"),
    )
    op.create_index("marks_by_time", "marks", ["time_ns"], unique=False)
