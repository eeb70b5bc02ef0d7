"""Where everything in the log is: an SQLite file beside the day files, which can be rebuilt from them.

``synchronous=NORMAL``: a power cut may take the last transactions, never the frames, and the start reads frames that
the index does not know. A killed process takes nothing.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bandwitness.chain import Tip
from collector.log.entry import Arrival, ChainKey, ChainState, Kept, moves_tip

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
  file INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, indexed_end INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS chains (
  chain INTEGER PRIMARY KEY,
  agent_id TEXT NOT NULL, chain_id BLOB NOT NULL, class INTEGER NOT NULL,
  public_key BLOB NOT NULL, tip_seq INTEGER NOT NULL, tip_hash BLOB NOT NULL,
  UNIQUE (agent_id, chain_id, class));
CREATE TABLE IF NOT EXISTS headers (
  position INTEGER PRIMARY KEY,
  chain INTEGER NOT NULL, seq INTEGER NOT NULL, header_hash BLOB NOT NULL,
  file INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
  received_time_ns INTEGER NOT NULL,
  first_event_time_ns INTEGER NOT NULL, last_event_time_ns INTEGER NOT NULL,
  record_count INTEGER NOT NULL, quarantine TEXT NOT NULL,
  complete INTEGER NOT NULL DEFAULT 1);
CREATE INDEX IF NOT EXISTS headers_chain ON headers (chain, seq);
CREATE INDEX IF NOT EXISTS headers_events ON headers (chain, last_event_time_ns);
"""
_INSERT = """
INSERT INTO headers SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13 WHERE NOT EXISTS (
  SELECT 1 FROM headers
  WHERE chain = ?2 AND seq = ?3 AND header_hash = ?4 AND quarantine = ?12 AND complete = ?13)
"""
# Of an index made before this column: what was not complete then is not told any more.
_ADD_COMPLETE = "ALTER TABLE headers ADD COLUMN complete INTEGER NOT NULL DEFAULT 1"
_PLACE = """
SELECT position, received_time_ns, agent_id, chain_id, class, seq, quarantine, name, offset, length
FROM headers JOIN chains USING (chain) JOIN files USING (file)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of the log without its bytes, and where these are."""

    position: int
    received_time_ns: int
    agent_id: str
    chain_id: bytes
    batch_class: int
    seq: int
    quarantine: str
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Written:
    """An arrival and where its frame was written."""

    arrival: Arrival
    position: int
    file: str
    offset: int
    length: int


