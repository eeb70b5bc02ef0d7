"""The log, entry by entry, into everything that is derived from it.

What a state and an entry make of each other depends on nothing else: no clock is read here, and "how long ago" is told
by the receipt times in the log. So the same log gives the same rows and verdicts, in whatever portions it is read and
however often reading was cut off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, PROTOCOL_TCP_THROUGHPUT, PROTOCOL_UDP_THROUGHPUT
from collector.analysis import admission
from collector.analysis.agents import Agent, Agents, class_name
from collector.analysis.attempts import Attempts, Tracked
from collector.analysis.bursts.bursts import Bursts
from collector.analysis.counters import Nics
from collector.analysis.incidents import Book, Change
from collector.analysis.judge import Network
from collector.analysis.one_way import OneWays
from collector.analysis.rounds import Span
from collector.analysis.rules import agent_silent, link_degraded, path_mtu
from collector.analysis.rules.agent_silent import Heard
from collector.analysis.swings import Swings
from collector.analysis.totals import Totals
from collector.analysis.verdicts import Verdicts, write_incidents
from collector.analysis.ways import Ways
from collector.analysis.window import SECOND, WINDOW_NS, Window
from collector.config import Config
from collector.decode import Decoded, Definitions, decode
from collector.model import Element, Flag, LogEntry, Quarantined, RoundTripSamples, Source
from collector.store.pauses import pause_values
from collector.store.rows import (
    Values,
    gap_values,
    mark_values,
    one_way_loss_values,
    path_values,
    quarantine_values,
    run_values,
    signed,
    tree_head_values,
)
from collector.store.tables import (  # fmt: skip
    counter_sets,
    gaps,
    marks,
    one_way_losses,
    path_mtus,
    paths,
    pauses,
    plans,
    profiles,
    quarantine,
    route_changes,
    route_traces,
    runs,
    shared_tests,
    tree_heads,
)
from collector.store.way_rows import path_mtu_values, route_change_values, route_trace_values
from collector.store.writer import Transaction

THROUGHPUT = frozenset({PROTOCOL_TCP_THROUGHPUT, PROTOCOL_UDP_THROUGHPUT})
FAULT = "analysis_fault"  # why an entry is quarantined that cannot be taken in
LABELLED_NS = 25 * 3600 * SECOND  # loads are known this far back


@dataclass(slots=True)
class Position:
    """How far the log was read."""

    position: int = 0
    received_ns: int = 0  # newest receipt time so far
    started_ns: int = 0  # when the collector last started, or went on after it had stood still


@dataclass(slots=True)
class Counts:
    """Since the process started."""

    batches: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # by rule


@dataclass(slots=True)
class Parts:
    """Everything that reading the log fills."""

    config: Config
    position: Position
    definitions: Definitions
    network: Network
    agents: Agents
    attempts: Attempts
    swings: Swings
    nics: Nics
    bursts: Bursts
    verdicts: Verdicts
    book: Book  # incidents of the rules that are not judged moment by moment
    totals: Totals
    ways: Ways
    one_ways: OneWays
    counts: Counts = field(default_factory=Counts)


class Fold:
    """Takes in entries within one transaction at a time."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.changes: list[Change] = []  # incidents that changed, until the caller takes them
        self._written: set[int] = set()  # ids of definitions

    # ------------------------------------------------------------ entries

    def apply(self, tx: Transaction, entry: LogEntry) -> None:
        """Takes in the next entry."""
        parts = self.parts
        assert entry.position > parts.position.position
        decoded = decode(entry, parts.definitions)
        second_before = parts.position.received_ns // SECOND
        if entry.batch_class == BATCH_CLASS_CONTROL:
            self._control(tx, entry, decoded)
        else:
            now_ns = max(parts.position.received_ns, entry.received_time_ns)
            known = parts.agents.get(entry.agent_id)
            gap_ns = entry.received_time_ns - known.last_received_time_ns if known else 0
            if now_ns // SECOND > second_before or gap_ns >= parts.config.rules.agent_silent.after:
                self._silence(tx, now_ns)
            self._agent(tx, entry, decoded)
            if parts.book.find(agent_silent.RULE, Element("agent", entry.agent_id)) is not None:
                self._silence(tx, now_ns)
        self._keep(tx, entry, decoded)
        parts.position.position = entry.position
        parts.position.received_ns = max(parts.position.received_ns, entry.received_time_ns)
        self._judge(tx, new_second=parts.position.received_ns // SECOND > second_before)

    def apply_again(self, entry: LogEntry) -> None:
        """Takes in again what an entry from before a restart did to states that were not written: windows that are
        open, NICs, bursts. Everything else is in the store."""
        parts = self.parts
        if entry.batch_class == BATCH_CLASS_CONTROL or entry.quarantine:
            return
        agent = parts.agents.get(entry.agent_id)
        if agent is None:
            return
        decoded = decode(entry, parts.definitions)
        counted = admission.counters(decoded.nics, entry.received_time_ns).nics
        if decoded.batch is not None and counted:
            parts.nics.add_again(counted, entry.received_time_ns)
            parts.bursts.add_again(counted, entry.received_time_ns, decoded.batch.clock_error_bound_ns)
        records = decoded.round_trips
        for samples in admission.round_trips(parts.network.paths, records, entry.received_time_ns).round_trips:
            parts.network.rounds.add(samples, agent.closed_through_ns, entry.received_time_ns, again=True)

    def refuse(self, tx: Transaction, entry: LogEntry, reason: str) -> None:
        """Passes over an entry that cannot be taken in, and keeps that in view."""
        source = Source(entry.agent_id, entry.chain_id, entry.batch_class, entry.seq, -1, entry.position)
        self._quarantine(tx, [Quarantined(source, FAULT, reason[:500])])
        self.parts.position.position = entry.position

    def resume(self, tx: Transaction, now_ns: int) -> None:
        """The collector stood still until ``now_ns`` and has heard nobody: as if it had started then."""
        self._silence(tx, self.parts.position.received_ns)
        self.parts.position.started_ns = max(self.parts.position.started_ns, now_ns)

    def idle(self, tx: Transaction, now_ns: int) -> None:
        """Nothing came, and that has been listened for until ``now_ns``: agents may have fallen silent."""
        self._silence(tx, now_ns)
        if now_ns // SECOND > self.parts.position.received_ns // SECOND:
            self._bursts(now_ns)

    # ------------------------------------------------------------ what is in them

    def _control(self, tx: Transaction, entry: LogEntry, decoded: Decoded) -> None:
        parts = self.parts
        for _ in decoded.collectors_started:
            self._silence(tx, parts.position.received_ns)  # up to here the collector before this one listened
            parts.position.started_ns = max(parts.position.started_ns, entry.received_time_ns)
        if decoded.tree_heads:
            tx.put(tree_heads, [tree_head_values(head) for head in decoded.tree_heads])
        tx.put(
            shared_tests,
            [
                {
                    "position": test.source.position,
                    "record_index": test.source.record_index,
                    "ordered_time_ns": test.ordered_time_ns,
                    "definition": test.definition,
                }
                for test in decoded.shared_tests
            ],
        )
        tx.put(pauses, [pause_values(pause) for pause in decoded.pauses])
        for plan in decoded.plans:
            touched = parts.attempts.plan(plan)
            for tracked in touched:
                self._load(tracked)
            values: Values = {
                "node": plan.node,
                "version": plan.version,
                "plan_hash": plan.plan_hash,
                "issued_time_ns": plan.issued_time_ns,
                "expiry_time_ns": plan.expiry_time_ns,
            }
            tx.put(plans, [values])

    def _agent(self, tx: Transaction, entry: LogEntry, decoded: Decoded) -> None:
        parts = self.parts
        agent = parts.agents.hear(entry)
        self._define(tx, decoded, entry.position)
        if decoded.batch is None or entry.quarantine:
            return
        admitted = admission.round_trips(parts.network.paths, decoded.round_trips, entry.received_time_ns)
        self._quarantine(tx, admitted.refused)
        for samples in admitted.round_trips:
            self._round_trips(samples, agent, entry)
        told = admission.one_way_losses(parts.network.paths, decoded.one_way_losses, entry.received_time_ns)
        self._quarantine(tx, told.refused)
        tx.add(one_way_losses, [one_way_loss_values(row) for row in told.one_way_losses])
        parts.totals.add_one_way(told.one_way_losses, entry.received_time_ns)
        timed = admission.one_way_delays(parts.network.paths, decoded.one_way_delays, entry.received_time_ns)
        self._quarantine(tx, timed.refused)
        parts.one_ways.add(timed.one_way_delays)
        self._runs(tx, decoded, entry)
        counted = admission.counters(decoded.nics, entry.received_time_ns)
        self._quarantine(tx, counted.refused)
        carried = parts.nics.add(counted.nics, entry.received_time_ns)
        parts.bursts.add(carried, counted.nics, entry.received_time_ns, decoded.batch.clock_error_bound_ns)
        links = parts.nics.take_links()
        if links:
            self._run(tx, link_degraded.RULE, lambda: link_degraded.judge(links, parts.book.find))
        self._marks(tx, decoded, entry)
        self._self_checks(tx, decoded, entry)
        self._ways(tx, decoded, entry)
        for status in decoded.statuses:
            parts.agents.status(status)
        parts.agents.batch(decoded.batch)
        if agent.round_trip_watermark_ns is not None:
            self._close(agent, agent.round_trip_watermark_ns // WINDOW_NS * WINDOW_NS)
        overfull = parts.network.rounds.overfull_through(agent.name)
        if overfull is not None:
            self._close(agent, overfull)

    def _ways(self, tx: Transaction, decoded: Decoded, entry: LogEntry) -> None:
        """What paths are made of."""
        parts = self.parts
        admitted, refused = admission.ways(parts.network.paths, decoded.route_traces, entry.received_time_ns)
        checks, refused_checks = admission.ways(parts.network.paths, decoded.path_mtus, entry.received_time_ns)
        self._quarantine(tx, [*refused, *refused_checks])
        tx.add(route_traces, [route_trace_values(row) for row in admitted])
        tx.add(path_mtus, [path_mtu_values(row) for row in checks])
        for trace in admitted:
            parts.ways.trace(trace)
        for check in checks:
            opened = parts.book.open(path_mtu.RULE)
            self._run(tx, path_mtu.RULE, lambda check=check, opened=opened: list(parts.ways.mtu(check, opened)))  # type: ignore[misc]
        tx.put(route_changes, [route_change_values(change) for change in parts.ways.take_changes()])

    def _marks(self, tx: Transaction, decoded: Decoded, entry: LogEntry) -> None:
        admitted = admission.marks(decoded.marks, entry.received_time_ns)
        self._quarantine(tx, admitted.refused)
        tx.add(marks, [mark_values(mark) for mark in admitted.marks])
        for mark in admitted.marks:
            self.parts.bursts.mark(mark)

    def _runs(self, tx: Transaction, decoded: Decoded, entry: LogEntry) -> None:
        parts = self.parts
        admitted = admission.runs(decoded.runs, entry.received_time_ns)
        refused = admitted.refused
        for run in admitted.runs:
            if not parts.attempts.may_say(run):
                refused.append(Quarantined(run.source, "foreign_slot", run.slot_id.hex()))
            elif not parts.attempts.is_inside(run):
                refused.append(Quarantined(run.source, "outside_slot", run.slot_id.hex()))
            elif not parts.attempts.has_room(run):
                refused.append(Quarantined(run.source, "unknown_slot", run.slot_id.hex()))
            else:
                tx.add(runs, [run_values(run)])
                run_of = parts.attempts.run(run)
                if run_of is not None:
                    self._load(run_of)
        self._quarantine(tx, refused)

    def _define(self, tx: Transaction, decoded: Decoded, position: int) -> None:
        parts = self.parts
        new = []
        for path in decoded.paths:
            if path.protocol in THROUGHPUT:
                parts.swings.define(path)
                if self._is_new(path.path_id):
                    new.append(path)
            elif parts.network.paths.define(path, position):
                new.append(path)
        tx.add(paths, [path_values(path) | {"position": position} for path in new])
        for row in decoded.profiles:
            if self._is_new(row.profile_id):
                tx.add(profiles, [{"profile_id": signed(row.profile_id), "definition": row.definition}])
        for counters in decoded.counter_sets:
            if self._is_new(counters.counter_set_id):
                values = {"counter_set_id": signed(counters.counter_set_id), "definition": counters.definition}
                tx.add(counter_sets, [values])

    def _is_new(self, definition_id: int) -> bool:
        """Whether this process writes a definition for the first time; agents repeat theirs."""
        if definition_id in self._written:
            return False
        self._written.add(definition_id)
        return True

    def _round_trips(self, samples: RoundTripSamples, agent: Agent, entry: LogEntry) -> None:
        parts = self.parts
        parts.totals.add(samples, entry.received_time_ns)
        parts.ways.round_trips(samples)
        late = parts.network.rounds.add(samples, agent.closed_through_ns, entry.received_time_ns)
        if late is not None:
            parts.verdicts.note_late(late, entry.received_time_ns)
            for start in range(late[0], late[1], WINDOW_NS):
                if start > entry.received_time_ns - LABELLED_NS:
                    window = parts.network.rounds.find(start)
                    if window is not None:
                        self._label(window)

    def _load(self, tracked: Tracked) -> None:
        """Our own test loads its tokens; what that changes for moments already judged is judged again."""
        parts = self.parts
        slot = tracked.slot
        tokens = parts.network.paths.topology.slot_tokens(slot)
        self._label_again(parts.network.loading.put(slot.slot_id, tokens, tracked.loads))

    def _self_checks(self, tx: Transaction, decoded: Decoded, entry: LogEntry) -> None:
        parts = self.parts
        admitted = admission.self_checks(decoded.self_checks, entry.received_time_ns)
        self._quarantine(tx, admitted.refused)
        for check in admitted.self_checks:
            parts.agents.self_check(check, entry.received_time_ns)
            self._label_again(parts.network.doubts.put(check))

    def _label(self, window: Window) -> None:
        self.parts.network.loading.label(window)
        self.parts.network.doubts.label(window)

    def _label_again(self, changed: Span | None) -> None:
        """Windows of this stretch are to be left out, or not any more; those judged already are judged again."""
        parts = self.parts
        received_ns = parts.position.received_ns
        if changed is None or changed[1] <= received_ns - LABELLED_NS:
            return
        parts.verdicts.note_late(changed, received_ns)
        start = parts.network.rounds.next_start(max(changed[0], received_ns - LABELLED_NS))
        while start is not None and start < changed[1]:
            window = parts.network.rounds.find(start)
            if window is not None:
                self._label(window)
            start = parts.network.rounds.next_start(start + WINDOW_NS)

    def _close(self, agent: Agent, through_ns: int) -> None:
        """Makes rows of an agent's windows up to a time."""
        if through_ns <= agent.closed_through_ns:
            return
        parts = self.parts
        agent.closed_through_ns = through_ns
        parts.agents.changed(agent)
        for window, indexes in parts.network.rounds.close(agent.name, through_ns):
            self._label(window)
            parts.totals.newest(window.rows(indexes, parts.network.paths.ids))

    def _keep(self, tx: Transaction, entry: LogEntry, decoded: Decoded) -> None:
        parts, counts = self.parts, self.parts.counts
        name = class_name(entry.batch_class)
        counts.batches[name] = counts.batches.get(name, 0) + 1
        if entry.batch_class == BATCH_CLASS_CONTROL:
            self._define(tx, decoded, entry.position)
        if decoded.gaps:
            parts.agents.gaps(decoded.gaps)
            tx.add(gaps, [gap_values(gap) for gap in decoded.gaps])
        self._quarantine(tx, decoded.quarantined)

    def _quarantine(self, tx: Transaction, rows: Sequence[Quarantined]) -> None:
        counts = self.parts.counts
        for row in rows:
            if row.source.record_index < 0:
                counts.quarantined[row.reason] = counts.quarantined.get(row.reason, 0) + 1
            else:
                counts.unreadable += 1
        if rows:
            tx.add(quarantine, [quarantine_values(row) for row in rows])

    # ------------------------------------------------------------ verdicts

    def _judge(self, tx: Transaction, *, new_second: bool) -> None:
        parts = self.parts
        received_ns = parts.position.received_ns
        if new_second:
            for agent in parts.agents.gone(received_ns):
                through = parts.network.rounds.open_through(agent.name)
                if through is not None:
                    self._close(agent, through)
            parts.attempts.settle(parts.agents.ends(), received_ns)
            self._bursts(received_ns)
        for tracked in parts.attempts.take_fresh():
            parts.swings.put(tracked.slot.path_id, tracked.slot.slot_id, tracked.result)
        if parts.swings.stale:
            self._run(tx, "oversubscription", lambda: parts.swings.judge(parts.book.open()))
        frontier = parts.agents.frontier(received_ns)
        if frontier is not None:
            self.changes += parts.verdicts.advance(tx, frontier, received_ns)

    def _bursts(self, now_ns: int) -> None:
        """Cluster bursts of what is known by now; moments already judged under others are judged again."""
        self.parts.bursts.advance(now_ns, self.parts.agents)
        for span in self.parts.bursts.calendar.take_changes():
            self.parts.verdicts.note_late(span, self.parts.position.received_ns)

    def _silence(self, tx: Transaction, now_ns: int) -> None:
        parts = self.parts
        if not parts.position.started_ns:  # a log without the collector's own records begins with its first entry
            parts.position.started_ns = now_ns
        heard = [
            Heard(node.name, agent.last_received_time_ns if (agent := parts.agents.get(node.name)) else None)
            for node in parts.config.nodes
        ]
        self._run(
            tx,
            agent_silent.RULE,
            lambda: agent_silent.judge(
                heard,
                parts.position.started_ns,
                now_ns,
                parts.book.open(agent_silent.RULE),
                parts.config.rules.agent_silent,
            ),
        )

    def _run(self, tx: Transaction, rule: str, judge: Callable[[], list[Flag]]) -> None:
        try:
            changes = self.parts.book.apply(judge())
        except Exception:  # noqa: BLE001 - a fault in one rule costs only itself, and is counted
            self.parts.counts.errors[rule] = self.parts.counts.errors.get(rule, 0) + 1
            return
        write_incidents(tx, changes)
        self.changes += changes
