"""Between the fold and the store: what a step changed is written, and a new process takes up where it stands."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import func, select

from bandwitness.v1.record_pb2 import RUN_ROLE_CLIENT
from collector.analysis.accounting import speaks
from collector.analysis.agents import Agent, Agents
from collector.analysis.attempts import KEPT_NS, Attempts, Tracked
from collector.analysis.bursts import storing
from collector.analysis.counters import Nics
from collector.analysis.doubts import KEPT_NS as DOUBTS_KEPT_NS
from collector.analysis.doubts import Doubts
from collector.analysis.elements import Topology
from collector.analysis.fold import FAULT, THROUGHPUT, Parts, Position
from collector.analysis.incidents import Book
from collector.analysis.judge import RULES, Network
from collector.analysis.loading import Loading
from collector.analysis.occasions import OfCalendar
from collector.analysis.one_way import OneWays
from collector.analysis.paths import PathIndex
from collector.analysis.rounds import Rounds
from collector.analysis.swings import KEPT_NS as RESULTS_KEPT_NS
from collector.analysis.swings import Swings
from collector.analysis.totals import Totals
from collector.analysis.verdicts import KEPT_NS as CHECKPOINTS_KEPT_NS
from collector.analysis.verdicts import Late, Verdicts
from collector.analysis.ways import Ways
from collector.analysis.window import SECOND
from collector.config import Config
from collector.decode import Definitions
from collector.model import OneWayWindow, StoredWindow
from collector.store import tables
from collector.store.counting import attempt_counts
from collector.store.newest import newest_windows
from collector.store.outbox import Outbox
from collector.store.rows import (
    one_way_window_values,
    read_incident,
    read_one_way_window,
    read_path,
    read_run,
    read_slot,
    read_window,
    signed,
    slot_values,
    swing_values,
    window_values,
)
from collector.store.writer import Transaction

# Rises with every change that makes other rows or verdicts of the same log: the store is then made anew.
VERSION = 22
IN_MEMORY_NS = 150 * SECOND  # behind what was judged last


class StoredRounds:
    """Windows of the store, read inside the transaction of the step that runs."""

    def __init__(self) -> None:
        self.tx: Transaction | None = None

    def rows(self, start_ns: int) -> Sequence[StoredWindow]:
        table = tables.round_trip_windows
        return [read_window(row) for row in self._tx.all(table, table.c.start_time_ns == start_ns)]

    def next_start(self, from_ns: int) -> int | None:
        start = tables.round_trip_windows.c.start_time_ns
        found: int | None = self._tx.connection.execute(select(func.min(start)).where(start >= from_ns)).scalar()
        return found

    def newest_start(self) -> int | None:
        return self._tx.newest(tables.round_trip_windows, "start_time_ns")

    def one_way(self, start_ns: int, path_id: int) -> OneWayWindow | None:
        """One-way delays of a window as they are written."""
        table = tables.one_way_delays
        found = self._tx.all(table, table.c.start_time_ns == start_ns, table.c.path_id == signed(path_id))
        return read_one_way_window(found[0]) if found else None

    @property
    def _tx(self) -> Transaction:
        assert self.tx is not None, "no step is running"
        return self.tx


class _NicRows:
    """Rows of ``nic_windows`` as they are, written or not."""

    def __init__(self, stored: StoredRounds, nics: Nics) -> None:
        self._stored, self._nics = stored, nics

    def __call__(self, nodes: Sequence[str], starts: Sequence[int]) -> Iterable[Mapping[str, Any]]:
        assert self._stored.tx is not None, "no step is running"
        table = tables.nic_windows
        # The key is start, node, NIC: each pair of the first two is looked up, and no other row is read.
        rows = self._stored.tx.all(table, table.c.start_time_ns.in_(starts), table.c.node.in_(nodes))
        found = {(row["start_time_ns"], row["node"], row["nic"]): row for row in rows}
        wanted = set(starts)
        for row in self._nics.unsaved(set(nodes)):
            if row["start_time_ns"] in wanted:
                found[row["start_time_ns"], row["node"], row["nic"]] = row
        return [found[key] for key in sorted(found)]


def is_current(tx: Transaction) -> bool:
    """Whether the store was made by this version of analysis."""
    return tx.meta().get("analysis_version") == str(VERSION)


def load(tx: Transaction, config: Config, stored: StoredRounds) -> tuple[Parts, int]:
    """Everything as the last step left it, but for open windows and the judge (see ``take_up_judging``).

    Returns:
        The parts, and the position behind which the log must be read again to fill open windows.
    """
    stored.tx = tx
    meta = tx.meta()
    position = Position(int(meta.get("position", 0)), int(meta.get("received_ns", 0)), int(meta.get("started_ns", 0)))
    topology = Topology(config)
    index = PathIndex(topology)
    swings = Swings(config, topology)
    definitions = Definitions(row["definition"] for row in tx.all(tables.counter_sets))
    for row in tx.all(tables.paths, order_by=tables.paths.c.path_id):
        path = read_path(row)
        if path.protocol in THROUGHPUT:
            swings.define(path)
        else:
            index.define(path, row["position"])
        definitions.known(path.definition, path.source.node)
    rounds = Rounds(index, stored)
    loading = Loading(index)
    attempts = Attempts(config.measure.throughput.uplink_tokens, lambda slot_id: _find_slot(stored, slot_id))
    _load_attempts(tx, attempts, loading, topology, position.received_ns)
    attempts.counts, attempts.corrections = attempt_counts(tx.connection)
    _load_results(tx, swings, config, position.received_ns)
    doubts = Doubts(index)
    kept = tables.doubts.c.start_time_ns >= position.received_ns - DOUBTS_KEPT_NS
    doubts.restore((row["start_time_ns"], row["node"], row["reasons"].split()) for row in tx.all(tables.doubts, kept))
    bursts = storing.load(tx, config, loading, attempts, position.received_ns)
    nics = Nics(tx.all(tables.nics))
    network = Network(index, rounds, loading, doubts, OfCalendar(bursts.calendar), _NicRows(stored, nics))
    incidents = tables.incidents
    book = Book(
        read_incident(row)
        for row in tx.all(incidents, incidents.c.closed_time_ns.is_(None), incidents.c.rule.not_in(RULES))
    )
    totals = Totals(index)
    totals.newest(window.row for window in newest_windows(tx.connection))
    parts = Parts(
        config=config,
        position=position,
        definitions=definitions,
        network=network,
        agents=Agents(config, (Agent.restore(row) for row in tx.all(tables.agents))),
        attempts=attempts,
        swings=swings,
        nics=nics,
        bursts=bursts,
        verdicts=Verdicts(network, config.rules),
        book=book,
        totals=totals,
        ways=Ways(index, tx.all(tables.path_ways)),
        one_ways=OneWays(stored.one_way),
    )
    return parts, int(meta.get("safe_position", position.position))


def passed_over(tx: Transaction, from_position: int) -> frozenset[int]:
    """Entries behind a position that analysis has failed on, and that stay out when the log is read again."""
    table = tables.quarantine
    of_analysis = (table.c.position > from_position) & (table.c.reason == FAULT)
    return frozenset(row["position"] for row in tx.all(table, of_analysis))


def take_up_judging(tx: Transaction, parts: Parts) -> None:
    """Sets the judge where it stood; after open windows are filled again."""
    parts.bursts.taken_up()
    meta = tx.meta()
    if "judged_through_ns" in meta:
        parts.verdicts.take_up(tx, int(meta["judged_through_ns"]), meta["judge_state"])
    if meta.get("late"):
        first, last, first_received, last_received = (int(part) for part in meta["late"].split())
        parts.verdicts.late = Late((first, last), first_received, last_received)


def save(tx: Transaction, parts: Parts, outbox: Outbox) -> None:
    """Writes what the step changed, and the position it brings the store to."""
    windows, nic_windows = parts.network.rounds.take_changed(), parts.nics.take_windows()
    attempts, paths, agents = parts.attempts.take_changed(), parts.network.paths, parts.agents.take_changed()
    outbox.note(
        tx,
        parts.position.position,
        parts.position.received_ns,
        windows=windows,
        node_of=lambda path_id: None if (index := paths.find(path_id)) is None else paths.agents[index],
        agents=agents,
        nic_windows=nic_windows,
        results=[
            (one.slot.slot_id, one.result.time_ns, one.slot.client.node)
            for one in attempts
            if one.settled and one.result is not None
        ],
    )
    tx.put(tables.agents, agents)
    tx.put(tables.path_ways, parts.ways.take_changed())
    tx.put(tables.slots, [_tracked_values(tracked) for tracked in attempts])
    tx.put(
        tables.doubts,
        [
            {"start_time_ns": start, "node": node, "reasons": " ".join(reasons)}
            for start, node, reasons in parts.network.doubts.take_changed()
        ],
    )
    tx.put(tables.round_trip_windows, [window_values(stored) for stored in windows])
    tx.put(tables.one_way_delays, [one_way_window_values(row) for row in parts.one_ways.take_changed()])
    tx.put(tables.nics, parts.nics.take_states(parts.position.position, parts.position.received_ns))
    tx.put(tables.nic_windows, nic_windows)
    tx.put(
        tables.swings,
        [
            swing_values(swing)
            | {"last_bps": last.bps if last else None, "last_time_ns": last.time_ns if last else None}
            for swing, last in parts.swings.take_changed()
        ],
    )
    position, verdicts = parts.position, parts.verdicts
    of_bursts = storing.save(tx, parts.bursts, parts.nics, position.position, position.received_ns)
    meta = of_bursts | {
        "analysis_version": str(VERSION),
        "position": str(position.position),
        "safe_position": str(_safe_position(parts)),
        "received_ns": str(position.received_ns),
        "started_ns": str(position.started_ns),
        "late": "",
    }
    if verdicts.judge is not None:
        meta["judged_through_ns"] = str(verdicts.judge.through_ns)
        meta["judge_state"] = verdicts.judge.state().encode()
    # Without a judge nobody's clock is near enough to ours: windows are written and let go all the same.
    through_ns = verdicts.judge.through_ns if verdicts.judge is not None else position.received_ns
    parts.network.rounds.forget(through_ns - IN_MEMORY_NS)
    parts.one_ways.forget(through_ns - IN_MEMORY_NS)
    if verdicts.late is not None:
        late = verdicts.late
        meta["late"] = f"{late.span[0]} {late.span[1]} {late.first_received_ns} {late.last_received_ns}"
    tx.set_meta(meta)


def _safe_position(parts: Parts) -> int:
    """Behind which the log must be read again: for open windows, and for NICs whose state is not written yet."""
    position = parts.position.position
    return min(part.safe_position(position) for part in (parts.network.rounds, parts.nics, parts.bursts))


def tidy(tx: Transaction, parts: Parts) -> None:
    """Lets go of what is too old to matter; a few times an hour."""
    received_ns = parts.position.received_ns
    parts.attempts.forget(received_ns)
    parts.network.loading.forget(received_ns - KEPT_NS)
    parts.bursts.forget(received_ns)
    parts.network.doubts.forget(received_ns - DOUBTS_KEPT_NS)
    if parts.verdicts.through_ns is not None:
        old = tables.checkpoints.c.time_ns < parts.verdicts.through_ns - CHECKPOINTS_KEPT_NS
        tx.connection.execute(tables.checkpoints.delete().where(old))


def _tracked_values(tracked: Tracked) -> dict[str, Any]:
    return slot_values(tracked.slot) | {
        "withdrawn": tracked.withdrawn,
        "category": tracked.category,
        "outcome": tracked.outcome,
        "disagreement": tracked.disagreement,
        "contended": tracked.contended,
        "settled": tracked.settled,
        "valid": tracked.valid,
        "counted": " ".join(tracked.counted),
    }


def _read_tracked(tx: Transaction, row: Mapping[str, Any]) -> Tracked:
    slot = read_slot(row)
    recorded = map(read_run, tx.all(tables.runs, tables.runs.c.slot_id == row["slot_id"]))
    found = {run.role: run for run in recorded if speaks(run, slot)}
    client = found.pop(RUN_ROLE_CLIENT, None)
    return Tracked(
        slot=slot,
        client=client,
        server=next(iter(found.values()), None),
        withdrawn=row["withdrawn"],
        category=row["category"],
        outcome=row["outcome"],
        disagreement=row["disagreement"],
        contended=row["contended"],
        settled=row["settled"],
        valid=row["valid"],
        counted=tuple(row["counted"].split()),
    )


def _find_slot(stored: StoredRounds, slot_id: bytes) -> Tracked | None:
    assert stored.tx is not None
    rows = stored.tx.all(tables.slots, tables.slots.c.slot_id == slot_id)
    return _read_tracked(stored.tx, rows[0]) if rows else None


def _load_attempts(tx: Transaction, attempts: Attempts, loading: Loading, topology: Topology, received_ns: int) -> None:
    slots, runs = tables.slots, tables.runs
    for row in tx.all(slots, (slots.c.end_time_ns >= received_ns - KEPT_NS) | ~slots.c.settled):
        tracked = _read_tracked(tx, row)
        attempts.restore([tracked])
        loading.put(tracked.slot.slot_id, topology.slot_tokens(tracked.slot), tracked.loads)
    orphans = tx.all(runs, runs.c.end_time_ns >= received_ns - KEPT_NS, runs.c.slot_id.not_in(select(slots.c.slot_id)))
    attempts.restore_early(read_run(row) for row in orphans)


def _load_results(tx: Transaction, swings: Swings, config: Config, received_ns: int) -> None:
    oldest = received_ns - config.rules.oversubscription.trailing - RESULTS_KEPT_NS
    slots = tables.slots
    for row in tx.all(slots, slots.c.valid, slots.c.end_time_ns >= oldest):
        tracked = _read_tracked(tx, row)
        swings.put(tracked.slot.path_id, tracked.slot.slot_id, tracked.result)
