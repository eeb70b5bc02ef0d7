"""What remote write is to send, noted in the very transaction that writes the rows: nothing is missed by a crash, and
nothing that a later step revises is noted again.

A row is noted once it is whole: a round-trip window when its agent says that all before its end is out (one that was
closed because the agent had fallen silent waits for the agent), a NIC's window when its next one begins, a test when no
more records of it are waited for.

Only names of rows are kept; their figures are read when they are sent. The analysis thread is the only writer, so
senders say in memory how far they are, and the next step writes that down. Rows made anew from the log (a new version
of analysis) are not noted again: up to where the log had been read, they were before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, func, select, tuple_

from collector.model import StoredWindow
from collector.store import tables
from collector.store.rows import dump, signed, unsigned
from collector.store.writer import Transaction

ROUND_TRIPS, NICS, THROUGHPUT = "round_trips", "nics", "throughput"
_AT_ONCE = 500  # keys of one query
_SENT, REBUILT = "sent:", "rebuilt_through"
_BACK_NS = 3_600_000_000_000
WINDOW_NS = 10_000_000_000
_T = TypeVar("_T")
_Found = tuple[str, int, str, list[Any]]  # kind, time, node, keys


class Outbox:
    """The queue of all senders. ``sent`` may be written by their threads; everything else is the analysis thread's."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        """``limits``: entries that may wait for each sender, by its name; without any nothing is noted."""
        self.limits = dict(limits)
        self.sent = dict.fromkeys(limits, 0)  # id through which each has dealt with everything
        self.overflowed = dict.fromkeys(limits, 0)  # entries that were dropped unsent, since the start
        self.newest = 0
        self.taken_up = False  # before that nobody knows what was sent
        self._written: dict[str, int] = {}
        self._rebuilt_through = 0

    def waiting(self, name: str) -> int:
        """Entries that a sender has not dealt with."""
        return max(self.newest - self.sent[name], 0)

    def take_up(self, tx: Transaction) -> None:
        """Goes on where the store stands; before the first step. One who is no longer configured is forgotten."""
        state = {row["key"]: row["value"] for row in tx.all(tables.remote_state)}
        self._rebuilt_through = state.get(REBUILT, 0)
        oldest, self.newest = _ends(tx.connection)
        if not self.taken_up:  # not after a step that failed: what was sent meanwhile stays sent
            for name in self.limits:
                self.sent[name] = max(state.get(_SENT + name, oldest - 1), self.sent[name])
        gone = [key for key in state if key.startswith(_SENT) and key.removeprefix(_SENT) not in self.limits]
        tx.remove(tables.remote_state, "key", gone)
        if not self.limits:
            tx.connection.execute(delete(tables.remote_outbox))
        self._written = {}
        self.taken_up = True

    def rebuild(self, tx: Transaction) -> None:
        """All else is about to be made anew; what waits is sent once the rows are there again."""
        read = max(int(tx.meta().get("position", 0)), self._rebuilt_through)
        tx.put(tables.remote_state, [{"key": REBUILT, "value": read}])

    def note(
        self,
        tx: Transaction,
        position: int,
        received_ns: int,
        *,
        windows: Sequence[StoredWindow],
        node_of: Callable[[int], str | None],
        agents: Sequence[Mapping[str, Any]],
        nic_windows: Sequence[Mapping[str, Any]],
        results: Sequence[tuple[bytes, int, str]],
    ) -> None:
        """Notes what a step is about to write and the store does not have yet.

        Args:
            tx: of the step, before the rows are written.
            position: in the log, that the step brings the store to.
            received_ns: newest receipt time.
            windows: rows of ``round_trip_windows``.
            node_of: which node sends over a path.
            agents: rows of ``agents``.
            nic_windows: rows of ``nic_windows``.
            results: slot, time and client's node of valid results of tests of which no more records are waited for.
        """
        if not self.limits or position <= self._rebuilt_through:
            return
        found = [*_new_windows(tx, windows, node_of, agents), *_new_nics(tx, nic_windows), *_new_tests(tx, results)]
        rows = [
            {"kind": kind, "time_ns": time_ns, "node": node, "keys": dump(keys), "noted_time_ns": received_ns}
            for kind, time_ns, node, keys in sorted(found)
        ]
        if rows:
            tx.connection.execute(tables.remote_outbox.insert(), rows)

    def settle(self, tx: Transaction) -> None:
        """Writes down how far senders are, and lets go of what all have, or what is too much."""
        if not self.limits:
            return
        oldest, newest = _ends(tx.connection)
        self.newest = newest
        for name, limit in self.limits.items():
            beyond = newest - limit
            if beyond > self.sent[name]:
                self.overflowed[name] += beyond - self.sent[name]
                self.sent[name] = beyond
        sent = dict(self.sent)
        if sent == self._written:
            return
        tx.put(tables.remote_state, [{"key": _SENT + name, "value": through} for name, through in sent.items()])
        through = min(sent.values())
        if through >= oldest:
            tx.connection.execute(delete(tables.remote_outbox).where(tables.remote_outbox.c.id <= through))
        self._written = sent


def _ends(connection: Connection) -> tuple[int, int]:
    """First and last id; of an empty queue the id to come and the last one there was."""
    identity = tables.remote_outbox.c.id
    first, last = connection.execute(select(func.min(identity), func.max(identity))).one()
    if last is None:
        words = "SELECT seq FROM sqlite_sequence WHERE name = 'remote_outbox'"
        last = connection.exec_driver_sql(words).scalar() or 0
        first = last + 1
    return int(first), int(last)


