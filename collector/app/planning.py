"""When plans are made: at the start, unless those in force still hold, and every hour."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence

from bandwitness.chain import ChainError, read_header
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_PAIR, Plan, Slot, TraceRequest
from bandwitness.v1.record_pb2 import PlanIssued, Profile, TestsPaused, TimeOfDayRange, WindowsFixed
from collector.clock import Clock
from collector.config import Config
from collector.control import Control, IssuedPlan
from collector.decode.control import plan_rows
from collector.decode.definitions import DefinitionError, Definitions
from collector.decode.runs import RunError
from collector.log import LogError
from collector.model import SlotRow, Source
from collector.planner import PlanError
from collector.planner.plan import Plans, build_plans
from collector.windows import SiteWindows

EVERY_NS = 3600 * 1_000_000_000
MS = 1_000_000
MAX_TRACES = 32  # asked of one node at a time
AGAIN_NS = 30 * 1_000_000_000  # after a plan could not be written

logger = logging.getLogger(__name__)


def windows_fixed(config: Config) -> list[WindowsFixed]:
    """The windows of each site, as the control chain records them."""
    fixed = []
    for site in config.sites:
        windows = SiteWindows.from_config(site)
        peak, offpeak = (
            [TimeOfDayRange(start_s=start, end_s=end) for start, end in ranges]
            for ranges in (windows.peak, windows.offpeak)
        )
        fixed.append(WindowsFixed(site=site.name, time_zone=windows.time_zone, peak=peak, offpeak=offpeak))
    return fixed


class Planning:
    """Plans of a fleet over time. One event loop."""

    def __init__(self, config: Config, configuration_hash: bytes, control: Control, clock: Clock) -> None:
        self._config = config
        self._configuration_hash = configuration_hash
        self._control = control
        self._clock = clock
        self._slots: Sequence[SlotRow] = ()
        self._extra: list[tuple[SlotRow, Slot]] = []  # slots of tests that somebody ordered, not over yet
        self._next_ns = 0  # monotonic
        self._one = asyncio.Lock()

    async def start(self) -> None:
        """Takes up the plans in force, or makes new ones; the slots about to start stay as they were.

        Raises:
            PlanError: the fleet cannot be measured as configured.
            LogError: the plans could not be written.
        """
        slots = slots_of(self._control.plans().values())
        self._slots = [slot for slot in slots if slot.purpose == SLOT_PURPOSE_PAIR]
        self._extra = extra_of(slots, self._control.plans().values())
        now_ns, monotonic_ns = self._clock.wall_ns(), self._clock.monotonic_ns()
        if self._hold(now_ns):
            issued_ns = max(issued.plan.issued_time_ns for issued in self._control.plans().values())
            self._next_ns = monotonic_ns + max(0, issued_ns + EVERY_NS - now_ns)
            logger.info("planning: the plans in force hold")
            async with self._one:
                await self._say_pauses()  # the word may have been written and no plan after it
            return
        await self.plan()

    async def run(self) -> None:
        """Plans again every hour, for ever."""
        while True:
            await self._clock.sleep_until(self._next_ns)
            try:
                await self.plan()
            except (PlanError, LogError) as error:  # agents go on under the plan they have until it expires
                logger.error("planning: no new plans: %s", error)
                self._next_ns = self._clock.monotonic_ns() + AGAIN_NS

    async def plan(self) -> None:
        """Makes plans and writes them.

        Raises:
            PlanError: the fleet cannot be measured as configured.
            LogError: the plans could not be written; those in force stay.
        """
        async with self._one:
            plans = await self._plan()
        self._slots = plans.slots
        self._next_ns = self._clock.monotonic_ns() + EVERY_NS
        for note in plans.notes:
            logger.warning("planning: %s", note)
        logger.info("planning: version %d, %d slots", plans.version, len(plans.slots))

    async def _plan(self) -> Plans:
        self._extra = [(row, slot) for row, slot in self._extra if row.end_time_ns > self._clock.wall_ns()]
        version = max((issued.plan.version for issued in self._control.plans().values()), default=0)
        now_ns = self._clock.wall_ns()
        plans: Plans = await asyncio.to_thread(build_plans, self._config, now_ns, self._slots, previous_version=version)
        for node, plan in plans.plans.items():
            before = self._control.plan_for(node)
            if before is not None:
                plan.trace.extend(wanted for wanted in before.plan.trace if wanted.expiry_time_ns > now_ns)
            plan.pause.extend(self._control.pauses(plan.site, now_ns))
            insert(plan, self._extra)
        await self._control.issue(plans.plans)
        return plans

    async def ask_traces(self, node: str, requests: Sequence[TraceRequest]) -> bool:
        """Writes the node's plan anew, with these requests beside those that have not lapsed.

        False: the node has no plan, or as many requests as it may.

        Raises:
            LogError: the plan could not be written; the one in force stays.
        """
        async with self._one:
            issued, now_ns = self._control.plan_for(node), self._clock.wall_ns()
            if issued is None:
                return False
            plan = Plan()
            plan.CopyFrom(issued.plan)
            kept = [wanted for wanted in plan.trace if wanted.expiry_time_ns > now_ns]
            known = {wanted.request for wanted in kept}
            fresh = [wanted for wanted in requests if wanted.request not in known]
            if len(kept) + len(fresh) > MAX_TRACES:
                return False
            if not fresh:
                return True
            del plan.trace[:]
            plan.trace.extend([*kept, *fresh])
            plan.version = max(now_ns // MS, plan.version + 1)
            plan.issued_time_ns = now_ns
            await self._control.issue({node: plan})
            return True

    async def add(self, extra: Sequence[tuple[SlotRow, Slot]]) -> None:
        """Puts slots of an ordered test into the plans in force; planned tests that they collide with are withdrawn.

        Raises:
            LogError: the plans could not be written. Those written by then are in force; the next ones have them all.
        """
        async with self._one:
            self._extra += extra
            await self._issue_again()

    async def withdraw(self, group_ids: Iterable[bytes]) -> None:
        """Takes slots of these groups that are to come out of the plans in force.

        Raises:
            LogError: as ``add``.
        """
        async with self._one:
            gone, now_ns = set(group_ids), self._clock.wall_ns()
            ids = {row.slot_id for row, _ in self._extra if row.group_id in gone and row.start_time_ns > now_ns}
            self._extra = [(row, slot) for row, slot in self._extra if row.slot_id not in ids]
            await self._issue_again(ids)

    async def _issue_again(self, without: Collection[bytes] = ()) -> None:
        """All plans in force that are others with the ordered slots, and without those."""
        now_ns, changed = self._clock.wall_ns(), {}
        for node, issued in self._control.plans().items():
            plan = Plan()
            plan.CopyFrom(issued.plan)
            kept = [slot for slot in plan.slot if slot.slot_id not in without]
            del plan.slot[:]
            plan.slot.extend(kept)
            insert(plan, self._extra)
            if plan == issued.plan:
                continue
            plan.version = max(now_ns // MS, plan.version + 1)
            plan.issued_time_ns = now_ns
            changed[node] = plan
        await self._control.issue(changed)

    async def set_pauses(self, words: Sequence[TestsPaused]) -> int:
        """Writes that tests of sites (empty: everywhere) pause or go on, then plans that tell the agents; gives back
        how many plans changed.

        Raises:
            LogError: it could not be written. What was written by then stays in force, and is in the next plans.
        """
        async with self._one:
            await self._control.say_pauses(words)
            return await self._say_pauses()

    async def _say_pauses(self) -> int:
        """Plans in force, with the pauses in force."""
        now_ns, changed = self._clock.wall_ns(), {}
        for node, issued in self._control.plans().items():
            wanted = self._control.pauses(issued.plan.site, now_ns)
            if wanted == list(issued.plan.pause):
                continue
            plan = Plan()
            plan.CopyFrom(issued.plan)
            del plan.pause[:]
            plan.pause.extend(wanted)
            plan.version = max(now_ns // MS, plan.version + 1)
            plan.issued_time_ns = now_ns
            changed[node] = plan
        await self._control.issue(changed)
        return len(changed)

    def _hold(self, now_ns: int) -> bool:
        """Whether every node has a plan made from this very configuration that is good for half its time yet."""
        plans = self._control.plans()
        left_ns = self._config.measure.plan_expiry // 2
        return all(
            (issued := plans.get(node.name)) is not None
            and issued.plan.issued_time_ns <= now_ns
            and issued.plan.expiry_time_ns - now_ns >= left_ns
            and _configuration_of(issued) == self._configuration_hash
            for node in self._config.nodes
        )


def _configuration_of(issued: IssuedPlan) -> bytes:
    try:
        return read_header(issued.batch.header).configuration_hash
    except ChainError:
        return b""


def slots_of(plans: Iterable[IssuedPlan]) -> list[SlotRow]:
    """The slots of plans, each once: client and server both have it."""
    slots: dict[bytes, SlotRow] = {}
    nowhere = Source(agent_id="", chain_id=b"", batch_class=0, seq=0, record_index=0, position=0)
    for issued in plans:
        encoded = PlanIssued(node=issued.node, plan=issued.plan.SerializeToString())
        try:
            row, _, _ = plan_rows(nowhere, encoded, Definitions())
        except (DefinitionError, RunError) as error:
            logger.warning("planning: the plan of %s in the log cannot be read: %s", issued.node, error)
            continue
        slots.update({slot.slot_id: slot for slot in row.slots})
    return sorted(slots.values(), key=lambda slot: (slot.start_time_ns, slot.slot_id))


def extra_of(rows: Iterable[SlotRow], plans: Iterable[IssuedPlan]) -> list[tuple[SlotRow, Slot]]:
    """Slots of ordered tests in plans in force."""
    messages = {slot.slot_id: slot for issued in plans for slot in issued.plan.slot}
    return [(row, messages[row.slot_id]) for row in rows if row.purpose != SLOT_PURPOSE_PAIR]


def insert(plan: Plan, extra: Sequence[tuple[SlotRow, Slot]]) -> None:
    """Puts a node's slots of ordered tests into its plan, in order of start, in place of planned tests that would use
    the same NIC, uplink or site link at the time."""
    if not extra:
        return
    held: dict[str, tuple[int, int]] = {}  # by token, from the first to the last of the ordered tests
    for row, slot in extra:
        for token in slot.token:
            first, last = held.get(token, (row.start_time_ns, 0))
            held[token] = (min(first, row.start_time_ns - row.margin_ns), max(last, row.end_time_ns))
    mine = [slot for row, slot in extra if plan.node in (row.client.node, row.server.node)]
    ids = {slot.slot_id for slot in mine}
    kept = [
        slot
        for slot in plan.slot
        if slot.slot_id not in ids
        and (slot.purpose != SLOT_PURPOSE_PAIR or not any(_meets(slot, held.get(token)) for token in slot.token))
    ]
    del plan.slot[:]
    plan.slot.extend(sorted([*kept, *mine], key=lambda slot: (slot.start_time_ns, slot.slot_id)))


def _meets(slot: Slot, held: tuple[int, int] | None) -> bool:
    if held is None:
        return False
    profile = Profile.FromString(slot.profile)
    end_ns = slot.start_time_ns + profile.omit_ns + profile.duration_ns + slot.margin_ns
    return slot.start_time_ns - slot.margin_ns < held[1] and held[0] < end_ns
