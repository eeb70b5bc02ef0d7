"""Contention tests as ordered: on record before any plan has them, through a restart, and called off."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bandwitness.chain import read_header, read_payload
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION, SLOT_PURPOSE_PAIR, Slot
from collector.app.planning import windows_fixed
from collector.app.shared_tests import LOOK_NS, SharedTests
from collector.config.load import read_config
from collector.export.contention_api import ContentionRefusedError
from collector.model import Element, Incident
from tests.fakes.clock import FakeClock
from tests.unit.collector.app.test_pausing import kinds, plan
from tests.unit.collector.app.test_planning import HOUR, Life, life

SECOND = 1_000_000_000
CONFIG = read_config(
    """
sites: [{name: a, time_zone: UTC}]
nodes:
  - {name: n1, site: a, rack: r1, endpoints: [{nic: e0, address: 10.0.0.1}]}
  - {name: n2, site: a, rack: r1, endpoints: [{nic: e0, address: 10.0.0.2}]}
  - {name: n3, site: a, rack: r2, endpoints: [{nic: e0, address: 10.0.0.3}]}
  - {name: n4, site: a, rack: r2, endpoints: [{nic: e0, address: 10.0.0.4}]}
permissions: [{kind: contention, site: a, rack: r1, notice: 1m, byte_cap: 10TiB, approver: V}]
""",
    "collector.yaml",
)


class World:
    def __init__(self, one: Life, clock: FakeClock) -> None:
        self.incidents: list[Incident] = []
        self.one, self.clock = one, clock
        self.tests = SharedTests(
            CONFIG, one.planning, one.control, clock, incidents=lambda: self.incidents, known=self.known
        )

    def known(self, from_ns: int, to_ns: int) -> Sequence[bytes]:
        return [record.shared_test.SerializeToString() for record in records(self.one)]


def records(one: Life) -> list[pb.Record]:
    found = []
    for entry in one.log.read(0, 1000):
        for encoded in read_payload(read_header(entry.header), entry.payload):
            record = pb.Record.FromString(encoded)
            if record.HasField("shared_test"):
                found.append(record)
    return found


def contention(one: Life, node: str = "n1") -> list[Slot]:
    return [slot for slot in plan(one, node).slot if slot.purpose == SLOT_PURPOSE_CONTENTION]


async def started(one: Life, clock: FakeClock) -> World:
    await one.control.start(windows_fixed(CONFIG), [node.name for node in CONFIG.nodes])
    await one.planning.start()
    return World(one, clock)


async def test_it_is_on_record_with_its_permission_before_any_plan_has_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=CONFIG) as one:
        world = await started(one, clock)
        seen = len(kinds(one))
        told = await world.tests.order("a", "r1", repeats=1, dry_run=True)
        assert (told["ordered"], len(kinds(one)), contention(one)) == (False, seen, [])
        told = await world.tests.order("a", "r1", repeats=1)
        assert kinds(one)[seen] == "shared_test"
        assert set(kinds(one)[seen + 1 :]) == {"plan_issued"}
        (record,) = records(one)
        test = record.shared_test
        assert (test.permission.approver, test.permission.notice_ns) == ("V", 60 * SECOND)
        assert test.predicted_bytes == told["bytes"] > 0
        assert len(test.group) == len(told["groups"]) == 5  # two alone, both, in the rack, one flow
        assert len(contention(one)) == 5  # of n1: alone, both, in the rack at both ends, one flow
        starts = [slot.start_time_ns for slot in plan(one).slot]
        assert starts == sorted(starts)
        with pytest.raises(ContentionRefusedError, match="one at a time"):
            await world.tests.order("a", "r1", repeats=1)
        with pytest.raises(ContentionRefusedError, match="no permission"):
            await world.tests.order("a", "r2", repeats=1)


async def test_planned_tests_that_it_meets_are_withdrawn_and_new_plans_keep_it_also_after_a_restart(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=CONFIG) as one:
        world = await started(one, clock)
        await world.tests.order("a", "r1", repeats=1)
        ordered = contention(one)
        first, last = ordered[0].start_time_ns, ordered[-1].start_time_ns
        await one.planning.plan()
        assert contention(one) == ordered
    async with life(tmp_path, clock, config=CONFIG, digest=b"2") as one:
        await started(one, clock)
        assert contention(one) == ordered
        tokens = {token for slot in ordered for token in slot.token}
        met = [
            slot
            for slot in plan(one, "n3").slot
            if slot.purpose == SLOT_PURPOSE_PAIR and first <= slot.start_time_ns <= last and tokens & set(slot.token)
        ]
        assert met == []
        clock.move(HOUR)
        await one.planning.plan()
        assert contention(one) == []  # over


async def test_it_is_called_off_when_a_neighbour_is_harmed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=CONFIG) as one:
        world = await started(one, clock)
        await world.tests.order("a", "r1", repeats=1)
        begin_ns = contention(one)[0].start_time_ns
        before = Incident("o" * 32, "loss", 1, Element("rack", "r3"), "critical", begin_ns - 1, None, 1, "old", {})
        world.incidents = [before]
        await world.tests.look(begin_ns)
        assert len(contention(one)) == 5
        clock.move(begin_ns + SECOND - clock.wall_ns())
        world.incidents = [
            Incident("n" * 32, "loss", 1, Element("rack", "r3"), "critical", begin_ns, None, 1, "lost", {})
        ]
        await world.tests.look(clock.wall_ns())
        assert [slot.start_time_ns for slot in contention(one)] == [begin_ns]  # it runs already
        ended = records(one)[-1].shared_test
        assert (len(ended.group), ended.ended_reason) == (0, f"incident {'n' * 12}: lost")
        fresh = World(one, clock)
        await fresh.tests.take_up()
        await fresh.tests.order("a", "r1", repeats=1)  # nothing is under way any more


async def test_a_test_under_way_is_known_after_a_restart_and_forgotten_when_over(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=CONFIG) as one:
        world = await started(one, clock)
        await world.tests.order("a", "r1", repeats=1)
        again = World(one, clock)
        await again.tests.take_up()
        with pytest.raises(ContentionRefusedError, match="one at a time"):
            await again.tests.order("a", "r1", repeats=1)
        clock.move(HOUR)
        await again.tests.look(clock.wall_ns())
        await again.tests.order("a", "r1", repeats=1)
        assert LOOK_NS == SECOND