@dataclass(frozen=True, slots=True)
class _Whole:
    """Up to which event time an agent's windows are whole, before and after the step, and were rows before it."""

    before_ns: int
    after_ns: int
    closed_ns: int

    @property
    def early(self) -> tuple[int, int]:
        """Ends ``(from, to]`` of windows that were closed before they were whole, and are now."""
        return self.before_ns, min(self.after_ns, self.closed_ns)


def _whole(tx: Transaction, agents: Sequence[Mapping[str, Any]]) -> dict[str, _Whole]:
    table = tables.agents
    columns = (table.c.name, table.c.round_trip_watermark_ns, table.c.closed_through_ns)
    before = {}
    for part in _parts([row["name"] for row in agents]):
        for name, watermark, closed in tx.connection.execute(select(*columns).where(table.c.name.in_(part))):
            before[name] = (watermark or 0, closed or 0)
    return {
        row["name"]: _Whole(before.get(row["name"], (0, 0))[0], row["round_trip_watermark_ns"] or 0, closed)
        for row in agents
        for closed in (before.get(row["name"], (0, 0))[1],)
    }


def _new_windows(
    tx: Transaction,
    windows: Sequence[StoredWindow],
    node_of: Callable[[int], str | None],
    agents: Sequence[Mapping[str, Any]],
) -> Iterable[_Found]:
    table = tables.round_trip_windows
    whole = _whole(tx, agents)
    keys = [(window.row.start_time_ns, signed(window.row.path_id)) for window in windows]
    known = _known(tx, (table.c.start_time_ns, table.c.path_id), keys)
    groups: dict[tuple[int, str], set[int]] = {}
    for start, path_id in keys:
        node = node_of(unsigned(path_id))
        if node is None or node not in whole or (start, path_id) in known:
            continue
        if start + WINDOW_NS <= whole[node].after_ns:
            groups.setdefault((start, node), set()).add(path_id)
    for node, of_agent in whole.items():
        first, last = of_agent.early
        first = max(first, last - _BACK_NS)  # no agent has that much open
        starts = range((first // WINDOW_NS) * WINDOW_NS, last - WINDOW_NS + 1, WINDOW_NS)
        for part in _parts(starts):
            statement = select(table.c.start_time_ns, table.c.path_id).where(table.c.start_time_ns.in_(part))
            for start, path_id in tx.connection.execute(statement):
                if node_of(unsigned(path_id)) == node:
                    groups.setdefault((start, node), set()).add(path_id)
    return [(ROUND_TRIPS, start, node, sorted(ids)) for (start, node), ids in groups.items()]


def _new_nics(tx: Transaction, rows: Iterable[Mapping[str, Any]]) -> Iterable[_Found]:
    """The windows before those that are new."""
    table = tables.nic_windows
    columns = (table.c.start_time_ns, table.c.node, table.c.nic)
    keys = sorted((row["start_time_ns"], row["node"], row["nic"]) for row in rows if row["nic"])
    known = _known(tx, columns, keys)
    just_before = _known(tx, columns, [(start - WINDOW_NS, node, nic) for start, node, nic in keys])
    newest: dict[tuple[str, str], int] = {}
    groups: dict[tuple[int, str], list[Any]] = {}
    for start, node, nic in keys:
        if (start, node, nic) not in known:
            before = newest.get((node, nic))
            if before is None and (start - WINDOW_NS, node, nic) in just_before:
                before = start - WINDOW_NS
            if before is None:
                before = _newest_nic(tx, node, nic, start)
            if before is not None:
                groups.setdefault((before, node), []).append(nic)
        newest[node, nic] = start
    return [(NICS, start, node, sorted(nics)) for (start, node), nics in groups.items()]


def _newest_nic(tx: Transaction, node: str, nic: str, before_ns: int) -> int | None:
    """Start of a NIC's window before a time, at most an hour back. The key begins with the start, so starts are named
    one by one: no other node's rows are read."""
    table = tables.nic_windows
    starts = range(before_ns - _BACK_NS, before_ns, WINDOW_NS)
    where = (table.c.start_time_ns.in_(starts), table.c.node == node, table.c.nic == nic)
    found: int | None = tx.connection.execute(select(func.max(table.c.start_time_ns)).where(*where)).scalar()
    return found


def _new_tests(tx: Transaction, results: Iterable[tuple[bytes, int, str]]) -> Iterable[_Found]:
    table = tables.slots
    for slot_id, time_ns, node in results:
        where = (table.c.slot_id == slot_id, table.c.settled, table.c.valid)
        if tx.connection.execute(select(table.c.slot_id).where(*where)).first() is None:
            yield THROUGHPUT, time_ns, node, [slot_id.hex()]


def _known(tx: Transaction, columns: Sequence[Any], keys: Sequence[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """Those of ``keys`` that the store has."""
    found: set[tuple[Any, ...]] = set()
    for part in _parts(keys):
        found.update(tuple(row) for row in tx.connection.execute(select(*columns).where(tuple_(*columns).in_(part))))
    return found


def _parts(keys: Sequence[_T]) -> Iterable[Sequence[_T]]:
    """As many as one query takes."""
    return (keys[first : first + _AT_ONCE] for first in range(0, len(keys), _AT_ONCE))
