"""Supervision: a failing part comes back later and later, is visible, and stops nobody."""

import asyncio
import logging

import pytest

from agent.app.parts import FIRST_BACKOFF_NS, GOOD_RUN_NS, LAST_BACKOFF_NS, Part, StateLog
from agent.result import PartState
from tests.fakes.clock import FakeClock


class Failing:
    """Fails at once, each time it is started, unless told to stay."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.starts: list[int] = []
        self.stay_ns = 0

    async def run(self) -> None:
        self.starts.append(self.clock.monotonic_ns())
        if self.stay_ns:
            await self.clock.sleep_until(self.clock.monotonic_ns() + self.stay_ns)
        raise OSError(1, "not permitted")

    def gaps(self) -> list[int]:
        return [later - earlier for earlier, later in zip(self.starts, self.starts[1:], strict=False)]


async def test_restarts_come_later_and_later_up_to_a_limit() -> None:
    clock = FakeClock()
    failing = Failing(clock)
    part = Part("echo", clock, failing.run)
    task = asyncio.create_task(part.keep())
    await clock.advance(400 * 10**9)
    assert failing.gaps()[:8] == [FIRST_BACKOFF_NS * 2**power for power in range(7)] + [LAST_BACKOFF_NS]
    assert set(failing.gaps()[7:]) == {LAST_BACKOFF_NS}
    assert part.failures == len(failing.starts)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_long_good_run_makes_the_next_restart_quick_again() -> None:
    clock = FakeClock()
    failing = Failing(clock)
    task = asyncio.create_task(Part("echo", clock, failing.run).keep())
    await clock.advance(20 * 10**9)
    failing.stay_ns = GOOD_RUN_NS
    await clock.advance(300 * 10**9)
    assert failing.gaps()[-1] == GOOD_RUN_NS + FIRST_BACKOFF_NS
    task.cancel()


async def test_a_part_that_returns_is_started_again() -> None:
    clock = FakeClock()
    starts: list[int] = []

    async def run() -> None:
        starts.append(1)

    part = Part("nic", clock, run)
    task = asyncio.create_task(part.keep())
    await clock.advance(FIRST_BACKOFF_NS)
    assert len(starts) == 2
    assert part.state() == PartState("nic", False, "restarting", "it ended by itself")
    task.cancel()


async def test_a_group_of_faults_inside_a_part_is_one_fault_of_it() -> None:
    clock = FakeClock()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(Failing(clock).run())

    part = Part("uplink", clock, run)
    task = asyncio.create_task(part.keep())
    await clock.advance(0)
    assert part.state().state == "restarting"
    assert "ExceptionGroup" in part.state().detail
    task.cancel()


async def test_the_state_is_the_parts_own_and_remembers_failures() -> None:
    clock = FakeClock()
    failing = Failing(clock)
    part = Part("echo", clock, failing.run, lambda: PartState("echo", True, "datagram", "no raw sockets"))
    assert part.state() == PartState("echo", True, "datagram", "no raw sockets")
    task = asyncio.create_task(part.keep())
    await clock.advance(0)
    assert part.state() == PartState("echo", False, "restarting", "PermissionError: [Errno 1] not permitted")
    failing.stay_ns = 10**15
    await clock.advance(FIRST_BACKOFF_NS)
    assert part.state() == PartState(
        "echo", True, "datagram", "no raw sockets; failed 1 times, last: PermissionError: [Errno 1] not permitted"
    )
    task.cancel()


async def test_a_guarded_call_that_fails_costs_only_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    part = Part("nic", FakeClock(), Failing(FakeClock()).run)

    def drain() -> list[int]:
        raise KeyError("x")

    nothing: list[int] = []
    assert part.guard(nothing, lambda: [1]) == [1]
    with caplog.at_level(logging.WARNING):
        assert part.guard(nothing, drain) == []
    assert part.state() == PartState("nic", True, "ok", "failed 1 times, last: KeyError: 'x'")
    assert caplog.messages == ["nic failed (1 so far): KeyError: 'x'"]


def test_a_state_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    log = StateLog()
    fine, away = PartState("uplink", True, "ok"), PartState("uplink", False, "dns", "collector: not known")
    with caplog.at_level(logging.INFO):
        for state in (fine, fine, away, away, PartState("uplink", False, "dns", "other words"), fine):
            log.note([state])
    assert caplog.messages == ["uplink: dns (collector: not known)", "uplink: ok"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
