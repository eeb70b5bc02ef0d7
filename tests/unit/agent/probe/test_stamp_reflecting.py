"""The planned reflector: where it listens, whom it answers, and what it does about places that it cannot have."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from agent.probe.stamp_reflecting import AGAIN_NS, Place, StampReflecting
from agent.probe.stamp_reflector_socket import Arrival
from bandwitness.v1.plan_pb2 import StampReflector
from bandwitness.v1.record_pb2 import Endpoint
from tests.fakes.clock import FakeClock

ENDS = [Endpoint(node="a", nic="eth0", address="10.0.0.1"), Endpoint(node="a", nic="eth1", address="10.1.0.1")]
PLANNED = StampReflector(port=8620, allowed_sender=["10.0.0.2", "10.1.0.2"])


class Socket:
    """A descriptor that never becomes readable."""

    def __init__(self) -> None:
        self.ends = os.pipe()
        self.closed = False

    def fileno(self) -> int:
        return self.ends[0]

    def receive(self) -> Arrival | None:
        return None

    def reply(self, packet: bytes, arrival: Arrival) -> None:
        """Nobody asks."""

    def close(self) -> None:
        self.closed = True
        for end in self.ends:
            os.close(end)


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.missing: set[str] = set()
        self.denied: set[int] = set()  # ports without the right
        self.opened: dict[Place, Socket] = {}
        self.reflecting = StampReflecting(self.clock, clock_error=lambda: None, opener=self.open)

    def open(self, place: Place) -> Socket:
        if place[0] in self.missing:
            raise OSError(99, "Cannot assign requested address")
        if place[2] in self.denied:
            raise PermissionError(13, "Permission denied")
        opened = self.opened[place] = Socket()
        return opened

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reflecting.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert all(opened.closed for opened in self.opened.values())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a state of what is under test, which knows no event
            await asyncio.sleep(0)


async def test_it_listens_on_each_endpoint_once_it_is_planned() -> None:
    bench = Bench()
    async with bench.running():
        await asyncio.sleep(0)
        assert bench.reflecting.state().detail == "not planned"
        bench.reflecting.configure(PLANNED, ENDS)
        await until(lambda: len(bench.opened) == 2)
        assert set(bench.opened) == {("10.0.0.1", "eth0", 8620), ("10.1.0.1", "eth1", 8620)}
        await until(lambda: bench.reflecting.state().detail == "answers on port 8620")
        assert bench.reflecting.state().state == "ok"


async def test_port_862_beside_our_own_where_it_can_be_had_and_no_fault_where_not() -> None:
    bench = Bench()
    planned = StampReflector(port=8620, allowed_sender=["10.0.0.2"], well_known_port=True)
    bench.denied.add(862)
    bench.reflecting.configure(planned, ENDS[:1])
    async with bench.running():
        await until(lambda: len(bench.opened) == 1 and bench.clock.sleepers == 1)
        state = bench.reflecting.state()
        assert (state.working, state.state) == (True, "ok")
        assert state.detail == "answers on port 8620; 10.0.0.1 port 862: Permission denied"
        bench.denied.clear()
        await bench.clock.advance(AGAIN_NS)
        await until(lambda: set(bench.opened) == {("10.0.0.1", "eth0", 8620), ("10.0.0.1", "eth0", 862)})
        await until(lambda: bench.reflecting.state().detail == "answers on port 862 and 8620")


async def test_a_plan_for_862_alone_opens_it_once() -> None:
    bench = Bench()
    bench.reflecting.configure(StampReflector(port=862, well_known_port=True), ENDS[:1])
    async with bench.running():
        await until(lambda: bench.reflecting.state().detail == "answers on port 862")
        assert set(bench.opened) == {("10.0.0.1", "eth0", 862)}


async def test_a_place_that_cannot_be_had_is_tried_again_and_costs_only_itself() -> None:
    bench = Bench()
    bench.missing.add("10.1.0.1")
    bench.reflecting.configure(PLANNED, ENDS)
    async with bench.running():
        await until(lambda: len(bench.opened) == 1 and bench.clock.sleepers == 1)
        state = bench.reflecting.state()
        assert (state.working, state.state) == (True, "cannot_listen")
        assert state.detail == "answers on port 8620; 10.1.0.1 port 8620: Cannot assign requested address"
        bench.missing.clear()
        await bench.clock.advance(AGAIN_NS)
        await until(lambda: len(bench.opened) == 2)
        assert bench.reflecting.state().state == "ok"


async def test_other_senders_disturb_no_socket_and_no_plan_closes_all() -> None:
    bench = Bench()
    bench.reflecting.configure(PLANNED, ENDS)
    async with bench.running():
        await until(lambda: len(bench.opened) == 2)
        before = dict(bench.opened)
        bench.reflecting.configure(StampReflector(port=8620, allowed_sender=["10.0.0.3"]), ENDS)
        await asyncio.sleep(0)
        assert bench.opened == before
        assert not any(opened.closed for opened in before.values())
        bench.reflecting.configure(None, ENDS)
        await until(lambda: all(opened.closed for opened in before.values()))
        assert bench.reflecting.state().detail == "not planned"


def test_a_sender_that_is_no_host_is_refused_and_changes_nothing() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="not the address of one host"):
        bench.reflecting.configure(StampReflector(allowed_sender=["224.0.0.1"]), ENDS)
    assert bench.reflecting.state().detail == "not planned"
