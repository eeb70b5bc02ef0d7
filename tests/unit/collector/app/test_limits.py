"""Open files: as many as may be, and few words where that is not enough."""

import asyncio
import errno
import logging
import resource

import pytest

from collector.app.limits import SAY_EVERY_NS, AcceptErrors, agent_connections, raise_descriptor_limit
from tests.fakes.clock import FakeClock


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """The limit in a dictionary of its own; the real one belongs to the test run."""
    held = {"limit": (64, 500)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: held["limit"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: held.update(limit=limit))
    return held


def test_the_soft_limit_is_raised_to_the_hard_one(
    limits: dict[str, tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    assert raise_descriptor_limit(agents=200) == 500
    assert limits["limit"] == (500, 500)
    assert caplog.records == []


@pytest.mark.usefixtures("limits")
def test_a_fleet_beyond_the_hard_limit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    raise_descriptor_limit(agents=1000)
    (record,) = caplog.records
    assert "500 open files are allowed, 1000 agents need about 1256" in record.getMessage()
    assert "LimitNOFILE=1256" in record.getMessage()


@pytest.mark.parametrize(("soft", "room"), [(256, 64), (1024, 768), (20_000, 8_000), (resource.RLIM_INFINITY, 8_000)])
def test_agents_leave_descriptors_for_everything_else(limits: dict[str, tuple[int, int]], soft: int, room: int) -> None:
    limits["limit"] = (soft, soft)
    assert agent_connections(8_000) == room


async def test_connections_that_cannot_be_accepted_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock, loop = FakeClock(), asyncio.get_running_loop()
    handler = AcceptErrors(clock.monotonic_ns)
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many open files"),
    }
    for _ in range(500):
        handler(loop, context)
    clock.move(SAY_EVERY_NS)
    handler(loop, context)
    first, second = [record.getMessage() for record in caplog.records]
    assert "cannot be accepted: Too many open files (1 attempts" in first
    assert "(500 attempts" in second


async def test_every_other_fault_in_the_loop_is_shown_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        AcceptErrors(FakeClock().monotonic_ns)(
            asyncio.get_running_loop(), {"message": "ours", "exception": OSError(errno.EMFILE, "x")}
        )
    assert [record.getMessage() for record in caplog.records] == ["ours"]
