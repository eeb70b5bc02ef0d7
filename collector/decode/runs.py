"""Throughput runs, gaps and the agent's own state into rows. Pure."""

from google.protobuf.message import Message

from bandwitness.identity import short_id
from bandwitness.v1.record_pb2 import (
    RUN_OUTCOME_LOST,
    RUN_OUTCOME_OK,
    RUN_OUTCOME_UNSPECIFIED,
    RUN_ROLE_CLIENT,
    RUN_ROLE_SERVER,
    AgentStatus,
    Gap,
    GateKind,
    ThroughputRun,
)
from collector.model import GapRow, RunRow, Source, StatusRow

MAX_COUNT = (1 << 63) - 1
MAX_TIME_NS = 1 << 62  # the year 2116
MAX_RUN_NS = 600 * 1_000_000_000  # of a test that ran to its end; one cut short may be told days later
MAX_BPS = 1e14  # no port is a tenth as fast
MAX_DETAIL = 2000


_GATE_NAMES: dict[int, str] = {int(kind): name.removeprefix("GATE_KIND_").lower() for name, kind in GateKind.items()}


class RunError(ValueError):
    """A record that contradicts itself; the text says how."""


def run_row(source: Source, run: ThroughputRun) -> RunRow:
    """One end's attempt. There is a throughput only where the outcome is ok and the report says what arrived.

    Raises:
        RunError: no slot, role or outcome, or times and figures that no test can have.
    """
    if len(run.slot_id) != 16 or run.role not in (RUN_ROLE_CLIENT, RUN_ROLE_SERVER):
        raise RunError("a run without slot or role")
    if run.outcome in (RUN_OUTCOME_UNSPECIFIED, RUN_OUTCOME_LOST):
        raise RunError(f"outcome {run.outcome} is not an agent's to say")
    start_ns, end_ns = _time(run.start_time_ns), _time(run.end_time_ns)
    if end_ns < start_ns:
        raise RunError("a run that ends before it starts")
    if run.outcome == RUN_OUTCOME_OK and max(end_ns - start_ns, run.elapsed_ns) > MAX_RUN_NS:
        raise RunError(f"a run of {max(end_ns - start_ns, run.elapsed_ns)} ns")
    received, duration = _count(run, "receiver_bytes"), _count(run, "receiver_duration_ns")
    throughput = None
    if run.outcome == RUN_OUTCOME_OK and received is not None and duration:
        throughput = received * 8e9 / duration
        if throughput > MAX_BPS:
            raise RunError(f"a throughput of {throughput:.3g} bit/s")
    return RunRow(
        source=source,
        slot_id=run.slot_id,
        role=run.role,
        path_id=run.path_id,
        profile_id=short_id(run.profile),
        outcome=run.outcome,
        outcome_detail=run.outcome_detail[:MAX_DETAIL],
        start_time_ns=start_ns,
        end_time_ns=end_ns,
        engine_version=run.engine_version[:MAX_DETAIL],
        throughput_bps=throughput,
        sender_bytes=_count(run, "sender_bytes"),
        receiver_bytes=received,
        receiver_duration_ns=duration,
        receiver_derived=run.receiver_derived,
        retransmits=_count(run, "retransmits"),
        gates_tripped=tuple(dict.fromkeys(gate_name(gate.kind) for gate in run.gate if gate.tripped)),
        flags=tuple(run.flag),
    )


def gate_name(kind: int) -> str:
    """``own_traffic`` for GATE_KIND_OWN_TRAFFIC; kinds of later versions by number."""
    return _GATE_NAMES.get(kind, f"gate_{kind}")


def gap_row(source: Source, gap: Gap) -> GapRow:
    """A stretch in which nothing was recorded."""
    return GapRow(
        source=source,
        reason=gap.reason,
        batch_class=gap.batch_class,
        from_time_ns=_time(gap.from_time_ns),
        to_time_ns=_time(gap.to_time_ns),
        records=_count(gap, "records"),
        detail=gap.detail[:MAX_DETAIL],
        node=source.agent_id,
    )


def status_row(source: Source, status: AgentStatus) -> StatusRow:
    """The agent's word on itself."""
    oldest = _time(status.spool_oldest_time_ns) if status.HasField("spool_oldest_time_ns") else None
    return StatusRow(
        source=source,
        time_ns=_time(status.time_ns),
        spool_bytes=_within(status.spool_bytes),
        spool_oldest_time_ns=oldest,
        records_dropped=_within(status.records_dropped),
        parts=tuple((part.part, part.working, part.state, part.detail[:MAX_DETAIL]) for part in status.part),
        resident_memory_bytes=_count(status, "resident_memory_bytes"),
        cpu_time_ns=_count(status, "cpu_time_ns"),
        iperf3_version=status.iperf3_version,
    )


def _time(value_ns: int) -> int:
    if not 0 <= value_ns < MAX_TIME_NS:
        raise RunError(f"a time of {value_ns} ns")
    return value_ns


def _count(message: Message, name: str) -> int | None:
    return _within(getattr(message, name)) if message.HasField(name) else None


def _within(value: int) -> int:
    if value > MAX_COUNT:
        raise RunError(f"a figure of {value}")
    return value
