"""The real program on loopback: both ends, both directions, and the ways it fails."""

import asyncio
import dataclasses
import itertools
import os
import socket
from pathlib import Path
from typing import Any

import iperf3 as second_reader  # reads JSON only; libiperf is not loaded
import pytest

from agent.clock import SystemClock
from agent.probe.iperf3 import RETRIED, UNKNOWN_STRANGER, Iperf3
from agent.probe.iperf3_run import CONGESTION_CONTROL_DIFFERS
from agent.probe.port import port_fault_now
from agent.result import ThroughputRun
from agent.schedule import FileJournal, SlotRunner
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Plan, Slot

MS = 1_000_000
SECOND = 1_000_000_000
MARGIN_NS = 1_000 * MS  # generous: the machine that runs this may be busy
LEAD_NS = 1_200 * MS
_PORTS = itertools.count(12_000 + os.getpid() * 101 % 18_000)  # below the ephemeral ones; apart for parallel workers


@pytest.fixture
def port() -> int:
    return next(port for port in _PORTS if port_fault_now("127.0.0.1", port) is None)


def make_slot(port: int, *, reverse: bool = False, **changed: object) -> Slot:
    values: dict[str, object] = {"streams": 1, "duration_ns": SECOND, "congestion_control": "cubic"}
    profile = pb.Profile(**(values | changed))  # type: ignore[arg-type]
    endpoint = pb.Endpoint(node="here", nic="lo", address="127.0.0.1")
    return Slot(
        slot_id=os.urandom(16),
        client=endpoint,
        server=endpoint,
        port=port,
        reverse=reverse,
        profile=profile.SerializeToString(),
        margin_ns=MARGIN_NS,
    )


@dataclasses.dataclass
class Rendezvous:
    """Times of one slot that begins shortly."""

    clock: SystemClock = dataclasses.field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.engine = Iperf3(self.clock)
        self.begin_ns = self.clock.monotonic_ns() + LEAD_NS

    def limits(self, length_ns: int = SECOND) -> dict[str, Any]:
        return {
            "last_attempt_ns": self.begin_ns + MARGIN_NS * 3 // 4,
            "deadline_ns": self.begin_ns + length_ns + MARGIN_NS,
            "own_traffic_limit_ratio": 0,
        }

    async def client(self, slot: Slot, **limits: Any) -> ThroughputRun:
        return await self.engine.run_client(slot, begin_ns=self.begin_ns, **(self.limits() | limits))

    async def server(self, slot: Slot, **limits: Any) -> ThroughputRun:
        begin_ns = self.begin_ns - MARGIN_NS
        return await self.engine.run_server(slot, begin_ns=begin_ns, **(self.limits() | limits))

    async def both(self, slot: Slot, **limits: Any) -> tuple[ThroughputRun, ThroughputRun]:
        return await asyncio.gather(self.client(slot, **limits), self.server(slot, **limits))


@pytest.mark.parametrize("reverse", [False, True])
async def test_both_ends_agree(port: int, reverse: bool) -> None:
    client, server = await Rendezvous().both(make_slot(port, reverse=reverse, streams=4))
    assert (client.report.outcome, client.report.detail) == (pb.RUN_OUTCOME_OK, "")
    assert (server.report.outcome, server.report.detail) == (pb.RUN_OUTCOME_OK, "")
    assert client.report.receiver_bytes
    if reverse:
        assert server.report.sender_bytes == client.report.sender_bytes
        assert server.report.receiver_bytes is None
    else:
        assert server.report.receiver_bytes == client.report.receiver_bytes
        assert server.report.sender_bytes is None
    assert client.report.congestion_control == server.report.congestion_control == "cubic"
    assert len([i for i in client.report.intervals if i.bytes]) >= 3
    assert server.strangers == ()
    assert client.report.flags == server.report.flags == ()
    assert port_fault_now("127.0.0.1", port) is None
    theirs = second_reader.TestResult(client.raw_report.decode())
    assert (theirs.sent_bytes, theirs.received_bytes) == (client.report.sender_bytes, client.report.receiver_bytes)


@pytest.mark.parametrize("reverse", [False, True])
async def test_udp(port: int, reverse: bool) -> None:
    client, server = await Rendezvous().both(make_slot(port, reverse=reverse, udp_rate_bps=20_000_000))
    assert client.report.outcome == server.report.outcome == pb.RUN_OUTCOME_OK
    assert client.report.receiver_bytes
    assert client.report.udp_packets
    assert client.report.interarrival_jitter_ns is not None


