"""The outstanding table: what was sent and what came back, to one outcome per packet. Pure.

Each path owns a ring of entries in flat arrays (33 bytes an entry); its packet ``sequence`` lives at
``sequence modulo ring``. A packet is resolved by a reply, an ICMP error or its waiting time, and is handed out
(``drain``) in the order of its sequence; its entry then stays until the ring comes round, so that duplicates and late
replies are recognised. Nothing grows with what arrives: forged and duplicate replies cost counters, and marks have a
limit.

A reply counts when it came within the waiting time, by the kernel's stamps where both are there: how late we read the
socket does not decide it. The first word on a packet stands.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.result import Mark, RoundTripBatch
from bandwitness.v1.record_pb2 import (
    DELAY_FAULT_CLOCK_STEP,
    DELAY_FAULT_NO_STAMP,
    DELAY_FAULT_REFLECTOR,
    PACKET_MARK_DUPLICATE,
    PACKET_MARK_LATE,
    PACKET_OUTCOME_CORRUPT,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_UNREACHABLE,
)

MAX_MARKS = 4096  # between two drains
MAX_RING = 4096
MAX_ENTRIES = 1 << 18
HOLD_NS = 8_000_000_000  # this long nobody may drain before packets are no longer sent
EXPIRY_SLACK_NS = 20_000_000  # beyond the waiting time, before lost is said: the reply may wait in the socket
STEP_TOLERANCE_NS = 50_000  # slewing moves wall and monotonic clock alike, so only a step moves their difference

_REPLIED = int(PACKET_OUTCOME_REPLIED)
_LOST = int(PACKET_OUTCOME_LOST)
_OUTSTANDING = 0x08
_OUTCOME = 0x0F
_STEPPED = 0x10  # the clock stepped between sending and reading the reply
_ANSWERED = 0x20  # a (late) reply has been seen for a packet that stays lost
_NONSENSE = 0x40  # what the reflector said of its own time cannot be


@dataclass(slots=True)
class _Path:
    """One path's ring and numbers."""

    path_id: int
    group: tuple[int, int, int, int]  # method, stamp source, interval, waiting time
    base: int
    mask: int
    first: int  # sequence it began with
    head: int  # first not handed out
    next: int  # first not used
    waiting_ns: int
    hop_limit: int = 0  # with which the newest reply since the last drain came; 0: not known
    retired: bool = False
    done: bool = False  # retired, and all handed out
    follows: "_Path | None" = None  # the same path under other settings, whose packets come first


