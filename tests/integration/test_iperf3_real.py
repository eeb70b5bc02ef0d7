"""The real program on loopback: both ends, both directions, and the ways it fails."""

import asyncio
import dataclasses
import itertools
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import iperf3 as second_reader  # reads JSON only; libiperf is not loaded
import pytest

from agent.clock import Clock, SystemClock
from agent.probe.iperf3 import RETRIED, Iperf3
from agent.probe.iperf3_run import CONGESTION_CONTROL_DIFFERS, LIBIPERF_USED
from agent.probe.iperf3_server import UNKNOWN_STRANGER
from agent.probe.iperf3_several import SEVERAL_PROCESSES
from agent.probe.port import port_fault_now
from agent.probe.process import Child
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


async def test_a_client_whose_clock_is_behind_by_half_the_margin_is_served(port: int) -> None:
    meeting = Rendezvous()
    late_ns = meeting.begin_ns + MARGIN_NS // 2
    limits = meeting.limits() | {"deadline_ns": meeting.begin_ns + SECOND + MARGIN_NS}
    late = meeting.engine.run_client(make_slot(port), begin_ns=late_ns, **limits)
    client, server = await asyncio.gather(late, meeting.server(make_slot(port)))
    assert client.report.outcome == server.report.outcome == pb.RUN_OUTCOME_OK


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


@pytest.mark.parametrize(
    ("holder", "named"),
    [("127.0.0.2", "127.0.0.2"), ("127.0.0.1", "127.0.0.1")],
    ids=["stranger", "from the planned address"],
)
async def test_a_connection_that_says_nothing_is_sent_away_and_the_slot_still_used(
    port: int, holder: str, named: str
) -> None:
    """It would hold an iperf3 server for ever; the real client is told that it is busy, and tries again."""
    meeting, margin_ns = Rendezvous(), 2_500 * MS
    limits = {"last_attempt_ns": meeting.begin_ns + margin_ns, "deadline_ns": meeting.begin_ns + SECOND + 2 * margin_ns}
    over = asyncio.Event()

    async def hold() -> None:
        await _listening(port)
        with socket.create_connection(("127.0.0.1", port), source_address=(holder, 0)):
            await over.wait()

    holding = asyncio.create_task(hold())
    slot = make_slot(port)
    client, server = await asyncio.gather(meeting.client(slot, **limits), meeting.server(slot, **limits))
    over.set()
    await holding
    assert (client.report.outcome, server.report.outcome) == (pb.RUN_OUTCOME_OK, pb.RUN_OUTCOME_OK)
    assert server.strangers == (named,)
    assert port_fault_now("127.0.0.1", port) is None