async def test_the_warm_up_is_left_out(port: int) -> None:
    slot = make_slot(port, omit_ns=SECOND)
    client, _ = await Rendezvous().both(slot, deadline_ns=SystemClock().monotonic_ns() + 10 * SECOND)
    assert client.report.outcome == pb.RUN_OUTCOME_OK
    omitted = [i.omitted for i in client.report.intervals]
    assert omitted == sorted(omitted, reverse=True)  # first; whether three or four is a race within iperf3
    assert True in omitted
    assert client.report.receiver_bytes
    assert client.report.receiver_bytes < sum(i.bytes for i in client.report.intervals)
    assert client.report.sender_duration_ns == pytest.approx(SECOND, rel=0.2)


async def test_dscp_and_mss_are_taken(port: int) -> None:
    client, _ = await Rendezvous().both(make_slot(port, dscp=46, mss_bytes=1400))
    assert client.report.outcome == pb.RUN_OUTCOME_OK
    assert b'"tos":\t184' in client.raw_report


async def test_nobody_listens(port: int) -> None:
    run = await Rendezvous().client(make_slot(port))
    assert run.report.outcome == pb.RUN_OUTCOME_REFUSED
    assert run.report.receiver_bytes is None
    assert RETRIED in run.report.flags


async def test_nobody_comes(port: int) -> None:
    meeting = Rendezvous()
    run = await meeting.server(make_slot(port), deadline_ns=meeting.begin_ns)
    assert run.report.outcome == pb.RUN_OUTCOME_NO_CLIENT
    assert b"the server has terminated" in run.raw_report


async def test_a_late_server_is_waited_for(port: int) -> None:
    meeting, late = Rendezvous(), Rendezvous()
    late.begin_ns = meeting.begin_ns + MARGIN_NS + 300 * MS  # opens 300 ms after the client's first try
    client, server = await asyncio.gather(meeting.client(make_slot(port)), late.server(make_slot(port)))
    assert client.report.outcome == server.report.outcome == pb.RUN_OUTCOME_OK
    assert RETRIED in client.report.flags


async def _listening(port: int) -> None:
    async with asyncio.timeout(10):
        # There is no event for another process's listen().
        while port_fault_now("127.0.0.1", port) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_port_scan_does_not_eat_the_slot(port: int) -> None:
    meeting = Rendezvous()

    async def scan() -> None:
        await _listening(port)
        with socket.create_connection(("127.0.0.1", port)):
            pass

    client, server, _ = await asyncio.gather(meeting.client(make_slot(port)), meeting.server(make_slot(port)), scan())
    assert client.report.outcome == server.report.outcome == pb.RUN_OUTCOME_OK
    assert server.strangers == (UNKNOWN_STRANGER,)


async def test_another_hosts_test_is_a_stranger(port: int) -> None:
    """The plan expects 127.0.0.2; 127.0.0.1 comes first."""
    meeting = Rendezvous()
    slot = make_slot(port)
    slot.client.address = "127.0.0.2"

    async def intrude() -> None:
        await _listening(port)
        process = await asyncio.create_subprocess_exec(
            "iperf3", "-c", "127.0.0.1", "-p", str(port), "-n", "1", stdout=asyncio.subprocess.DEVNULL
        )
        await process.wait()

    client, server, _ = await asyncio.gather(meeting.client(slot), meeting.server(slot), intrude())
    assert "127.0.0.1" in server.strangers
    assert server.report.peer_address == "127.0.0.2"
    assert client.report.outcome == server.report.outcome == pb.RUN_OUTCOME_OK


async def test_a_port_in_use(port: int) -> None:
    meeting = Rendezvous()
    with socket.create_server(("127.0.0.1", port)):
        run = await meeting.server(make_slot(port), last_attempt_ns=meeting.begin_ns - MARGIN_NS)
    assert run.report.outcome == pb.RUN_OUTCOME_PORT_IN_USE


async def test_an_address_that_is_not_here(port: int) -> None:
    meeting = Rendezvous()
    slot = make_slot(port)
    slot.server.address = "192.0.2.77"
    run = await meeting.server(slot, last_attempt_ns=meeting.begin_ns - MARGIN_NS)
    assert run.report.outcome == pb.RUN_OUTCOME_BAD_PARAMETERS


async def test_a_congestion_control_that_the_kernel_lacks(port: int) -> None:
    client, server = await Rendezvous().both(make_slot(port, congestion_control="nosuch"))
    assert client.report.outcome == pb.RUN_OUTCOME_BAD_PARAMETERS
    assert "congestion control algorithm not supported" in client.report.detail
    assert server.report.outcome == pb.RUN_OUTCOME_ABORTED


async def test_another_congestion_control_is_set_and_recorded(port: int) -> None:
    client, _ = await Rendezvous().both(make_slot(port, congestion_control="reno"))
    assert client.report.congestion_control == "reno"
    assert CONGESTION_CONTROL_DIFFERS not in client.report.flags


