"""What a NIC is, how long it was paused, and what else it counted, by windows of 10 s.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds to the table; rows that are there have no counts."""

    op.add_column("nic_windows", sa.Column("kind", sa.Text(), nullable=False, server_default=""))
    op.add_column("nic_windows", sa.Column("receive_pause_ratio", sa.Float()))
    op.add_column("nic_windows", sa.Column("transmit_pause_ratio", sa.Float()))
    op.add_column("nic_windows", sa.Column("counts", sa.Text(), nullable=False, server_default="{}"))
