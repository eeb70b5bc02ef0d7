"""All planned tests of a day back and a day ahead, joined with what both ends recorded."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION, SLOT_PURPOSE_PAIR
from bandwitness.v1.record_pb2 import RUN_OUTCOME_OK, RUN_OUTCOME_UNSPECIFIED, RUN_ROLE_CLIENT
from collector.analysis import accounting
from collector.analysis.accounting import End
from collector.analysis.loading import LONGER_BY_NS, stretch
from collector.analysis.rounds import Span
from collector.analysis.swing import Result, engine_class
from collector.model import PlanRow, RunRow, SlotRow
from collector.store.counting import outcome_name

SECOND = 1_000_000_000
MAX_EARLY_OF_AGENT = 2_000  # a control chain that was lost costs at most these
KEPT_NS = 26 * 3600 * SECOND
_CELL_NS = 600 * SECOND


@dataclass(slots=True)
class Tracked:
    """One slot and all that is known of it."""

    slot: SlotRow
    client: RunRow | None = None
    server: RunRow | None = None
    withdrawn: bool = False
    category: str = "pending"
    outcome: int = RUN_OUTCOME_UNSPECIFIED
    disagreement: str = ""
    contended: bool = False
    settled: bool = False  # no more records are waited for
    valid: bool = False
    counted: tuple[str, ...] = ()  # outcomes under which it stood when it was settled: the first is in the counts

    @property
    def ran(self) -> Span | None:
        """When the client's process ran, as far as its slot goes; None if it never did, or nothing is known."""
        if self.client is None or accounting.category(self.client.outcome) == "skipped":
            return None
        start_ns = self.client.start_time_ns
        end_ns = min(self.client.end_time_ns, self.slot.end_time_ns + LONGER_BY_NS)
        return (start_ns, max(end_ns, start_ns + 1)) if accounting.inside(self.client, self.slot) else None

    @property
    def loads(self) -> Span | None:
        """When it loads what it shares with others; None if it never ran."""
        if self.category == "skipped":
            return None
        actual_ns = None
        if self.client is not None:
            actual_ns = max(self.client.end_time_ns, self.server.end_time_ns if self.server is not None else 0)
        return stretch(self.slot.start_time_ns, self.slot.end_time_ns, actual_ns)

    @property
    def result(self) -> Result | None:
        """What may enter the path's swing."""
        if (
            self.slot.purpose != SLOT_PURPOSE_PAIR
            or not self.valid
            or self.client is None
            or self.client.throughput_bps is None
        ):
            return None
        runs = [run for run in (self.client, self.server) if run is not None]
        return Result(
            time_ns=self.client.end_time_ns,
            bps=self.client.throughput_bps,
            window=self.slot.window,
            engine_class=engine_class(self.client.engine_version, self.client.flags),
            slot_id=self.slot.slot_id,
            sources=tuple(run.source for run in runs),
        )


