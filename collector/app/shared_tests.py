"""Contention tests: ordered by an operator, on record with their permission before any plan has their slots, and
called off when probes of others degrade.

Whoever shares nothing with the test (no NIC, uplink or site link) has windows that are not loaded, so an incident of
loss or delay that opens while it runs is of a neighbour: then what is left of the test is withdrawn.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bandwitness.v1.record_pb2 import (
    SHARED_TEST_KIND_CONTENTION,
    GroupPart,
    Record,
    SharedTest,
    TestPermission,
    TimeOfDayRange,
)
from collector.app.planning import Planning
from collector.clock import Clock
from collector.config import Config, Permission
from collector.control import Control
from collector.export.contention_api import ContentionRefusedError
from collector.export.views import rfc3339
from collector.log import LogError
from collector.model import Incident
from collector.planner import PlanError
from collector.planner.contention import ContentionPlan, permission_for, plan_contention

SECOND = 1_000_000_000
LOOK_NS = SECOND
RULES = frozenset({"loss", "delay"})

logger = logging.getLogger(__name__)


class SharedTests:
    """Orders tests and watches them. One event loop."""

    def __init__(
        self,
        config: Config,
        planning: Planning,
        control: Control,
        clock: Clock,
        *,
        incidents: Callable[[], Sequence[Incident]],
        known: Callable[[int, int], Sequence[bytes]],
    ) -> None:
        """``incidents``: the open ones. ``known``: serialised SharedTests ordered between two times; blocks."""
        self._config, self._planning, self._control, self._clock = config, planning, control, clock
        self._incidents, self._known = incidents, known
        self._active: dict[bytes, SharedTest] = {}

    async def order(
        self, site: str, rack: str, *, repeats: int, lane: str | None = None, dry_run: bool = False
    ) -> Mapping[str, Any]:
        """Plans a contention test and, unless it is only asked what it would be, has it run; what it is.

        Raises:
            ContentionRefusedError: no permission, no room, another one is under way, or it could not be written.
        """
        now_ns = self._clock.wall_ns()
        try:
            plan = await asyncio.to_thread(
                plan_contention, self._config, site, rack, now_ns, lane=lane, repeats=repeats
            )
            permission = permission_for(self._config, "contention", site, rack)
        except PlanError as error:
            raise ContentionRefusedError(str(error)) from None
        if not dry_run:
            if self._active:
                raise ContentionRefusedError("another test is under way or ordered: one at a time")
            await self._order(plan, permission, site, rack, now_ns)
        return _told(plan, permission, site, rack, ordered=not dry_run)

    async def _order(self, plan: ContentionPlan, permission: Permission, site: str, rack: str, now_ns: int) -> None:
        busiest = max(plan.cost.links, key=lambda link: link.added_bps)
        test = SharedTest(
            test_id=plan.test_id,
            kind=SHARED_TEST_KIND_CONTENTION,
            site=site,
            rack=rack,
            permission=permission_message(self._config, permission),
            ordered_time_ns=now_ns,
            predicted_bytes=plan.cost.bytes,
            predicted_bill_windows=max(link.bill_windows for link in plan.cost.links),
            predicted_added_bps=busiest.added_bps,
            group=plan.groups,
        )
        self._active[test.test_id] = test
        try:
            await self._control.write([Record(shared_test=test)])
            await self._planning.add(plan.slots)
        except LogError as error:
            self._active.pop(test.test_id)
            raise ContentionRefusedError(f"it cannot be written: {error}") from None
        logger.info("contention test of %s/%s ordered, first packet at %s", site, rack, rfc3339(plan.start_ns))

    async def run(self) -> None:
        """Watches the tests under way, for ever."""
        await self.take_up()
        while True:
            await self._clock.sleep_until(self._clock.monotonic_ns() + LOOK_NS)
            await self.look(self._clock.wall_ns())

    async def look(self, now_ns: int) -> None:
        """Calls off what harms others, and lets go of what is over."""
        for test_id, test in list(self._active.items()):
            begin_ns = min(group.start_time_ns for group in test.group)
            end_ns = max(group.start_time_ns for group in test.group) + self._config.measure.throughput.hold_ns
            harmed = [
                incident
                for incident in self._incidents()
                if incident.rule in RULES and incident.opened_time_ns >= begin_ns
            ]
            if now_ns > end_ns:
                del self._active[test_id]
            elif harmed:
                await self._call_off(test, f"incident {harmed[0].incident_id[:12]}: {harmed[0].summary}")

    async def _call_off(self, test: SharedTest, why: str) -> None:
        logger.warning("the contention test of %s/%s is called off: %s", test.site, test.rack, why)
        word = SharedTest(
            test_id=test.test_id,
            kind=test.kind,
            site=test.site,
            rack=test.rack,
            ordered_time_ns=self._clock.wall_ns(),
            ended_reason=why[:300],
        )
        try:
            await self._control.write([Record(shared_test=word)])
            await self._planning.withdraw(group.group_id for group in test.group)
        except LogError as error:
            logger.error("it cannot be written, and is tried again: %s", error)
            return
        del self._active[test.test_id]

    async def take_up(self) -> None:
        """Tests that were ordered before a restart and are not over."""
        now_ns = self._clock.wall_ns()
        found = await asyncio.to_thread(self._known, now_ns - 9 * 86_400 * SECOND, now_ns + SECOND)
        for definition in found:
            test = SharedTest.FromString(definition)
            if test.ended_reason:
                self._active.pop(test.test_id, None)
            elif test.group:
                self._active.setdefault(test.test_id, test)


def permission_message(config: Config, permission: Permission) -> TestPermission:
    """A permission as the control chain records it."""
    zone = next(site.time_zone for site in config.sites if site.name == permission.site)
    return TestPermission(
        kind=SHARED_TEST_KIND_CONTENTION,
        site=permission.site,
        rack=permission.rack or "",
        notice_ns=permission.notice,
        hours=[TimeOfDayRange(start_s=start, end_s=end) for start, end in permission.ranges],
        time_zone=zone,
        byte_cap=permission.byte_cap,
        approver=permission.approver,
    )


def _told(plan: ContentionPlan, permission: Permission, site: str, rack: str, *, ordered: bool) -> Mapping[str, Any]:
    """What the test is, as the API says it."""
    return {
        "test_id": plan.test_id.hex(),
        "ordered": ordered,
        "site": site,
        "rack": rack,
        "approver": permission.approver,
        "byte_cap": permission.byte_cap,
        "start_time": rfc3339(plan.start_ns),
        "end_time": rfc3339(plan.end_ns),
        "runs": len(plan.slots),
        "groups": [
            {
                "part": GroupPart.Name(group.part).removeprefix("GROUP_PART_").lower(),
                "senders": group.senders,
                "repeat": group.repeat,
                "start_time": rfc3339(group.start_time_ns),
            }
            for group in plan.groups
        ],
        "bytes": plan.cost.bytes,
        "assumed_rate": plan.cost.assumed,
        "links": [
            {
                "token": link.token,
                "bytes": link.bytes,
                "bill_windows": link.bill_windows,
                "added_bps": link.added_bps,
            }
            for link in plan.cost.links
        ],
        "notes": list(plan.notes),
    }