async def test_a_server_that_says_nothing_ends_at_the_deadline(port: int) -> None:
    meeting = Rendezvous()
    with socket.create_server(("127.0.0.1", port)):
        run = await meeting.client(make_slot(port), deadline_ns=meeting.begin_ns + SECOND)
    assert run.report.outcome == pb.RUN_OUTCOME_TIMEOUT
    assert run.report.receiver_bytes is None


async def test_a_stranger_that_holds_the_server_costs_the_slot_and_nothing_else(port: int) -> None:
    meeting = Rendezvous()

    async def hold() -> None:
        await _listening(port)
        with socket.create_connection(("127.0.0.1", port)):
            await meeting.clock.sleep_until(meeting.limits()["deadline_ns"] + 200 * MS)

    client, server, _ = await asyncio.gather(meeting.client(make_slot(port)), meeting.server(make_slot(port)), hold())
    assert server.report.outcome == pb.RUN_OUTCOME_NO_CLIENT
    assert client.report.outcome in (pb.RUN_OUTCOME_TIMEOUT, pb.RUN_OUTCOME_ABORTED)
    assert port_fault_now("127.0.0.1", port) is None


async def test_the_runner_and_the_engine_together(port: int, tmp_path: Path) -> None:
    """Two slots of 1 s in 2 s each with a margin of 400 ms, as in the demo; this host is both ends."""
    clock = SystemClock()
    engine = Iperf3(clock)
    assert (await engine.check()).working
    runner = SlotRunner("here", clock, engine, FileJournal(tmp_path / "slots"))
    slots = []
    for number in (0, 1):
        slot = make_slot(port + number, reverse=bool(number), streams=4)
        slot.margin_ns = 400 * MS
        slot.start_time_ns = clock.wall_ns() + LEAD_NS + number * 2 * SECOND
        slots.append(slot)
    runner.set_plan(Plan(node="here", expiry_time_ns=clock.wall_ns() + 60 * SECOND, slot=slots))
    running = asyncio.create_task(runner.run())
    runs: list[ThroughputRun] = []
    async with asyncio.timeout(20):
        while len(runs) < 4:
            await asyncio.sleep(0.05)
            runs += runner.drain()
    running.cancel()
    await asyncio.wait([running])
    assert [run.report.outcome for run in runs] == [pb.RUN_OUTCOME_OK] * 4
    assert sorted(run.role for run in runs) == [pb.RUN_ROLE_CLIENT] * 2 + [pb.RUN_ROLE_SERVER] * 2
    assert not any(gate.tripped for run in runs for gate in run.gates if gate.kind != pb.GATE_KIND_TEST_CPU)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("end", ["client", "server"])
async def test_an_end_that_is_told_to_stop_is_gone_within_a_second_and_the_other_records_it(
    port: int, end: str, reverse: bool
) -> None:
    slot = make_slot(port, reverse=reverse, duration_ns=20 * SECOND)
    meeting, stop = Rendezvous(), asyncio.Event()
    limits = {"deadline_ns": meeting.begin_ns + 30 * SECOND}
    stops = {"client": stop if end == "client" else asyncio.Event(), "server": stop if end == "server" else None}
    client = asyncio.create_task(meeting.client(slot, stop=stops["client"], **limits))
    server = asyncio.create_task(meeting.server(slot, stop=stops["server"], **limits))
    await meeting.clock.sleep_until(meeting.begin_ns + SECOND)
    told_ns = meeting.clock.monotonic_ns()
    stop.set()
    runs = {"client": await client, "server": await server}
    assert meeting.clock.monotonic_ns() - told_ns < SECOND
    told, other = runs.pop(end), runs.popitem()[1]
    assert told.report.outcome == pb.RUN_OUTCOME_ABORTED_PAUSED, told.report.detail
    assert (told.report.sender_bytes, told.report.receiver_bytes) == (None, None)
    assert other.report.outcome in (pb.RUN_OUTCOME_ABORTED, pb.RUN_OUTCOME_FAILED_PARTIAL), other.report.detail
    assert told.raw_report
    assert {gate.kind for gate in told.gates} >= {pb.GATE_KIND_OWN_TRAFFIC, pb.GATE_KIND_LINK}
    assert port_fault_now("127.0.0.1", port) is None
    print("over after", (meeting.clock.monotonic_ns() - told_ns) // MS, "ms")


async def test_a_stop_before_the_begin_starts_no_process(port: int) -> None:
    stop = asyncio.Event()
    meeting = Rendezvous()
    client = asyncio.create_task(meeting.client(make_slot(port), stop=stop))
    await asyncio.sleep(0)
    stop.set()
    run = await client
    assert run.report.outcome == pb.RUN_OUTCOME_SKIPPED_PAUSED
    assert run.raw_report == b""
    assert meeting.clock.monotonic_ns() < meeting.begin_ns
