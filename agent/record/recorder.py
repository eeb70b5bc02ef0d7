"""What one run of the agent has recorded and not yet sealed, and the tips it seals behind. No I/O.

Results are turned into ``Record`` messages as they come. ``seal`` writes the definitions that they need and that this
run has not yet written, salts all with one call to the random source, and signs. Nothing here waits: the caller hands
the sealed batches to the spool.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from agent import result
from agent.clock import Anchor, ClockStep
from agent.record import columns, ways
from bandwitness import MAX_MESSAGE_BYTES, chain
from bandwitness.identity import canonical, short_id
from bandwitness.v1.record_pb2 import (
    BATCH_CLASS_EVIDENCE,
    BATCH_CLASS_TELEMETRY,
    GAP_REASON_DISK_FULL,
    GAP_REASON_SPOOL_FAULT,
    GAP_REASON_SPOOL_LIMIT,
    BatchClass,
    CounterSet,
    Definition,
    Header,
    Record,
)

SALT_BYTES = 16
HEADER_ROOM_BYTES = 64 * 1024  # of a message: header, signature and framing beside the payload
MAX_PENDING_RECORDS = 10_000  # between two seals; a flush holds tens
MAX_STEPS = 64  # clock steps listed in one header; older ones are added up
DEFINITION_INTERVAL_NS = 6 * 3600 * 1_000_000_000  # the contract asks for once a day
_RECORD_OVERHEAD_BYTES = 6  # tag and length of one record in the payload
_LOSSES = (GAP_REASON_SPOOL_LIMIT, GAP_REASON_DISK_FULL, GAP_REASON_SPOOL_FAULT)


@dataclass(frozen=True, slots=True)
class ChainState:
    """Where a chain stands: what the next batch links to, and the watermark reached."""

    chain_id: bytes
    tip: chain.Tip
    last_event_time_ns: int  # 0 before the first batch


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes: the same in every header of one run."""

    agent_id: str
    public_key: bytes
    sign: Callable[[bytes], bytes]
    boot_id: bytes
    run_id: bytes
    configuration_hash: bytes
    software_version: str


@dataclass(frozen=True, slots=True)
class HeaderContext:
    """What a header says of the moment of sealing."""

    anchor: Anchor
    clock: result.ClockReading
    plan_hash: bytes = b""
    witnessed_head: bytes = b""


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """One batch as it will be spooled, sent and logged, and what the spool needs to know of it."""

    batch_class: int
    chain_id: bytes
    seq: int
    header: bytes
    payload: bytes
    signature: bytes
    previous_header_hash: bytes
    first_event_time_ns: int
    last_event_time_ns: int  # the watermark
    newest_event_time_ns: int  # may lie beyond the watermark
    records: int

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.payload) + len(self.signature)


def watermark_ns(
    now_ns: int, *, oldest_unresolved_ns: int | None = None, earliest_running_ns: int | None = None
) -> int:
    """Up to when all is said. Take it before draining the probes: what ends in between is then said twice over.

    Args:
        now_ns: wall clock.
        oldest_unresolved_ns: send time of the oldest packet without an outcome.
        earliest_running_ns: start of the oldest throughput run whose record is not written yet.
    """
    bounds = (None if at is None else at - 1 for at in (oldest_unresolved_ns, earliest_running_ns))
    return min([now_ns, *(bound for bound in bounds if bound is not None)])


@dataclass(slots=True)
class _Pending:
    record: Record
    first_ns: int
    last_ns: int
    definitions: Sequence[tuple[str, int, bytes]] = ()


@dataclass(slots=True)
class _ChainWriter:
    state: ChainState
    pending: list[_Pending] = field(default_factory=list)
    steps: list[ClockStep] = field(default_factory=list)
    written: dict[int, int] = field(default_factory=dict)  # definition id -> monotonic time of writing