class Index:
    """One connection; not for two threads at once."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Opens or creates the index.

        Raises:
            sqlite3.Error: no right to, no room, or the file is damaged.
        """
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=30,
        )
        self._chains: dict[ChainKey, int] = {}
        self._tips: dict[int, tuple[int, bytes]] = {}  # chain -> tip seq, public key
        self._files: dict[str, int] = {}
        if read_only:
            return
        try:
            self._connection.executescript(
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=4000; {_SCHEMA}"
            )
            if "complete" not in {row[1] for row in self._connection.execute("PRAGMA table_info(headers)")}:
                self._connection.execute(_ADD_COMPLETE)
            self.reload()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def reload(self) -> None:
        """Forgets what a transaction that failed may have left in memory."""
        if self._connection.in_transaction:
            self._connection.rollback()
        self._files = {name: file for file, name in self._connection.execute("SELECT file, name FROM files")}
        self._chains.clear()
        self._tips.clear()
        for chain, *key, tip_seq, public_key in self._connection.execute(
            "SELECT chain, agent_id, chain_id, class, tip_seq, public_key FROM chains"
        ):
            self._chains[ChainKey(*key)] = chain
            self._tips[chain] = (tip_seq, public_key)

    def add(self, written: Sequence[Written]) -> None:
        """Indexes entries in one transaction; what it knows already is left alone.

        Raises:
            sqlite3.Error: nothing was indexed; ``reload`` before going on.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        moved: dict[int, tuple[int, bytes, bytes]] = {}
        ends: dict[int, int] = {}
        rows = []
        for entry in written:
            chain, file = self._chain(entry.arrival.key), self._file(entry.file)
            rows.append(_row(chain, file, entry))
            ends[file] = max(ends.get(file, 0), entry.offset + entry.length)
            arrival, (tip_seq, public_key) = entry.arrival, self._tips[chain]
            if arrival.header is not None and moves_tip(arrival.quarantine, arrival.seq, tip_seq):
                public_key = public_key or arrival.header.public_key
                moved[chain] = (arrival.seq, arrival.header_hash, public_key)
                self._tips[chain] = (arrival.seq, public_key)
        self._connection.executemany(_INSERT, rows)
        self._connection.executemany(
            "UPDATE chains SET tip_seq = ?, tip_hash = ?, public_key = ? WHERE chain = ?",
            [(*tip, chain) for chain, tip in moved.items()],
        )
        self._connection.executemany(
            "UPDATE files SET indexed_end = max(indexed_end, ?) WHERE file = ?",
            [(end, file) for file, end in ends.items()],
        )
        self._connection.commit()

    def last_position(self) -> int:
        """Of the newest entry; 0 in an empty log."""
        return int(self._connection.execute("SELECT coalesce(max(position), 0) FROM headers").fetchone()[0])

    def of_events(
        self, agent_id: str, batch_class: int, span: tuple[int, int], after: tuple[int, int], limit: int
    ) -> list[tuple[int, Place]]:
        """Entries of an agent that stand in their chains and whose newest event lies in ``[from, to)``: by that time,
        those behind ``after`` (time and position). Gives back the time with each."""
        query = (
            f"{_PLACE.replace('SELECT', 'SELECT last_event_time_ns,', 1)}"
            " WHERE agent_id = ? AND class = ? AND quarantine = ''"
            " AND last_event_time_ns >= ? AND last_event_time_ns < ? AND (last_event_time_ns, position) > (?, ?)"
            " ORDER BY last_event_time_ns, position LIMIT ?"
        )
        rows = self._connection.execute(query, (agent_id, batch_class, *span, *after, limit))
        return [(row[0], Place(*row[1:])) for row in rows]

    def ends(self) -> dict[str, int]:
        """Per file: where the last indexed frame ends."""
        return dict(self._connection.execute("SELECT name, indexed_end FROM files"))

    def tips(self) -> dict[ChainKey, ChainState]:
        """Where each chain ends."""
        query = "SELECT agent_id, chain_id, class, tip_seq, tip_hash, public_key FROM chains WHERE tip_seq > 0"
        return {
            ChainKey(agent_id, chain_id, batch_class): ChainState(Tip(seq, tip_hash), public_key)
            for agent_id, chain_id, batch_class, seq, tip_hash, public_key in self._connection.execute(query)
        }

    def kept(self, key: ChainKey, seq: int) -> list[Kept]:
        """Each entry with this number, in order."""
        query = """SELECT header_hash, quarantine, complete FROM headers JOIN chains USING (chain)
                   WHERE agent_id = ? AND chain_id = ? AND class = ? AND seq = ?
                   ORDER BY position"""
        return [
            Kept(digest, quarantine, bool(complete))
            for digest, quarantine, complete in self._connection.execute(query, (*key, seq))
        ]

    def after(self, position: int, limit: int) -> list[Place]:
        """Entries behind ``position`` in order."""
        query = f"{_PLACE} WHERE position > ? ORDER BY position LIMIT ?"
        return [Place(*row) for row in self._connection.execute(query, (position, limit))]

    def header_hashes(self, after_position: int, limit: int) -> list[tuple[int, bytes]]:
        """Position and header hash of entries behind ``after_position``, in order."""
        query = "SELECT position, header_hash FROM headers WHERE position > ? ORDER BY position LIMIT ?"
        return list(self._connection.execute(query, (after_position, limit)))

    def leaf_of(self, key: ChainKey, seq: int) -> tuple[int, bytes] | None:
        """Place among all entries (from 0) and hash of the first header with this number of a chain."""
        query = """SELECT position, header_hash FROM headers JOIN chains USING (chain)
                   WHERE agent_id = ? AND chain_id = ? AND class = ? AND seq = ? ORDER BY position LIMIT 1"""
        found = self._connection.execute(query, (*key, seq)).fetchone()
        if found is None:
            return None
        position, digest = found
        (before,) = self._connection.execute("SELECT count(*) FROM headers WHERE position < ?", (position,)).fetchone()
        return int(before), digest

    def newest_of(self, key: ChainKey, before_seq: int, limit: int) -> list[Place]:
        """Entries of one chain with numbers below ``before_seq``, newest first."""
        query = f"""{_PLACE} WHERE agent_id = ? AND chain_id = ? AND class = ? AND seq < ?
                    ORDER BY seq DESC LIMIT ?"""
        return [Place(*row) for row in self._connection.execute(query, (*key, before_seq, limit))]

    def _chain(self, key: ChainKey) -> int:
        if key not in self._chains:
            cursor = self._connection.execute(
                "INSERT INTO chains (agent_id, chain_id, class, public_key, tip_seq, tip_hash)"
                " VALUES (?, ?, ?, x'', 0, x'')",
                key,
            )
            assert cursor.lastrowid is not None
            self._chains[key] = cursor.lastrowid
            self._tips[cursor.lastrowid] = (0, b"")
        return self._chains[key]

    def _file(self, name: str) -> int:
        if name not in self._files:
            cursor = self._connection.execute("INSERT INTO files (name, indexed_end) VALUES (?, 0)", (name,))
            assert cursor.lastrowid is not None
            self._files[name] = cursor.lastrowid
        return self._files[name]


def _row(chain: int, file: int, entry: Written) -> tuple[object, ...]:
    arrival, header = entry.arrival, entry.arrival.header
    return (
        entry.position,
        chain,
        arrival.seq,
        arrival.header_hash,
        file,
        entry.offset,
        entry.length,
        arrival.received_time_ns,
        header.first_event_time_ns if header is not None else 0,
        header.last_event_time_ns if header is not None else 0,
        header.record_count if header is not None else 0,
        arrival.quarantine,
        arrival.kept.complete,
    )


def side_by_side(places: Iterable[Place]) -> list[list[Place]]:
    """Entries in runs whose frames follow each other in one file, so that each run is one read."""
    by_file: dict[str, list[Place]] = {}
    for place in places:
        by_file.setdefault(place.file, []).append(place)
    runs: list[list[Place]] = []
    for of_file in by_file.values():
        end = -1
        for place in sorted(of_file, key=lambda one: one.offset):
            if place.offset != end:
                runs.append([])
            runs[-1].append(place)
            end = place.offset + place.length
    return runs
