"""One log entry into the rows it holds. Pure; never raises on bad input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from bandwitness.chain import ChainError, ChainFault, read_header, read_payload
from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, Header, Record
from collector.decode import columns, control, marks, runs, self_checks, ways
from collector.decode.definitions import DefinitionError, Definitions
from collector.model import (
    BatchRow,
    ChainOpenedRow,
    CollectorStartedRow,
    CounterSetRow,
    GapRow,
    LogEntry,
    MarkRow,
    NicSamples,
    OneWayDelays,
    OneWayLossRow,
    PathMtuRow,
    PathRow,
    PauseRow,
    PlanRow,
    ProfileRow,
    Quarantined,
    RoundTripSamples,
    RouteTraceRow,
    RunRow,
    SelfCheckRow,
    SharedTestRow,
    Source,
    StatusRow,
    TreeHeadRow,
    WindowsRow,
)

# The signature holds and the records are those signed for: only the place in the chain is in doubt. Their rows stay
# out, but definitions mean the same wherever they stand, and later batches need them.
DEFINING_FAULTS = frozenset({ChainFault.GAP, ChainFault.BROKEN_LINK, ChainFault.FORK})


@dataclass(slots=True)
class Decoded:
    """The rows of one batch, in the order of its records within each list."""

    batch: BatchRow | None = None  # None: the header cannot be read
    payload_missing: bool = False  # dropped, pruned or withheld
    paths: list[PathRow] = field(default_factory=list)
    profiles: list[ProfileRow] = field(default_factory=list)
    counter_sets: list[CounterSetRow] = field(default_factory=list)
    round_trips: list[RoundTripSamples] = field(default_factory=list)
    one_way_losses: list[OneWayLossRow] = field(default_factory=list)
    one_way_delays: list[OneWayDelays] = field(default_factory=list)
    runs: list[RunRow] = field(default_factory=list)
    nics: list[NicSamples] = field(default_factory=list)
    marks: list[MarkRow] = field(default_factory=list)
    self_checks: list[SelfCheckRow] = field(default_factory=list)
    route_traces: list[RouteTraceRow] = field(default_factory=list)
    path_mtus: list[PathMtuRow] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    statuses: list[StatusRow] = field(default_factory=list)
    chains_opened: list[ChainOpenedRow] = field(default_factory=list)
    plans: list[PlanRow] = field(default_factory=list)
    windows: list[WindowsRow] = field(default_factory=list)
    collectors_started: list[CollectorStartedRow] = field(default_factory=list)
    tree_heads: list[TreeHeadRow] = field(default_factory=list)
    pauses: list[PauseRow] = field(default_factory=list)
    shared_tests: list[SharedTestRow] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)


def decode(entry: LogEntry, definitions: Definitions) -> Decoded:
    """Reads everything in ``entry``; new definitions are added to ``definitions``."""
    result = Decoded()
    try:
        header = read_header(entry.header)
    except ChainError as error:
        _refuse(result, entry, entry.quarantine or error.fault, str(error))
        return result
    result.batch = _batch_row(entry, header)
    if entry.quarantine:
        _refuse(result, entry, entry.quarantine, f"seq {entry.seq} of {entry.agent_id}")
        if entry.quarantine not in DEFINING_FAULTS:
            return result
    if not entry.payload and header.record_count:
        result.payload_missing = True
        return result
    try:
        records = read_payload(header, entry.payload)
    except ChainError as error:
        if not entry.quarantine:
            _refuse(result, entry, error.fault, str(error))
        return result
    for index, record in enumerate(records):
        _record(result, entry, definitions, index, record)
    return result


def _refuse(result: Decoded, entry: LogEntry, reason: str, detail: str, index: int = -1) -> None:
    result.quarantined.append(Quarantined(_source(entry, index), str(reason), detail[:500]))


def _source(entry: LogEntry, index: int) -> Source:
    return Source(entry.agent_id, entry.chain_id, entry.batch_class, entry.seq, index, entry.position)


def _record(result: Decoded, entry: LogEntry, definitions: Definitions, index: int, record: bytes) -> None:
    try:
        parsed = Record.FromString(record)
    except DecodeError as error:
        _refuse(result, entry, "bad_record", str(error), index)
        return
    kind = parsed.WhichOneof("kind")
    if kind is None:
        _refuse(result, entry, "unknown_kind", "a record of a kind this version does not know", index)
        return
    if entry.quarantine and kind != "definition":
        return
    if (kind in _CONTROL_KINDS) != (entry.batch_class == BATCH_CLASS_CONTROL):
        _refuse(result, entry, "wrong_class", f"{kind} in class {entry.batch_class}", index)
        return
    reader = _READERS.get(kind)
    if reader is None:
        return  # of a kind that gives no rows: it stays in the log
    try:
        reader(result, _source(entry, index), parsed, definitions)
    except UndefinedCountersError as error:
        _refuse(result, entry, "undefined_counters", str(error), index)
    except DefinitionError as error:
        _refuse(result, entry, "bad_definition", str(error), index)
    except ForeignPathError as error:
        _refuse(result, entry, "foreign_path", str(error), index)
    except _BAD_RECORD as error:
        _refuse(result, entry, "bad_record", str(error), index)


class UndefinedCountersError(ValueError):
    """Columns whose counter set was never defined."""


class ForeignPathError(ValueError):
    """The definition of a path that the sender is at no end of."""


def _definition(result: Decoded, source: Source, record: Record, definitions: Definitions) -> None:
    subject, agent = record.definition.WhichOneof("subject"), source.agent_id
    if subject == "path":
        path = definitions.path(record.definition.path, agent)
        # Both ends of a throughput test record it; nobody else has anything to say about a path.
        if agent not in (path.source.node, path.destination.node if path.destination is not None else ""):
            raise ForeignPathError(f"path {path.path_id:016x} from {path.source.node}")
        result.paths.append(path)
    elif subject == "profile":
        result.profiles.append(definitions.profile(record.definition.profile, agent))
    elif subject == "counter_set":
        result.counter_sets.append(definitions.counter_set(record.definition.counter_set, agent))
    else:
        raise DefinitionError("a definition of a kind this version does not know")


def _round_trip(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.round_trips.append(columns.round_trip(source, record.round_trip))


def _one_way(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    losses, delays = columns.one_way_losses(source, record.one_way), columns.one_way_delays(source, record.one_way)
    result.one_way_losses += losses
    if delays is not None:
        result.one_way_delays.append(delays)


def _nic(result: Decoded, source: Source, record: Record, definitions: Definitions) -> None:
    counter_set = definitions.counters(record.nic.counter_set_id)
    if counter_set is None:
        if record.nic.fault and not record.nic.tick_count:  # nothing could be read, not even which counters there are
            counter_set = CounterSetRow(0, (), b"")
        else:
            raise UndefinedCountersError(f"counter set {record.nic.counter_set_id:016x} of {record.nic.nic}")
    result.nics.append(columns.nic(source, source.agent_id, record.nic, counter_set))


def _run(result: Decoded, source: Source, record: Record, definitions: Definitions) -> None:
    result.profiles.append(definitions.profile(record.throughput_run.profile, source.agent_id))
    result.runs.append(runs.run_row(source, record.throughput_run))


def _mark(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.marks.append(marks.mark_row(source, record.trainer_mark))


def _self_check(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.self_checks.append(self_checks.self_check_row(source, record.self_check))


def _route_trace(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.route_traces.append(ways.route_trace_row(source, record.route_trace))


def _path_mtu(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.path_mtus.append(ways.path_mtu_row(source, record.path_mtu))


def _gap(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.gaps.append(runs.gap_row(source, record.gap))


def _status(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.statuses.append(runs.status_row(source, record.agent_status))


def _plan(result: Decoded, source: Source, record: Record, definitions: Definitions) -> None:
    plan, paths, profiles = control.plan_rows(source, record.plan_issued, definitions)
    result.paths += paths
    result.profiles += profiles
    result.plans.append(plan)


def _chain_opened(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.chains_opened.append(control.chain_opened_row(source, record.chain_opened))


def _windows(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.windows.append(control.windows_row(source, record.windows_fixed))


def _started(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.collectors_started.append(control.collector_started_row(source, record.collector_started))


def _tree_head(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    assert result.batch is not None
    result.tree_heads.append(control.tree_head_row(source, record.tree_head, result.batch.sealed_time_ns))


def _tests_paused(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    result.pauses.append(control.pause_row(source, record.tests_paused))


def _nothing(_: Decoded, __: Source, ___: Record, ____: Definitions) -> None:
    """Of no use to analysis: who is let in, `collector.enrol` reads for itself."""


def _shared_test(result: Decoded, source: Source, record: Record, _: Definitions) -> None:
    test = record.shared_test
    result.shared_tests.append(SharedTestRow(source, test.ordered_time_ns, test.SerializeToString(deterministic=True)))


_CONTROL_KINDS = frozenset(
    {
        "chain_opened",
        "plan_issued",
        "windows_fixed",
        "collector_started",
        "tree_head",
        "tests_paused",
        "shared_test",
        "node_identity",
    }
)
_BAD_RECORD = (
    columns.ColumnsError,
    runs.RunError,
    marks.MarkError,
    self_checks.SelfCheckError,
    ways.WayError,
)
_READERS: dict[str, Callable[[Decoded, Source, Record, Definitions], None]] = {
    "definition": _definition,
    "round_trip": _round_trip,
    "one_way": _one_way,
    "throughput_run": _run,
    "nic": _nic,
    "trainer_mark": _mark,
    "self_check": _self_check,
    "route_trace": _route_trace,
    "path_mtu": _path_mtu,
    "gap": _gap,
    "agent_status": _status,
    "chain_opened": _chain_opened,
    "plan_issued": _plan,
    "windows_fixed": _windows,
    "collector_started": _started,
    "tree_head": _tree_head,
    "tests_paused": _tests_paused,
    "node_identity": _nothing,
    "shared_test": _shared_test,
}


def _batch_row(entry: LogEntry, header: Header) -> BatchRow:
    clock = header.clock
    steps: Sequence[tuple[int, int]] = tuple((step.wall_time_ns, step.size_ns) for step in header.anchor.step)
    return BatchRow(
        agent_id=entry.agent_id,
        chain_id=entry.chain_id,
        batch_class=entry.batch_class,
        seq=entry.seq,
        position=entry.position,
        received_time_ns=entry.received_time_ns,
        first_event_time_ns=header.first_event_time_ns,
        last_event_time_ns=header.last_event_time_ns,
        sealed_time_ns=header.anchor.wall_time_ns,
        boot_id=header.boot_id,
        run_id=header.run_id,
        plan_hash=header.plan_hash,
        software_version=header.software_version,
        clock_synchronised=clock.synchronised,
        clock_offset_ns=clock.offset_ns if clock.HasField("offset_ns") else None,
        clock_error_bound_ns=min(clock.error_bound_ns, (1 << 63) - 1) if clock.HasField("error_bound_ns") else None,
        clock_steps=steps,
    )
