"""The kill switch at the collector: on record first, in every plan of the site, through a restart, and resumed."""

from pathlib import Path

import pytest

from bandwitness.chain import read_header, read_payload
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Plan
from collector.app.pausing import MAX_NS, WORDS_PER_MINUTE, Pausing
from collector.config.load import read_config
from collector.export.pause_api import PauseRefusedError
from tests.fakes.clock import FakeClock
from tests.unit.collector.app.test_planning import CONFIG, HOUR, Life, life

MINUTE = 60 * 1_000_000_000
TWO_SITES = read_config(
    """
sites: [{name: a, time_zone: UTC}, {name: b, time_zone: UTC}]
nodes:
  - {name: n1, site: a, rack: r1, endpoints: [{nic: e0, address: 10.0.0.1}]}
  - {name: n2, site: b, rack: r2, endpoints: [{nic: e0, address: 10.0.0.2}]}
""",
    "collector.yaml",
)


def plan(one: Life, node: str = "n1") -> Plan:
    issued = one.control.plan_for(node)
    assert issued is not None
    return issued.plan


def pausing(one: Life, clock: FakeClock) -> Pausing:
    return Pausing(TWO_SITES, one.planning, one.control, clock)


def kinds(one: Life) -> list[str | None]:
    found: list[str | None] = []
    for entry in one.log.read(0, 1000):
        records = read_payload(read_header(entry.header), entry.payload)
        found += [pb.Record.FromString(record).WhichOneof("kind") for record in records]
    return found


async def test_words_beyond_a_rate_are_refused_but_never_the_one_that_stops_tests(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=TWO_SITES) as one:
        await one.start()
        switch = pausing(one, clock)
        for number in range(WORDS_PER_MINUTE):
            await switch.say("a", paused=True, reason=str(number))
        seen = len(kinds(one))
        for site, paused in (("a", True), ("a", False), (None, False)):
            with pytest.raises(PauseRefusedError, match="words within a minute"):
                await switch.say(site, paused=paused)
        assert len(kinds(one)) == seen
        await switch.say("b", paused=True)
        await switch.say(None, paused=True)
        clock.move(MINUTE)
        await switch.say(None, paused=False)
        assert not plan(one).pause


async def test_the_word_is_on_record_before_any_plan_says_it_and_changes_nothing_else(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=TWO_SITES) as one:
        await one.start()
        before, other = plan(one), plan(one, "n2")
        seen = len(kinds(one))
        (said,) = await pausing(one, clock).say("a", paused=True, reason="demo\n")
        assert (said["site"], said["until_time"], said["reason"], said["plans"]) == ("a", None, "demo", 1)
        assert kinds(one)[seen:] == ["tests_paused", "plan_issued"]
        after = plan(one)
        assert [(pause.site, pause.until_time_ns, pause.reason) for pause in after.pause] == [("a", 0, "demo")]
        assert after.version > before.version
        assert (after.slot, after.round_trip) == (before.slot, before.round_trip)  # not planned anew
        assert plan(one, "n2") == other


async def test_a_pause_stays_through_restarts_new_plans_and_another_configuration_until_it_is_lifted(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=TWO_SITES) as one:
        await one.start()
        await pausing(one, clock).say(None, paused=True)
        for _ in range(3):
            clock.move(HOUR)
            await one.planning.plan()
    clock.move(HOUR)
    async with life(tmp_path, clock, config=TWO_SITES, digest=b"2") as one:
        await one.start()
        assert [list(plan(one, node).pause) != [] for node in ("n1", "n2")] == [True, True]
        with pytest.raises(PauseRefusedError, match="resume --all"):
            await pausing(one, clock).say("a", paused=False)
        (said,) = await pausing(one, clock).say(None, paused=False)
        assert (said["paused"], said["plans"], said["still_paused"]) == (False, 2, "")
    async with life(tmp_path, clock, config=TWO_SITES, digest=b"2") as one:
        await one.start()
        assert not plan(one).pause
        with pytest.raises(PauseRefusedError, match="not paused"):
            await pausing(one, clock).say(None, paused=False)


@pytest.mark.parametrize("paused", [True, False])
async def test_a_crash_between_the_word_and_the_plans_is_made_good_at_the_next_start(
    tmp_path: Path, paused: bool
) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=TWO_SITES) as one:
        await one.start()
        if not paused:
            await pausing(one, clock).say("a", paused=True)
        await one.control.say_pauses([pb.TestsPaused(site="a", paused=paused, time_ns=clock.wall_ns())])
        assert bool(plan(one).pause) is not paused
    async with life(tmp_path, clock, config=TWO_SITES) as one:
        await one.start()
        assert bool(plan(one).pause) is paused


async def test_a_pause_for_a_time_lapses_by_itself(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=TWO_SITES) as one:
        await one.start()
        await pausing(one, clock).say("a", paused=True, for_ns=90 * MINUTE)
        assert plan(one).pause[0].until_time_ns == clock.wall_ns() + 90 * MINUTE
        clock.move(2 * HOUR)
        await one.planning.plan()
        assert not plan(one).pause
        with pytest.raises(PauseRefusedError, match="not paused"):
            await pausing(one, clock).say("a", paused=False)


async def test_resume_of_all_lifts_every_pause_and_that_of_a_site_says_what_still_holds(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock, config=TWO_SITES) as one:
        await one.start()
        switch = pausing(one, clock)
        await switch.say("a", paused=True)
        await switch.say(None, paused=True)
        (said,) = await switch.say("a", paused=False)
        assert said["still_paused"] == "everywhere"
        await switch.say("a", paused=True)
        said_all = await switch.say(None, paused=False)
        assert [said["site"] for said in said_all] == ["", "a"]
        assert not plan(one).pause


async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        await one.start()
        with pytest.raises(PauseRefusedError, match="no site x; the sites are a"):
            await Pausing(CONFIG, one.planning, one.control, clock).say("x", paused=True)
        with pytest.raises(PauseRefusedError, match="400 days"):
            await pausing(one, clock).say("a", paused=True, for_ns=MAX_NS + 1)


async def test_what_cannot_be_written_does_not_take_effect(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        await one.start()
        one.disk.room = 0
        with pytest.raises(PauseRefusedError, match="cannot be written"):
            await pausing(one, clock).say("a", paused=True)
        assert not plan(one).pause
        assert one.control.pauses("a", clock.wall_ns()) == []
        one.disk.room = None
