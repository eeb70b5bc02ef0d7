"""First schema.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes all tables."""

    op.create_table(
        "agents",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_received_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_received_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("watermark_ns", sa.BigInteger(), nullable=True),
        sa.Column("round_trip_watermark_ns", sa.BigInteger(), nullable=True),
        sa.Column("closed_through_ns", sa.BigInteger(), nullable=True),
        sa.Column("software_version", sa.Text(), nullable=True),
        sa.Column("iperf3_version", sa.Text(), nullable=True),
        sa.Column("clock_synchronised", sa.Boolean(), nullable=True),
        sa.Column("clock_error_bound_ns", sa.BigInteger(), nullable=True),
        sa.Column("spool_bytes", sa.BigInteger(), nullable=True),
        sa.Column("records_dropped", sa.BigInteger(), nullable=True),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.Column("chains", sa.Text(), nullable=False),
        sa.Column("quarantined", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("said_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("incident_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("element_kind", sa.Text(), nullable=False),
        sa.Column("element_name", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("opened_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("alerts_by_incident", "alerts", ["incident_id"], unique=False)
    op.create_index("alerts_by_time", "alerts", ["said_time_ns"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("time_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("time_ns"),
    )
    op.create_table(
        "counter_sets",
        sa.Column("counter_set_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("counter_set_id"),
    )
    op.create_table(
        "gaps",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("record_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reason", sa.Integer(), nullable=False),
        sa.Column("batch_class", sa.Integer(), nullable=False),
        sa.Column("from_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("to_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", "record_index"),
    )
    op.create_table(
        "incidents",
        sa.Column("incident_id", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("rule_version", sa.Integer(), nullable=False),
        sa.Column("element_kind", sa.Text(), nullable=False),
        sa.Column("element_name", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("opened_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("closed_time_ns", sa.BigInteger(), nullable=True),
        sa.Column("updated_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("decided_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("figures", sa.Text(), nullable=False),
        sa.Column("children", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("incident_id"),
    )
    op.create_index("incidents_by_decision", "incidents", ["decided_time_ns"], unique=False)
    op.create_index("incidents_by_opening", "incidents", ["opened_time_ns"], unique=False)
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "nic_windows",
        sa.Column("start_time_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("nic", sa.Text(), nullable=False),
        sa.Column("receive_bytes", sa.BigInteger(), nullable=True),
        sa.Column("transmit_bytes", sa.BigInteger(), nullable=True),
        sa.Column("receive_span_ns", sa.BigInteger(), nullable=False),
        sa.Column("transmit_span_ns", sa.BigInteger(), nullable=False),
        sa.Column("receive_peak_bytes_per_second", sa.Float(), nullable=True),
        sa.Column("transmit_peak_bytes_per_second", sa.Float(), nullable=True),
        sa.Column("resets", sa.Integer(), nullable=False),
        sa.Column("ticks", sa.Integer(), nullable=False),
        sa.Column("speed_bps", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("start_time_ns", "node", "nic"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "nics",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("nic", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node", "nic"),
    )
    op.create_table(
        "paths",
        sa.Column("path_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=True),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("target_address", sa.Text(), nullable=True),
        sa.Column("protocol", sa.Integer(), nullable=False),
        sa.Column("ip_version", sa.Integer(), nullable=False),
        sa.Column("payload_bytes", sa.Integer(), nullable=False),
        sa.Column("dscp", sa.Integer(), nullable=False),
        sa.Column("profile_id", sa.BigInteger(), nullable=True),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("path_id"),
    )
    op.create_table(
        "plans",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("plan_hash", sa.LargeBinary(), nullable=False),
        sa.Column("issued_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("expiry_time_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "profiles",
        sa.Column("profile_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("profile_id"),
    )
    op.create_table(
        "quarantine",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("record_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", "record_index"),
    )
    op.create_table(
        "round_trip_windows",
        sa.Column("start_time_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("path_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("length_ns", sa.BigInteger(), nullable=False),
        sa.Column("sent", sa.Integer(), nullable=False),
        sa.Column("replied", sa.Integer(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("unreachable", sa.Integer(), nullable=False),
        sa.Column("corrupt", sa.Integer(), nullable=False),
        sa.Column("unresolved", sa.Integer(), nullable=False),
        sa.Column("send_failed", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("duplicates", sa.Integer(), nullable=False),
        sa.Column("late", sa.Integer(), nullable=False),
        sa.Column("delay_samples", sa.Integer(), nullable=False),
        sa.Column("delay_min_ns", sa.BigInteger(), nullable=True),
        sa.Column("delay_p50_ns", sa.BigInteger(), nullable=True),
        sa.Column("delay_p99_ns", sa.BigInteger(), nullable=True),
        sa.Column("delay_max_ns", sa.BigInteger(), nullable=True),
        sa.Column("loaded_by", sa.LargeBinary(), nullable=True),
        sa.Column("buckets", sa.LargeBinary(), nullable=False),
        sa.Column("histogram", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("start_time_ns", "path_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("round_trip_windows_by_path", "round_trip_windows", ["path_id", "start_time_ns"], unique=False)
    op.create_table(
        "runs",
        sa.Column("slot_id", sa.LargeBinary(), nullable=False),
        sa.Column("role", sa.Integer(), autoincrement=False, nullable=False),
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
        sa.PrimaryKeyConstraint("slot_id", "role"),
    )
    op.create_index("runs_by_end", "runs", ["end_time_ns"], unique=False)
    op.create_table(
        "slots",
        sa.Column("slot_id", sa.LargeBinary(), nullable=False),
        sa.Column("group_id", sa.LargeBinary(), nullable=False),
        sa.Column("purpose", sa.Integer(), nullable=False),
        sa.Column("window", sa.Integer(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("start_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("margin_ns", sa.BigInteger(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("reverse", sa.Boolean(), nullable=False),
        sa.Column("path_id", sa.BigInteger(), nullable=False),
        sa.Column("profile_id", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("withdrawn", sa.Boolean(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Integer(), nullable=False),
        sa.Column("disagreement", sa.Text(), nullable=False),
        sa.Column("contended", sa.Boolean(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("slot_id"),
    )
    op.create_index("slots_by_start", "slots", ["start_time_ns"], unique=False)
    op.create_index("slots_pending", "slots", ["category", "end_time_ns"], unique=False)
    op.create_table(
        "swings",
        sa.Column("path_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("engine_version", sa.Text(), nullable=False),
        sa.Column("peak_bps", sa.Float(), nullable=True),
        sa.Column("offpeak_bps", sa.Float(), nullable=True),
        sa.Column("tests_peak", sa.Integer(), nullable=False),
        sa.Column("tests_offpeak", sa.Integer(), nullable=False),
        sa.Column("swing_ratio", sa.Float(), nullable=True),
        sa.Column("flagged", sa.Boolean(), nullable=False),
        sa.Column("through_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("last_bps", sa.Float(), nullable=True),
        sa.Column("last_time_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("path_id", "engine_version"),
    )
