"""Requests for traces: into the node's plan, once, few, and on record."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from bandwitness.identity import short_id
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import TraceRequest
from collector.app.planning import MAX_TRACES, Planning
from collector.app.tracing import (
    BY_HAND_PER_MINUTE,
    EXPIRY_NS,
    PATHS_OF_INCIDENT,
    PATHS_OF_REQUEST,
    PER_MINUTE,
    Tracing,
    spread,
)
from collector.export.way_api import TraceRefusedError
from collector.log import LogError
from collector.model import Element, EndpointRow, Incident, PathStatus
from tests.fakes.clock import FakeClock
from tests.fakes.measured_log import echo_path, stamp_path, throughput_path
from tests.unit.collector.app.test_planning import HOUR, Life, life

SECOND = 1_000_000_000


class Paths:
    """What the store knows."""

    def __init__(self, *definitions: bytes) -> None:
        self.by_id = {short_id(path): path for path in definitions}

    def definitions(self, src: str, dst: str) -> list[tuple[PathStatus, bytes]]:
        found = []
        for path_id, definition in self.by_id.items():
            path = pb.Path.FromString(definition)
            if (path.source.node, path.endpoint.node) == (src, dst):
                end = EndpointRow(src, "eth0", "", "rail0")
                nothing = (None,) * 8
                status = PathStatus(path_id, src, dst, end, None, "", "rail0", path.type_p.protocol, *nothing)
                found.append((status, definition))
        return found

    def definitions_of(self, path_ids: Iterable[int]) -> dict[int, bytes]:
        return {path_id: self.by_id[path_id] for path_id in path_ids if path_id in self.by_id}


class Asked:
    """A planning part that takes everything and remembers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, TraceRequest]] = []
        self.takes = True
        self.fault: Exception | None = None

    async def ask_traces(self, node: str, requests: list[TraceRequest]) -> bool:
        if self.fault is not None:
            raise self.fault
        self.requests += [(node, request) for request in requests]
        return self.takes


def incident(name: str, children: Iterable[bytes], opened_ns: int, rule: str = "loss") -> Incident:
    ids = [f"{short_id(path):016x}" for path in children]
    return Incident(name, rule, 1, Element("uplink", "r1"), "critical", opened_ns, None, opened_ns, "", {}, ids)


def tracing(asked: Asked, paths: Paths, clock: FakeClock, incidents: list[Incident]) -> Tracing:
    return Tracing(cast(Planning, asked), paths, lambda: incidents, clock)


FLEET = [echo_path(f"r1n{a}", f"r2n{b}") for a in (1, 2) for b in (1, 2, 3)]


async def test_by_hand_echo_comes_before_a_few_stamp_ports() -> None:
    ports = [stamp_path("r1n1", "r2n1", port) for port in range(61_000, 61_016)]
    asked, clock = Asked(), FakeClock()
    paths = Paths(*ports, echo_path("r1n1", "r2n1"), throughput_path("r1n1", "r2n1"))
    answer = await tracing(asked, paths, clock, []).ask("r1n1", "r2n1")
    assert [item["protocol"] for item in answer] == ["icmp_echo", *["stamp"] * (PATHS_OF_REQUEST - 1)]
    assert [node for node, _ in asked.requests] == ["r1n1"] * PATHS_OF_REQUEST
    assert {request.reason for _, request in asked.requests} == {pb.TRACE_REASON_REQUESTED}
    assert {request.expiry_time_ns for _, request in asked.requests} == {clock.wall_ns() + EXPIRY_NS}
    assert len({request.request for _, request in asked.requests}) == PATHS_OF_REQUEST


async def test_what_cannot_be_traced_is_refused_with_the_reason() -> None:
    asked, paths = Asked(), Paths(echo_path("r1n1", "r2n1"), throughput_path("r1n1", "r2n2"))
    part = tracing(asked, paths, FakeClock(), [])
    for dst in ("r2n2", "nobody"):
        with pytest.raises(TraceRefusedError, match="no path by echo or STAMP"):
            await part.ask("r1n1", dst)
    asked.takes = False
    with pytest.raises(TraceRefusedError, match="no plan"):
        await part.ask("r1n1", "r2n1")
    asked.fault = LogError("log", "disk full")
    with pytest.raises(TraceRefusedError, match="disk full"):
        await part.ask("r1n1", "r2n1")
    asked.fault, asked.takes = None, True
    while len(part._by_hand) < BY_HAND_PER_MINUTE:
        await part.ask("r1n1", "r2n1")
    with pytest.raises(TraceRefusedError, match="within a minute"):
        await part.ask("r1n1", "r2n1")


