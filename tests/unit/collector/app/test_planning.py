"""Plans outlive a restart, are made anew when the configuration changed, and every hour."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collector.app.planning import Planning, slots_of, windows_fixed
from collector.config import Config
from collector.config.load import read_config
from collector.control import Control
from collector.log import Log, LogError
from collector.planner import PlanError
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FailingDisk

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TEXT = """
sites: [{name: a, time_zone: UTC, windows: {peak: ["22:00-02:00"], offpeak: ["04:00-08:00"]}}]
nodes:
  - {name: n1, site: a, rack: r1, endpoints: [{nic: e0, address: 10.0.0.1}]}
  - {name: n2, site: a, rack: r2, endpoints: [{nic: e0, address: 10.0.0.2}]}
"""
CONFIG = read_config(TEXT, "collector.yaml")


class Life:
    """One run of the planning part of a collector."""

    def __init__(self, directory: Path, clock: FakeClock, *, config: Config = CONFIG, digest: bytes = b"1") -> None:
        self.disk = FailingDisk()
        self.log = Log.open(directory, disk=self.disk)
        self.control = Control(self.log, KEY, "collector", clock, configuration_hash=digest)
        self.planning = Planning(config, digest, self.control, clock)

    async def start(self) -> int:
        """The version of n1's plan once planning has started."""
        await self.control.start(windows_fixed(CONFIG), ["n1", "n2"])
        await self.planning.start()
        return self.version

    @property
    def version(self) -> int:
        issued = self.control.plan_for("n1")
        assert issued is not None
        return issued.plan.version


@asynccontextmanager
async def life(
    directory: Path, clock: FakeClock, *, config: Config = CONFIG, digest: bytes = b"1"
) -> AsyncIterator[Life]:
    one = Life(directory, clock, config=config, digest=digest)
    yield one
    one.log.close()


def test_windows_are_fixed_as_configured() -> None:
    (fixed,) = windows_fixed(CONFIG)
    assert (fixed.site, fixed.time_zone) == ("a", "UTC")
    assert [(part.start_s, part.end_s) for part in fixed.peak] == [(79_200, 7_200)]


async def test_plans_in_force_outlive_a_restart(tmp_path: Path) -> None:
    clock, versions = FakeClock(), set[int]()
    for _ in range(3):
        async with life(tmp_path, clock) as one:
            versions.add(await one.start())
        clock.move(HOUR)
    assert len(versions) == 1


@pytest.mark.parametrize(("passed", "digest"), [(HOUR, b"2"), (13 * HOUR, b"1")])
async def test_another_configuration_or_an_expiry_that_comes_near_makes_new_plans(
    tmp_path: Path, passed: int, digest: bytes
) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        before = await one.start()
    clock.move(passed)
    async with life(tmp_path, clock, digest=digest) as one:
        assert await one.start() > before


async def test_slots_about_to_start_stay_when_plans_are_made_anew(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        await one.start()
        before = slots_of(one.control.plans().values())
    assert len(before) == len({slot.slot_id for slot in before}) > 10
    soon = next(slot for slot in before if slot.start_time_ns > clock.wall_ns())
    clock.move(soon.start_time_ns - clock.wall_ns() - 300 * SECOND)
    other = read_config(TEXT + "measure: {seed: 7}\n", "collector.yaml")
    async with life(tmp_path, clock, config=other, digest=b"2") as one:
        await one.start()
        after = slots_of(one.control.plans().values())
    frozen = [slot for slot in before if clock.wall_ns() < slot.start_time_ns < clock.wall_ns() + 600 * SECOND]
    assert frozen
    assert [slot for slot in after if slot in frozen] == frozen
    assert {slot.start_time_ns for slot in after} != {slot.start_time_ns for slot in before}


async def test_every_hour_there_are_new_plans_and_a_full_disk_only_delays_them(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        first = await one.start()
        running = asyncio.ensure_future(one.planning.run())
        second = await _after(one, clock, HOUR, first)
        one.disk.room = 0
        failures = one.log.statistics.failures
        await clock.advance(HOUR)
        await until(lambda: one.log.statistics.failures > failures)
        assert one.version == second
        one.disk.room = None
        await _after(one, clock, 60 * SECOND, second)
        running.cancel()


async def _after(one: Life, clock: FakeClock, duration_ns: int, version: int) -> int:
    """The version once it is above ``version``; planning works in threads."""
    await until(lambda: clock.sleepers > 0)
    await clock.advance(duration_ns)
    await until(lambda: one.version > version)
    return one.version


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that work in threads brings about."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_a_fleet_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    huge = TEXT + "measure: {throughput: {slot: 1h}}\n"
    async with life(tmp_path, FakeClock(), config=read_config(huge, "collector.yaml")) as one:
        with pytest.raises(PlanError):
            await one.start()


async def test_a_start_whose_plans_cannot_be_written_says_so(tmp_path: Path) -> None:
    async with life(tmp_path, FakeClock()) as one:
        await one.control.start([], [])
        one.disk.room = 0
        with pytest.raises(LogError):
            await one.planning.start()