@dataclass(slots=True)
class _Columns:
    """A RoundTripBatch being filled."""

    path_ids: list[int] = field(default_factory=list)
    first_sequences: list[int] = field(default_factory=list)
    sample_counts: list[int] = field(default_factory=list)
    hop_limits: list[int] = field(default_factory=list)
    send_times: list[int] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    faults: list[tuple[int, int]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


class RoundTripTable:
    """All paths of one prober. ``user_stamps``: delays come from the monotonic clock (TCP), not from the kernel."""

    def __init__(self, *, user_stamps: bool = False) -> None:
        self._user_stamps = user_stamps
        self._paths: list[_Path | None] = []
        self._free_slots: list[int] = []
        self._free_rings: dict[int, list[int]] = {}
        self._sent_monotonic = array("q")
        self._sent_wall = array("q")
        self._tx = array("q")
        self._rx = array("q")
        self._state = bytearray()
        self._marks: list[tuple[tuple[int, int, int, int], Mark]] = []
        self.ended: set[int] = set()  # ids of paths whose slot was given up in the last drain
        self.marks_dropped = 0

    def open(
        self,
        path_id: int,
        *,
        method: int,
        stamp_source: int,
        interval_ns: int,
        waiting_ns: int,
        first_sequence: int = 0,
        follows: int | None = None,
    ) -> int | None:
        """A slot for one path; None when the table is full (MAX_ENTRIES)."""
        wanted = (waiting_ns + EXPIRY_SLACK_NS + HOLD_NS) // interval_ns + 4
        size = min(MAX_RING, 1 << (wanted - 1).bit_length())
        free = self._free_rings.get(size)
        if free:
            base = free.pop()
        elif len(self._state) + size > MAX_ENTRIES:
            return None
        else:
            base = len(self._state)
            zeros = bytes(8 * size)
            for column in (self._sent_monotonic, self._sent_wall, self._tx, self._rx):
                column.frombytes(zeros)
            self._state.extend(bytes(size))
        group = (method, stamp_source, interval_ns, waiting_ns)
        path = _Path(path_id, group, base, size - 1, first_sequence, first_sequence, first_sequence, waiting_ns)
        path.follows = None if follows is None else self._paths[follows]
        if self._free_slots:
            slot = self._free_slots.pop()
            self._paths[slot] = path
            return slot
        self._paths.append(path)
        return len(self._paths) - 1

    def retire(self, slot: int) -> int:
        """No more packets on this path; those outstanding are still resolved. Returns the next sequence number."""
        path = self._at(slot)
        path.retired = True
        return path.next

    def next_sequence(self, slot: int) -> int:
        """The number that ``add`` will give next."""
        return self._at(slot).next

    def room(self, slot: int) -> int:
        """How many packets can be added before somebody drains."""
        path = self._at(slot)
        return path.mask + 1 - (path.next - path.head)

    def active(self, slot: int) -> bool:
        """Whether the slot is a path's: one that goes on, or one that has packets to hand out."""
        return self._paths[slot] is not None

    def add(self, slot: int, monotonic_ns: int, wall_ns: int, outcome: int = _OUTSTANDING) -> int:
        """The next packet, outstanding or with the outcome it has from the start. Needs ``room``. Returns its entry."""
        path = self._at(slot)
        entry = path.base + (path.next & path.mask)
        path.next += 1
        self._sent_monotonic[entry] = monotonic_ns
        self._sent_wall[entry] = wall_ns
        self._tx[entry] = 0
        self._rx[entry] = 0
        self._state[entry] = outcome
        return entry

    def settle(self, entry: int, outcome: int) -> None:
        """The outcome of a packet just added: the kernel refused it."""
        self._state[entry] = outcome

    def stamp(self, entry: int, sent_monotonic_ns: int, stamp_ns: int, wall_ns: int) -> None:
        """The kernel's send stamp; dropped when the entry has moved on to another packet or the stamp cannot be."""
        if (
            self._sent_monotonic[entry] == sent_monotonic_ns
            and not self._tx[entry]
            and self._sent_wall[entry] <= stamp_ns <= wall_ns
        ):
            self._tx[entry] = stamp_ns

    def find(self, slot: int, wire_sequence: int, wire_offset: int) -> int | None:
        """The newest sequence on this path that went out under a 16-bit wire sequence; None when none is known."""
        path = self._paths[slot]
        if path is None:
            return None
        newest = path.next - 1
        sequence = newest - ((newest + wire_offset - wire_sequence) & 0xFFFF)
        return sequence if self._known(path, sequence) else None

    def reply(
        self,
        slot: int,
        sequence: int,
        stamp_ns: int | None,
        monotonic_ns: int,
        wall_ns: int,
        *,
        corrupt: bool = False,
        nonsense: bool = False,
        hop_limit: int = 0,
    ) -> bool:
        """A reply, checked for whose it is. The clocks are those read after it was taken from the socket.

        ``nonsense``: it came in time, but what the reflector said of its own time cannot be: it has no delay.
        ``hop_limit``: TTL or hop limit with which it came; 0: not known.

        False: no such packet is known (any more), nothing was done.
        """
        path = self._paths[slot] if slot < len(self._paths) else None
        if path is None or not self._known(path, sequence):
            return False
        path.hop_limit = hop_limit or path.hop_limit
        entry = path.base + (sequence & path.mask)
        state = self._state[entry]
        if state != _OUTSTANDING:
            self._answer_again(path, sequence, entry, stamp_ns, monotonic_ns)
            return True
        sent_monotonic, sent_wall = self._sent_monotonic[entry], self._sent_wall[entry]
        stepped = abs((wall_ns - monotonic_ns) - (sent_wall - sent_monotonic)) > STEP_TOLERANCE_NS
        if self._user_stamps:
            stepped = False
            self._tx[entry], self._rx[entry] = sent_monotonic, monotonic_ns
        elif stamp_ns is not None:
            # A step and back again between two readings leaves stamps outside of what was read around them.
            stepped = stepped or not sent_wall - STEP_TOLERANCE_NS <= stamp_ns <= wall_ns + STEP_TOLERANCE_NS
            self._rx[entry] = stamp_ns
        usable = self._tx[entry] and self._rx[entry] and not stepped
        if not usable and monotonic_ns - sent_monotonic > path.waiting_ns + EXPIRY_SLACK_NS:
            self._late(path, sequence, entry, None)
        elif corrupt:
            self._state[entry] = int(PACKET_OUTCOME_CORRUPT)
        else:
            self._state[entry] = _REPLIED | (_STEPPED if stepped else 0) | (_NONSENSE if nonsense else 0)
        return True

    def unreachable(self, slot: int, sequence: int, *, outcome: int = int(PACKET_OUTCOME_UNREACHABLE)) -> None:
        """An ICMP error quoted this packet. ``outcome``: what that means for it."""
        path = self._at(slot)
        if self._known(path, sequence):
            entry = path.base + (sequence & path.mask)
            if self._state[entry] == _OUTSTANDING:
                self._state[entry] = outcome

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """All packets resolved by now and not yet handed out. Retired paths with nothing left give up their slot."""
        groups: dict[tuple[int, int, int, int], _Columns] = {}
        self.ended.clear()
        for slot, path in enumerate(self._paths):
            if path is None:
                continue
            if path.follows is not None:
                if not path.follows.done:
                    continue  # its packets come first; the ring has room for the wait
                path.follows = None
            if path.head != path.next:
                columns = groups.get(path.group)
                if columns is None:
                    columns = groups[path.group] = _Columns()
                self._emit(path, monotonic_ns - EXPIRY_SLACK_NS, columns)
            if path.retired and path.head == path.next:
                path.done = True
                self.ended.add(path.path_id)
                self._paths[slot] = None
                self._free_slots.append(slot)
                self._free_rings.setdefault(path.mask + 1, []).append(path.base)
        for group, mark in self._marks:
            groups.setdefault(group, _Columns()).marks.append(mark)
        self._marks.clear()
        return list(_batches(groups.items()))

    def oldest_unresolved_wall_ns(self) -> int | None:
        """Smallest send time of the packets not handed out; None when there are none. Costs a look at each path."""
        sent = self._sent_wall
        waiting = (p for p in self._paths if p is not None and p.head != p.next)
        return min((sent[p.base + (p.head & p.mask)] for p in waiting), default=None)

    def _at(self, slot: int) -> _Path:
        path = self._paths[slot]
        assert path is not None
        return path

    @staticmethod
    def _known(path: _Path, sequence: int) -> bool:
        return max(path.first, path.next - path.mask - 1) <= sequence < path.next

    def _answer_again(self, path: _Path, sequence: int, entry: int, stamp_ns: int | None, monotonic_ns: int) -> None:
        """A reply to a packet that has its outcome: late if that is lost and nothing came yet, else a duplicate."""
        state = self._state[entry]
        delay: int | None = None
        if self._user_stamps:
            delay = monotonic_ns - self._sent_monotonic[entry]
        elif stamp_ns is not None and self._tx[entry] and stamp_ns >= self._tx[entry]:
            delay = stamp_ns - self._tx[entry]
        if state == _LOST:
            self._late(path, sequence, entry, delay)
        else:
            self._mark(path, sequence, int(PACKET_MARK_DUPLICATE), delay)

    def _late(self, path: _Path, sequence: int, entry: int, delay_ns: int | None) -> None:
        self._state[entry] = _LOST | _ANSWERED
        self._mark(path, sequence, int(PACKET_MARK_LATE), delay_ns)

    def _mark(self, path: _Path, sequence: int, kind: int, delay_ns: int | None) -> None:
        if len(self._marks) >= MAX_MARKS:
            self.marks_dropped += 1
            return
        self._marks.append((path.group, Mark(path.path_id, sequence, kind, delay_ns)))

    def _emit(self, path: _Path, now_ns: int, columns: _Columns) -> None:
        """Moves the resolved packets at the head of one path into the columns."""
        states, base, mask, head = self._state, path.base, path.mask, path.head
        sent_monotonic, sent_wall, tx_stamps = self._sent_monotonic, self._sent_wall, self._tx
        times, outcomes = columns.send_times, columns.outcomes
        deadline = now_ns - path.waiting_ns
        sequence = head
        while sequence < path.next:
            entry = base + (sequence & mask)
            state = states[entry]
            tx = 0 if self._user_stamps else tx_stamps[entry]
            if state == _OUTSTANDING:
                if sent_monotonic[entry] > deadline:
                    break
                states[entry] = state = _LOST
            elif state & _OUTCOME == _REPLIED:
                state = self._judge(path, sequence, entry, columns)
            times.append(tx or sent_wall[entry])
            outcomes.append(state & _OUTCOME)
            sequence += 1
        if sequence != head:
            path.head = sequence
            columns.path_ids.append(path.path_id)
            columns.first_sequences.append(head)
            columns.sample_counts.append(sequence - head)
            columns.hop_limits.append(path.hop_limit)
            path.hop_limit = 0

    def _judge(self, path: _Path, sequence: int, entry: int, columns: _Columns) -> int:
        """A reply's delay, or why it has none, or that it came too late. Returns the state."""
        state, tx, rx = self._state[entry], self._tx[entry], self._rx[entry]
        if state & _STEPPED or (tx and rx and rx < tx):
            columns.faults.append((len(columns.outcomes), int(DELAY_FAULT_CLOCK_STEP)))
        elif state & _NONSENSE:
            columns.faults.append((len(columns.outcomes), int(DELAY_FAULT_REFLECTOR)))
        elif not tx or not rx:
            columns.faults.append((len(columns.outcomes), int(DELAY_FAULT_NO_STAMP)))
        elif rx - tx > path.waiting_ns:
            self._late(path, sequence, entry, rx - tx)
            return self._state[entry]
        else:
            columns.delays.append(rx - tx)
        return state


def _batches(groups: Iterable[tuple[tuple[int, int, int, int], _Columns]]) -> Iterable[RoundTripBatch]:
    for (method, stamp_source, interval_ns, waiting_ns), columns in groups:
        if columns.path_ids or columns.marks:
            yield RoundTripBatch(
                method=method,
                stamp_source=stamp_source,
                interval_ns=interval_ns,
                waiting_time_ns=waiting_ns,
                path_ids=columns.path_ids,
                first_sequences=columns.first_sequences,
                sample_counts=columns.sample_counts,
                send_times_ns=columns.send_times,
                outcomes=columns.outcomes,
                round_trip_delays_ns=columns.delays,
                delay_faults=columns.faults,
                marks=columns.marks,
                hop_limits=columns.hop_limits,
            )