class Kept:
    """Starts children as ever and keeps their ids, to do them harm."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    async def start(self, argv: Sequence[str], clock: Clock) -> Child:
        child = await Child.start(argv, clock)
        if argv[-1] != "--version":
            self.pids.append(child.pid)
        return child


@pytest.mark.parametrize(
    ("end", "harm", "theirs", "ours"),
    [
        ("server", signal.SIGKILL, None, {pb.RUN_OUTCOME_FAILED_PARTIAL, pb.RUN_OUTCOME_ABORTED}),
        ("client", signal.SIGKILL, None, {pb.RUN_OUTCOME_FAILED_PARTIAL, pb.RUN_OUTCOME_ABORTED}),
        ("server", signal.SIGSTOP, pb.RUN_OUTCOME_TIMEOUT, {pb.RUN_OUTCOME_TIMEOUT}),
    ],
    ids=["server killed", "client killed", "server stopped"],
)
async def test_a_peer_that_dies_or_freezes_in_mid_test(
    port: int, end: str, harm: signal.Signals, theirs: int | None, ours: set[int]
) -> None:
    """Neither end waits longer than its deadline, no result is made up, and the port is free again."""
    kept, meeting = Kept(), Rendezvous()
    harmed = Iperf3(meeting.clock, spawn=kept.start)
    engines = {"client": meeting.engine, "server": meeting.engine, end: harmed}
    slot = make_slot(port, duration_ns=2 * SECOND)
    deadline_ns = meeting.begin_ns + 3 * SECOND
    limits = meeting.limits() | {"deadline_ns": deadline_ns}
    client = asyncio.create_task(engines["client"].run_client(slot, begin_ns=meeting.begin_ns, **limits))
    server = asyncio.create_task(engines["server"].run_server(slot, begin_ns=meeting.begin_ns - MARGIN_NS, **limits))
    await meeting.clock.sleep_until(meeting.begin_ns + SECOND)
    os.kill(kept.pids[-1], harm)
    runs = {"client": await client, "server": await server}
    assert meeting.clock.monotonic_ns() < deadline_ns + 4 * SECOND
    harmed_run, other = runs.pop(end), runs.popitem()[1]
    assert other.report.outcome in ours, other.report.detail
    if theirs is not None:
        assert harmed_run.report.outcome == theirs, harmed_run.report.detail
    assert (harmed_run.report.receiver_bytes, other.report.receiver_bytes) == (None, None)
    assert port_fault_now("127.0.0.1", port) is None


async def test_several_processes_are_one_test_at_both_ends(port: int) -> None:
    slot = make_slot(port, streams=4, omit_ns=SECOND)
    slot.ports = 4
    meeting = Rendezvous()
    client, server = await meeting.both(slot, deadline_ns=meeting.begin_ns + 4 * SECOND)
    assert (client.report.outcome, server.report.outcome) == (pb.RUN_OUTCOME_OK, pb.RUN_OUTCOME_OK)
    assert (client.processes, server.processes) == (4, 4)
    assert SEVERAL_PROCESSES in client.report.flags
    assert client.report.receiver_bytes == server.report.receiver_bytes
    counted = [interval.bytes for interval in client.report.intervals if not interval.omitted]
    assert sum(counted) == pytest.approx(client.report.sender_bytes, rel=0.35)  # the last, partial ones may differ
    assert [argv for argv in client.raw_report.split(b'"num_streams":\t')[1:] if not argv.startswith(b"1,")] == []
    assert all(port_fault_now("127.0.0.1", port + number) is None for number in range(4))


@pytest.mark.parametrize("udp_rate_bps", [0, 20_000_000], ids=["tcp", "udp"])
async def test_both_ways_at_once_bound_to_the_device(port: int, udp_rate_bps: int) -> None:
    slot = make_slot(port, bidirectional=True, bind_device=True, udp_rate_bps=udp_rate_bps)
    client, server = await Rendezvous().both(slot)
    assert (client.report.outcome, client.report.detail) == (pb.RUN_OUTCOME_OK, "")
    assert (server.report.outcome, server.report.detail) == (pb.RUN_OUTCOME_OK, "")
    assert client.report.receiver_bytes == server.report.receiver_bytes
    assert client.report.return_receiver_bytes
    assert client.report.return_sender_bytes == server.report.return_sender_bytes
    assert client.report.return_receiver_duration_ns == pytest.approx(SECOND, rel=0.3)
    assert server.report.return_receiver_bytes is None
    assert any(interval.return_bytes for interval in client.report.intervals)


async def test_the_process_runs_where_it_is_bound_to(port: int, tmp_path: Path) -> None:
    """A tree that says that lo belongs to a NUMA node of one CPU; the kernel says where the process may run."""
    cpu = min(os.sched_getaffinity(0))
    (tmp_path / "sys/class/net/lo/device").mkdir(parents=True)
    (tmp_path / "sys/class/net/lo/device/numa_node").write_text("0\n")
    (tmp_path / "sys/devices/system/node/node0").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/node0/cpulist").write_text(f"{cpu}\n")
    kept, meeting = Kept(), Rendezvous()
    engine = Iperf3(meeting.clock, spawn=kept.start, root=tmp_path)
    slot = make_slot(port, numa_cpus=True)
    limits = meeting.limits() | {"deadline_ns": meeting.begin_ns}
    serving = asyncio.create_task(engine.run_server(slot, begin_ns=meeting.begin_ns - MARGIN_NS, **limits))
    await _listening(port)
    async with asyncio.timeout(10):
        while not kept.pids:  # noqa: ASYNC110 - it may listen before whoever started it is told
            await asyncio.sleep(0.01)
    assert os.sched_getaffinity(kept.pids[-1]) == {cpu}
    assert (await serving).report.outcome == pb.RUN_OUTCOME_NO_CLIENT


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
    hosts_own = (pb.GATE_KIND_TEST_CPU, pb.GATE_KIND_TCP_WINDOW)  # the loopback has no other limits
    assert not any(gate.tripped for run in runs for gate in run.gates if gate.kind not in hosts_own)


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


@pytest.mark.parametrize("end", ["client", "server"])
async def test_the_library_gives_the_same_record_as_the_program(port: int, end: str) -> None:
    """Debian's libiperf0 by the PyPI wrapper, in a process of its own, against the program at the other end."""
    meeting = Rendezvous()
    library = Iperf3(meeting.clock, program="no-such-program", engine="libiperf")
    assert (await library.check()).working
    meeting.begin_ns = meeting.clock.monotonic_ns() + 2 * LEAD_NS
    engines = {"client": meeting.engine, "server": meeting.engine, end: library}
    slot = make_slot(port, streams=2, dscp=46)
    client, server = await asyncio.gather(
        engines["client"].run_client(slot, begin_ns=meeting.begin_ns, **meeting.limits(3 * SECOND)),
        engines["server"].run_server(slot, begin_ns=meeting.begin_ns - LEAD_NS, **meeting.limits(3 * SECOND)),
    )
    assert (client.report.outcome, client.report.detail) == (pb.RUN_OUTCOME_OK, "")
    assert (server.report.outcome, server.report.detail) == (pb.RUN_OUTCOME_OK, "")
    assert client.report.receiver_bytes == server.report.receiver_bytes
    by_library, by_program = (client, server) if end == "client" else (server, client)
    assert LIBIPERF_USED in by_library.report.flags
    assert LIBIPERF_USED not in by_program.report.flags
    assert by_library.report.version == by_program.report.version
    assert by_library.report.local_cpu_ratio is not None
    assert len(by_library.report.intervals) >= 3


async def test_the_library_says_what_went_wrong_and_is_ended_at_the_deadline(port: int) -> None:
    meeting = Rendezvous()
    library = Iperf3(meeting.clock, engine="libiperf")
    run = await library.run_client(make_slot(port), begin_ns=meeting.begin_ns, **meeting.limits())
    assert (run.report.outcome, run.report.receiver_bytes) == (pb.RUN_OUTCOME_REFUSED, None)
    meeting = Rendezvous()
    limits = meeting.limits() | {"deadline_ns": meeting.begin_ns}
    run = await library.run_server(make_slot(port), begin_ns=meeting.begin_ns - MARGIN_NS, **limits)
    assert run.report.outcome == pb.RUN_OUTCOME_NO_CLIENT
    assert port_fault_now("127.0.0.1", port) is None