class Recorder:
    """Records of all classes. Times of records are event times, wall clock.

    Args:
        author: who signs.
        chains: where each chain stands, from the spool.
        random_bytes: source of the salts.
        max_payload_bytes: a batch above it is split, a single record above it set aside and counted.
    """

    def __init__(
        self,
        author: Author,
        chains: Mapping[int, ChainState],
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
        max_payload_bytes: int = MAX_MESSAGE_BYTES - HEADER_ROOM_BYTES,
        definition_interval_ns: int = DEFINITION_INTERVAL_NS,
    ) -> None:
        self._author = author
        self._writers = {batch_class: _ChainWriter(state) for batch_class, state in chains.items()}
        self._random_bytes = random_bytes
        self._max_payload_bytes = max_payload_bytes
        self._definition_interval_ns = definition_interval_ns
        self._counter_sets: dict[tuple[str, ...], tuple[int, bytes]] = {}
        self.set_aside = 0  # records over a limit, since the start

    # ------------------------------------------------------------ results in

    def add_round_trip(self, batch: result.RoundTripBatch, definitions: Mapping[int, bytes]) -> None:
        """Adds singletons; ``definitions`` holds the serialised Path of each path id in them."""
        if not batch.send_times_ns and not batch.marks:
            return
        ids = dict.fromkeys([*batch.path_ids, *(mark.path_id for mark in batch.marks)])
        record = Record()
        columns.fill_round_trip(record.round_trip, batch)
        times = batch.send_times_ns or (self.last_event_time_ns(BATCH_CLASS_EVIDENCE),)
        needed = [("path", path_id, definitions[path_id]) for path_id in ids]
        self._add(BATCH_CLASS_EVIDENCE, _Pending(record, min(times), max(times), needed))

    def add_one_way(self, batch: result.OneWayBatch, definitions: Mapping[int, bytes]) -> None:
        """Adds what STAMP says beyond round trips; ``definitions`` as of ``add_round_trip``."""
        ids = dict.fromkeys(found.path_id for part in (batch.losses, batch.delays) for found in part)
        if not ids:
            return
        record = Record()
        columns.fill_one_way(record.one_way, batch)
        needed = [("path", path_id, definitions[path_id]) for path_id in ids]
        at_ns = self.last_event_time_ns(BATCH_CLASS_EVIDENCE)  # it is about packets that may have been told of before
        self._add(BATCH_CLASS_EVIDENCE, _Pending(record, at_ns, at_ns, needed))

    def add_throughput_run(self, run: result.ThroughputRun) -> None:
        """Adds one end's view of one attempt."""
        record = Record()
        columns.fill_throughput_run(record.throughput_run, run)
        needed = [("path", short_id(run.path), run.path), ("profile", short_id(run.profile), run.profile)]
        last = max(run.start_time_ns, run.end_time_ns)
        self._add(BATCH_CLASS_EVIDENCE, _Pending(record, run.start_time_ns, last, needed))

    def add_route_trace(self, trace: result.RouteTrace) -> None:
        """Adds one sweep over hop limits."""
        record = Record()
        ways.fill_route_trace(record.route_trace, trace)
        needed = [("path", short_id(trace.path), trace.path)]
        self._add(BATCH_CLASS_EVIDENCE, _Pending(record, trace.time_ns, trace.time_ns, needed))

    def add_path_mtu(self, found: result.PathMtu) -> None:
        """Adds one check of a path's MTU."""
        record = Record()
        ways.fill_path_mtu(record.path_mtu, found)
        needed = [("path", short_id(found.path), found.path)]
        self._add(BATCH_CLASS_EVIDENCE, _Pending(record, found.time_ns, found.time_ns, needed))

    def add_nic(self, batch: result.NicBatch) -> None:
        """Adds the counters of one NIC."""
        names = tuple(batch.counters)
        if names not in self._counter_sets:
            definition = canonical(CounterSet(name=names))
            self._counter_sets[names] = (short_id(definition), definition)
        counter_set_id, definition = self._counter_sets[names]
        record = Record()
        columns.fill_nic(record.nic, batch, counter_set_id)
        ticks = batch.tick_times_ns
        last = batch.base_time_ns + (ticks[-1] - ticks[0] if ticks else 0)
        needed = [("counter_set", counter_set_id, definition)]
        self._add(BATCH_CLASS_TELEMETRY, _Pending(record, batch.base_time_ns, last, needed))

    def add_mark(self, mark: result.TrainerMark) -> None:
        """Adds what a trainer said."""
        record = Record()
        columns.fill_mark(record.trainer_mark, mark)
        self._add(BATCH_CLASS_EVIDENCE, _Pending(record, mark.time_ns, mark.time_ns))

    def add_status(self, status: result.Status) -> None:
        """Adds the agent's word on itself."""
        record = Record()
        columns.fill_status(record.agent_status, status)
        self._add(BATCH_CLASS_TELEMETRY, _Pending(record, status.time_ns, status.time_ns))

    def add_self_check(self, check: result.SelfCheck) -> None:
        """Adds whether the prober itself stood in the way."""
        record = Record()
        columns.fill_self_check(record.self_check, check)
        self._add(BATCH_CLASS_EVIDENCE, _Pending(record, check.from_time_ns, check.to_time_ns))

    def add_gap(self, gap: result.Gap) -> None:
        """Adds what is missing to the class it is missing from. Where batches were lost, definitions in them were
        too, so those of the class are written again."""
        record = Record()
        columns.fill_gap(record.gap, gap)
        if gap.reason in _LOSSES:
            self.repeat_definitions(gap.batch_class)
        self._add(gap.batch_class, _Pending(record, gap.to_time_ns, gap.to_time_ns))

    def repeat_definitions(self, batch_class: int) -> None:
        """Writes the definitions of a class again as they are next needed: those written may be lost."""
        self._writers[batch_class].written.clear()

    def note_step(self, step: ClockStep) -> None:
        """Puts a step of the wall clock into the next header of every class."""
        for writer in self._writers.values():
            writer.steps.append(step)
            if len(writer.steps) > MAX_STEPS:
                first, second = writer.steps[:2]
                writer.steps[:2] = [ClockStep(second.wall_time_ns, first.size_ns + second.size_ns)]

    def _add(self, batch_class: int, pending: _Pending) -> None:
        writer = self._writers[batch_class]
        if len(writer.pending) >= MAX_PENDING_RECORDS:
            self.set_aside += 1
            return
        writer.pending.append(pending)

    # ------------------------------------------------------------ batches out

    @property
    def batch_classes(self) -> Sequence[int]:
        """The classes this recorder has a chain for."""
        return tuple(self._writers)

    def chain_state(self, batch_class: int) -> ChainState:
        """Where the chain stands after the newest sealed batch."""
        return self._writers[batch_class].state

    def last_event_time_ns(self, batch_class: int) -> int:
        """The watermark reached; 0 before the first batch."""
        return self._writers[batch_class].state.last_event_time_ns

    def pending(self, batch_class: int) -> int:
        """How many records wait to be sealed."""
        return len(self._writers[batch_class].pending)

    def resume(self, batch_class: int, state: ChainState) -> None:
        """Goes on behind another tip (a new chain after a fault of the spool). Definitions are written anew."""
        self._writers[batch_class].state = state
        self.repeat_definitions(batch_class)

    def discard(self, batch_class: int) -> tuple[int, int, int]:
        """Throws away what waits, because there is no room to keep it. Records, oldest and newest event time."""
        writer = self._writers[batch_class]
        lost, writer.pending = writer.pending, []
        if not lost:
            return 0, writer.state.last_event_time_ns, writer.state.last_event_time_ns
        return len(lost), min(item.first_ns for item in lost), max(item.last_ns for item in lost)

    def seal(self, batch_class: int, context: HeaderContext, watermark_ns: int) -> list[SealedBatch]:
        """Seals what waits, also when that is nothing: the watermark alone is a statement. One batch, or several where
        one would be over the limit; all but the last of those repeat the watermark before.

        Args:
            batch_class: which chain.
            context: the moment of sealing.
            watermark_ns: see ``watermark_ns``. It never falls, unless the wall clock was set back behind it.
        """
        writer = self._writers[batch_class]
        before = writer.state.last_event_time_ns
        if context.anchor.wall_ns >= before:
            watermark_ns = max(watermark_ns, before)
        pending, writer.pending = writer.pending, []
        groups = self._group(self._serialised(batch_class, writer, pending, context.anchor.monotonic_ns))
        sealed = [self._seal_one(batch_class, writer, group, context, before) for group in groups[:-1]]
        sealed.append(self._seal_one(batch_class, writer, groups[-1], context, watermark_ns))
        return sealed

    def _serialised(
        self, batch_class: int, writer: _ChainWriter, pending: list[_Pending], now_ns: int
    ) -> list[tuple[bytes, int, int]]:
        """Salted records in order, definitions first, each with its oldest and newest event time."""
        due: dict[int, tuple[str, bytes]] = {}
        for item in pending:
            for kind, identity, definition in item.definitions:
                written_ns = writer.written.get(identity)
                if written_ns is None or now_ns - written_ns >= self._definition_interval_ns:
                    due[identity] = (kind, definition)
        writer.written.update(dict.fromkeys(due, now_ns))
        at_ns = min((item.first_ns for item in pending), default=0)
        definitions = [
            _Pending(Record(definition=Definition(**{kind: definition})), at_ns, at_ns)
            for kind, definition in due.values()
        ]
        items = definitions + pending
        salts = self._random_bytes(SALT_BYTES * len(items)) if items else b""
        records: list[tuple[bytes, int, int]] = []
        for index, item in enumerate(items):
            item.record.salt = salts[SALT_BYTES * index : SALT_BYTES * (index + 1)]
            data = item.record.SerializeToString()
            if len(data) + _RECORD_OVERHEAD_BYTES > self._max_payload_bytes:
                data = self._note_too_large(batch_class, item, len(data))
            records.append((data, item.first_ns, item.last_ns))
        return records

    def _note_too_large(self, batch_class: int, item: _Pending, size_bytes: int) -> bytes:
        self.set_aside += 1
        record = Record(salt=item.record.salt)
        kind = item.record.WhichOneof("kind")
        detail = (
            f"a {kind} record of {size_bytes} bytes is over the limit of {self._max_payload_bytes} and was left out"
        )
        columns.fill_gap(
            record.gap, result.Gap(GAP_REASON_SPOOL_LIMIT, batch_class, item.first_ns, item.last_ns, 1, detail)
        )
        return record.SerializeToString()

    def _group(self, records: list[tuple[bytes, int, int]]) -> list[list[tuple[bytes, int, int]]]:
        groups: list[list[tuple[bytes, int, int]]] = [[]]
        size = 0
        for record in records:
            cost = len(record[0]) + _RECORD_OVERHEAD_BYTES
            if size + cost > self._max_payload_bytes and groups[-1]:
                groups.append([])
                size = 0
            groups[-1].append(record)
            size += cost
        return groups

    def _seal_one(
        self,
        batch_class: int,
        writer: _ChainWriter,
        records: list[tuple[bytes, int, int]],
        context: HeaderContext,
        watermark_ns: int,
    ) -> SealedBatch:
        state = writer.state
        first_ns = min([watermark_ns, *(first for _, first, _ in records)])
        header = self._header(batch_class, state, context)
        for step in writer.steps:
            header.anchor.step.add(wall_time_ns=step.wall_time_ns, size_ns=step.size_ns)
        writer.steps.clear()
        header.first_event_time_ns = first_ns
        header.last_event_time_ns = watermark_ns
        signed = chain.seal(header, [data for data, _, _ in records], state.tip, self._author.sign)
        writer.state = ChainState(state.chain_id, chain.Tip(header.seq, chain.header_hash(signed.header)), watermark_ns)
        return SealedBatch(
            batch_class=batch_class,
            chain_id=state.chain_id,
            seq=header.seq,
            header=signed.header,
            payload=signed.payload,
            signature=signed.signature,
            previous_header_hash=state.tip.header_hash,
            first_event_time_ns=first_ns,
            last_event_time_ns=watermark_ns,
            newest_event_time_ns=max([watermark_ns, *(last for _, _, last in records)]),
            records=len(records),
        )

    def _header(self, batch_class: int, state: ChainState, context: HeaderContext) -> Header:
        author, anchor = self._author, context.anchor
        header = Header(
            agent_id=author.agent_id,
            chain_id=state.chain_id,
            batch_class=cast("BatchClass.ValueType", batch_class),
            public_key=author.public_key,
            boot_id=author.boot_id,
            run_id=author.run_id,
            plan_hash=context.plan_hash,
            configuration_hash=author.configuration_hash,
            software_version=author.software_version,
            witnessed_head=context.witnessed_head,
        )
        header.anchor.wall_time_ns = anchor.wall_ns
        header.anchor.monotonic_ns = anchor.monotonic_ns
        header.anchor.boottime_ns = anchor.boottime_ns
        columns.fill_clock(header.clock, context.clock)
        return header