async def test_of_tcp_connects_it_is_said_that_they_cannot_be_traced() -> None:
    path = pb.Path.FromString(echo_path("r1n1", "r2n1"))
    path.type_p.protocol = pb.PROTOCOL_TCP_CONNECT
    tcp = path.SerializeToString(deterministic=True)
    asked = Asked()
    with pytest.raises(TraceRefusedError, match="only TCP connects are made"):
        await tracing(asked, Paths(tcp), FakeClock(), []).ask("r1n1", "r2n1")
    (item,) = await tracing(asked, Paths(tcp, echo_path("r1n1", "r2n1")), FakeClock(), []).ask("r1n1", "r2n1")
    assert item["protocol"] == "icmp_echo"
    assert spread([tcp]) == []  # nor because of an incident


async def test_an_incident_that_opens_has_a_few_of_its_paths_traced_once() -> None:
    asked, clock = Asked(), FakeClock()
    found = [incident("a" * 32, FLEET, clock.wall_ns()), incident("b" * 32, FLEET, clock.wall_ns(), "agent_silent")]
    part = tracing(asked, Paths(*FLEET), clock, found)
    task = asyncio.create_task(part.run())
    while not asked.requests:  # the store is read in a thread
        await clock.advance(SECOND)
        await asyncio.sleep(0.01)
    await clock.advance(5 * SECOND)
    task.cancel()
    assert len(asked.requests) == PATHS_OF_INCIDENT
    assert {node for node, _ in asked.requests} == {"r1n1", "r1n2"}  # from more sides than one
    assert {request.reason for _, request in asked.requests} == {pb.TRACE_REASON_VERDICT}
    assert all(request.request.startswith("a" * 16) for _, request in asked.requests)


async def test_old_incidents_and_too_many_at_a_time_are_not_traced() -> None:
    asked, clock = Asked(), FakeClock()
    part = tracing(asked, Paths(*FLEET), clock, [])
    await part._look_into(incident("old", FLEET, clock.wall_ns() - HOUR))
    assert asked.requests == []
    for number in range(50):
        await part._look_into(incident(f"{number:032d}", FLEET, clock.wall_ns()))
    assert PER_MINUTE - PATHS_OF_INCIDENT < len(asked.requests) <= PER_MINUTE
    clock.move(61 * SECOND)
    before = len(asked.requests)
    await part._look_into(incident("later", FLEET, clock.wall_ns()))
    assert len(asked.requests) == before + PATHS_OF_INCIDENT


def test_a_few_paths_show_an_incident_from_many_sides() -> None:
    nodes = [pb.Path.FromString(path).source.node for path in spread([*FLEET, throughput_path("r1n1", "r2n1")])]
    assert sorted(nodes[:2]) == ["r1n1", "r1n2"]
    assert len(nodes) == len(FLEET)


def request(name: str, clock: FakeClock) -> TraceRequest:
    return TraceRequest(
        request=name, path=b"p", reason=pb.TRACE_REASON_REQUESTED, expiry_time_ns=clock.wall_ns() + EXPIRY_NS
    )


def wanted(one: Life, node: str = "n1") -> list[str]:
    issued = one.control.plan_for(node)
    assert issued is not None
    return [trace.request for trace in issued.plan.trace]


async def test_a_request_is_a_plan_of_its_own_that_is_on_record(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        version = await one.start()
        before = one.control.plan_for("n1")
        assert await one.planning.ask_traces("n1", [request("a", clock)])
        assert one.version > version
        issued = one.control.plan_for("n1")
        assert before is not None
        assert issued is not None
        assert list(issued.plan.slot) == list(before.plan.slot)
        assert issued.plan.expiry_time_ns == before.plan.expiry_time_ns
        assert await one.planning.ask_traces("n1", [request("a", clock)])  # known: no further plan
        assert one.control.plan_for("n1") is issued
        assert not await one.planning.ask_traces("nobody", [request("b", clock)])
    async with life(tmp_path, clock) as again:
        await again.start()
        assert wanted(again) == ["a"]
        assert wanted(again, "n2") == []


async def test_the_next_plan_carries_requests_on_until_they_lapse(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        await one.start()
        await one.planning.ask_traces("n1", [request("a", clock)])
        await one.planning.plan()
        assert wanted(one) == ["a"]
        clock.move(EXPIRY_NS)
        await one.planning.plan()
        assert wanted(one) == []


async def test_one_node_is_not_asked_for_too_many(tmp_path: Path) -> None:
    clock = FakeClock()
    async with life(tmp_path, clock) as one:
        await one.start()
        many = [request(str(number), clock) for number in range(MAX_TRACES)]
        assert await one.planning.ask_traces("n1", many)
        assert not await one.planning.ask_traces("n1", [request("one more", clock)])
        assert len(wanted(one)) == MAX_TRACES