class Attempts:
    """Slots in memory. What changed is collected until ``take_changed``."""

    def __init__(self, uplink_tokens: int, find: Callable[[bytes], Tracked | None]) -> None:
        """``find`` gives a slot that is no longer in memory, for records that come days late."""
        self._uplink_tokens = uplink_tokens
        self._find = find
        self._tracked: dict[bytes, Tracked] = {}
        self._early: dict[bytes, list[RunRow]] = {}  # runs whose slot is not known (yet)
        self._early_of_agent: Counter[str] = Counter()
        self._cells: dict[int, set[bytes]] = {}
        self._by_node: dict[str, set[bytes]] = {}
        self._due: list[tuple[int, bytes]] = []  # heap: when to look at a slot first
        self._waiting: set[bytes] = set()  # due and not settled
        self._changed: set[bytes] = set()
        self._fresh: set[bytes] = set()
        # Source, destination, lane, outcome: of settled slots, each once, for ever. What a late record makes of one of
        # them counts beside that: what it stood as, what it is.
        self.counts: dict[tuple[str, str, str, str], int] = {}
        self.corrections: dict[tuple[str, str, str, str, str], int] = {}

    def restore(self, tracked: Iterable[Tracked]) -> None:
        """Puts back what the store kept."""
        for entry in tracked:
            self._track(entry)
            self._enter(entry)

    def restore_early(self, runs: Iterable[RunRow]) -> None:
        """Puts back runs whose slot is not known."""
        for run in runs:
            self._keep_early(run)

    def _track(self, entry: Tracked) -> None:
        slot = entry.slot
        self._tracked[slot.slot_id] = entry
        for end in (slot.client, slot.server):
            self._by_node.setdefault(end.node, set()).add(slot.slot_id)
        if not entry.settled:
            heapq.heappush(self._due, (slot.end_time_ns + accounting.GRACE_NS, slot.slot_id))

    def get(self, slot_id: bytes) -> Tracked | None:
        """A slot, from memory or the store."""
        known = self._tracked.get(slot_id)
        if known is None:
            known = self._find(slot_id)
            if known is not None:
                self.restore([known])
        return known

    def is_known(self, slot_id: bytes) -> bool:
        """Whether it is known if and how long a slot's test ran, or nobody will say."""
        entry = self.get(slot_id)
        return entry is None or entry.settled or entry.client is not None

    # ------------------------------------------------------------ what comes in

    def plan(self, plan: PlanRow) -> list[Tracked]:
        """Takes in a plan. Slots of this node that start after it was issued and are not in it were withdrawn."""
        touched = []
        planned = {slot.slot_id for slot in plan.slots}
        for slot_id in sorted(self._by_node.get(plan.node, set()) - planned):
            entry = self._tracked[slot_id]
            if entry.slot.start_time_ns > plan.issued_time_ns and not entry.withdrawn:
                entry.withdrawn = True
                touched.append(entry)
        for slot in plan.slots:
            known = self.get(slot.slot_id)
            if known is None:
                known = Tracked(slot)
            elif known.slot == slot and not known.withdrawn:
                continue
            known.slot = slot
            known.withdrawn = False
            known.settled = known.client is not None and known.server is not None  # it may have a new time
            self._track(known)
            touched.append(known)
            for run in self._early.pop(slot.slot_id, []):
                self._early_of_agent[run.source.agent_id] -= 1
                self.run(run)
        for entry in touched:
            self._resolve(entry)
        return touched

    def may_say(self, run: RunRow) -> bool:
        """Whether a record comes from the node whose end it speaks for; as long as its slot is not known, it may."""
        entry = self.get(run.slot_id)
        return entry is None or accounting.speaks(run, entry.slot)

    def has_room(self, run: RunRow) -> bool:
        """Whether a record can be kept until its slot is known."""
        return self.get(run.slot_id) is not None or self._early_of_agent[run.source.agent_id] < MAX_EARLY_OF_AGENT

    def _keep_early(self, run: RunRow) -> None:
        kept = self._early.setdefault(run.slot_id, [])
        if all((run.source.agent_id, run.role) != (other.source.agent_id, other.role) for other in kept):
            kept.append(run)
            self._early_of_agent[run.source.agent_id] += 1

    def is_inside(self, run: RunRow) -> bool:
        """Whether a test that ended well ran when it was planned; as long as its slot is not known, it may have."""
        entry = self.get(run.slot_id)
        return entry is None or run.outcome != RUN_OUTCOME_OK or accounting.inside(run, entry.slot)

    def run(self, run: RunRow) -> Tracked | None:
        """Takes in one end's record, from that end; the first of each counts. None if nothing came of it (yet)."""
        entry = self.get(run.slot_id)
        if entry is None:
            self._keep_early(run)
            return None
        role = "client" if run.role == RUN_ROLE_CLIENT else "server"
        if getattr(entry, role) is not None or not (self.may_say(run) and self.is_inside(run)):
            return None
        setattr(entry, role, run)
        self._enter(entry)
        entry.settled = entry.client is not None and entry.server is not None
        if not entry.settled:
            heapq.heappush(self._due, (entry.slot.end_time_ns + accounting.GRACE_NS, run.slot_id))
        self._resolve(entry)
        for other in self._contenders(entry) if role == "client" else ():
            self._resolve(other)
        return entry

    def settle(self, ends: Mapping[str, End], received_time_ns: int) -> None:
        """Looks at slots whose time has passed; ``received_time_ns`` is how far the log reaches."""
        nobody = End(None, None)
        while self._due and self._due[0][0] <= received_time_ns:
            self._waiting.add(heapq.heappop(self._due)[1])
        for slot_id in sorted(self._waiting):
            entry = self._tracked.get(slot_id)
            if entry is None or entry.settled:
                self._waiting.discard(slot_id)
                continue
            both = (ends.get(entry.slot.client.node, nobody), ends.get(entry.slot.server.node, nobody))
            if accounting.overdue(entry.slot, both, received_time_ns):
                entry.settled = True
                self._waiting.discard(slot_id)
                self._resolve(entry)

    # ------------------------------------------------------------ what follows

    def take_fresh(self) -> list[Tracked]:
        """Slots that changed since last asked here: for verdicts, entry by entry."""
        fresh = [self._tracked[slot_id] for slot_id in sorted(self._fresh)]
        self._fresh.clear()
        return fresh

    def take_changed(self) -> list[Tracked]:
        """Slots that changed since last asked here: for the store, step by step."""
        changed = [self._tracked[slot_id] for slot_id in sorted(self._changed)]
        self._changed.clear()
        return changed

    def forget(self, received_time_ns: int) -> None:
        """Lets slots go whose time has long passed and that are settled."""
        before = received_time_ns - KEPT_NS
        for slot_id, entry in list(self._tracked.items()):
            if entry.slot.end_time_ns < before and entry.settled and slot_id not in self._changed:
                del self._tracked[slot_id]
                for end in (entry.slot.client, entry.slot.server):
                    self._by_node[end.node].discard(slot_id)
        for cell in [cell for cell in self._cells if (cell + 1) * _CELL_NS < before]:
            del self._cells[cell]
        self._early = {
            slot_id: kept
            for slot_id, runs in self._early.items()
            if (kept := [run for run in runs if run.end_time_ns >= before])
        }
        self._early_of_agent = Counter(run.source.agent_id for runs in self._early.values() for run in runs)

    def _resolve(self, entry: Tracked) -> None:
        entry.category, entry.outcome = accounting.resolve(
            entry.client, entry.server, withdrawn=entry.withdrawn, overdue=entry.settled
        )
        entry.disagreement = accounting.disagreement(entry.client, entry.server)
        entry.contended = self._is_contended(entry)
        entry.valid = accounting.valid(entry.client, entry.server, settled=entry.settled, contended=entry.contended)
        self._changed.add(entry.slot.slot_id)
        self._fresh.add(entry.slot.slot_id)
        self._count(entry)

    def _count(self, entry: Tracked) -> None:
        """Nothing is ever taken off a count: a slot counts once no record is waited for."""
        if not entry.settled or entry.category == "pending":
            return
        outcome = outcome_name(entry.outcome)
        if entry.counted[-1:] == (outcome,):
            return
        ends = (entry.slot.client, entry.slot.server)
        source, destination = reversed(ends) if entry.slot.reverse else ends
        pair = (source.node, destination.node, source.lane)
        if entry.counted:
            change = (*pair, entry.counted[-1], outcome)
            self.corrections[change] = self.corrections.get(change, 0) + 1
        else:
            self.counts[*pair, outcome] = self.counts.get((*pair, outcome), 0) + 1
        entry.counted = (*entry.counted, outcome)

    def _is_contended(self, entry: Tracked) -> bool:
        """Whether, at the same time, more runs held one of its tokens than the planner ever allows."""
        others = self._contenders(entry)
        for token in entry.slot.tokens:
            held = 1 + sum(token in other.slot.tokens and not _together(entry.slot, other.slot) for other in others)
            if held > (self._uplink_tokens if token.startswith("uplink:") else 1):
                return True
        return False

    def _contenders(self, entry: Tracked) -> list[Tracked]:
        """Other slots whose runs overlapped this one's in time and share a token."""
        ran = entry.ran
        if ran is None:
            return []
        ids: set[bytes] = set()
        for cell in range(ran[0] // _CELL_NS, ran[1] // _CELL_NS + 1):
            ids |= self._cells.get(cell, set())
        found = []
        for slot_id in sorted(ids - {entry.slot.slot_id}):
            other = self._tracked.get(slot_id)
            if other is None or other.ran is None or not set(other.slot.tokens) & set(entry.slot.tokens):
                continue
            if other.ran[0] < ran[1] and ran[0] < other.ran[1]:
                found.append(other)
        return found

    def _enter(self, entry: Tracked) -> None:
        ran = entry.ran
        if ran is not None:
            for cell in range(ran[0] // _CELL_NS, min(ran[1] // _CELL_NS, ran[0] // _CELL_NS + 6) + 1):
                self._cells.setdefault(cell, set()).add(entry.slot.slot_id)


def _together(one: SlotRow, other: SlotRow) -> bool:
    """Whether two slots run at once on purpose."""
    return one.purpose == SLOT_PURPOSE_CONTENTION and one.group_id == other.group_id
