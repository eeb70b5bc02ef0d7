"""Traces, path MTU checks, and what is known of each path's way.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds to the schema before; what there is stays readable."""

    op.create_table(
        "route_traces",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("record_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("path_id", sa.BigInteger(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("trace_reason", sa.Integer(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("reached", sa.Boolean(), nullable=False),
        sa.Column("hops", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", "record_index"),
    )
    op.create_index("route_traces_by_time", "route_traces", ["time_ns"], unique=False)
    op.create_table(
        "path_mtus",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("record_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("path_id", sa.BigInteger(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("mtu_bytes", sa.Integer()),
        sa.Column("interface_mtu_bytes", sa.Integer()),
        sa.Column("black_hole", sa.Boolean(), nullable=False),
        sa.Column("trials", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", "record_index"),
    )
    op.create_index("path_mtus_by_time", "path_mtus", ["time_ns"], unique=False)
    op.create_table(
        "route_changes",
        sa.Column("path_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("path_id", "time_ns", "change"),
    )
    op.create_index("route_changes_by_time", "route_changes", ["time_ns"], unique=False)
    op.create_table(
        "path_ways",
        sa.Column("path_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hop_limit", sa.Integer()),
        sa.Column("candidate", sa.Integer()),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("candidate_time_ns", sa.BigInteger()),
        sa.Column("responders", sa.Text(), nullable=False),
        sa.Column("trace_reached", sa.Boolean(), nullable=False),
        sa.Column("trace_time_ns", sa.BigInteger()),
        sa.Column("mtu_bytes", sa.Integer()),
        sa.Column("usual_mtu_bytes", sa.Integer()),
        sa.Column("black_hole", sa.Boolean(), nullable=False),
        sa.Column("mtu_time_ns", sa.BigInteger()),
        sa.PrimaryKeyConstraint("path_id"),
    )
