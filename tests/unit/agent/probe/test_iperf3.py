"""The course of one end of a slot, with child processes that print what they are told at times they are told."""

import asyncio
import dataclasses
import json
from collections.abc import Callable, Sequence, Set
from pathlib import Path

import pytest

from agent.clock import Clock
from agent.probe import iperf3, iperf3_run, iperf3_server
from agent.probe.iperf3 import Iperf3
from agent.probe.iperf3_several import PROCESSES_APART, SEVERAL_PROCESSES
from agent.probe.process import Ending
from agent.probe.visitors import LOOK_NS, Visitor
from agent.probe.volume import Volume
from agent.result import Gate, ThroughputRun
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot
from tests.fakes.clock import START_MONOTONIC_NS, START_WALL_NS, FakeClock

GOLDEN = Path(__file__).parents[3] / "golden" / "iperf3"
MS = 1_000_000
SECOND = 1_000_000_000
BEGIN_NS = START_MONOTONIC_NS + SECOND
LIMITS = {"last_attempt_ns": BEGIN_NS + 300 * MS, "deadline_ns": BEGIN_NS + 1_400 * MS, "own_traffic_limit_ratio": 0.2}


def text(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


REFUSED, BUSY = text("rec-3.12-refused-rc0"), text("rec-3.12-busy-rc0")
OK, SERVED = text("rec-3.12-tcp-P2-250ms"), text("rec-3.12-server-tcp")
EMPTY, TERMINATED = text("rec-3.12-server-empty-connection"), text("rec-3.12-server-terminated")
GAVE_UP = text("rec-3.12-server-client-gave-up")
STRANGER = SERVED.replace(b'"host":\t"127.0.0.1"', b'"host":\t"198.51.100.9"')
HANGS = b""


@dataclasses.dataclass
class FakeChild:
    clock: Clock
    stdout: bytes
    length_ns: int
    pid: int = 4242

    async def finish(self, deadline_ns: int, stop: asyncio.Event | None = None) -> Ending:
        end_ns = self.clock.monotonic_ns() + self.length_ns
        sleeping = asyncio.ensure_future(self.clock.sleep_until(min(end_ns, deadline_ns)))
        stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
        await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopped = not sleeping.done()
        for waiting in (sleeping, stopping):
            waiting.cancel()
        if stopped or end_ns > deadline_ns:
            return Ending(1, self.stdout or TERMINATED, b"", forced="TERM", stopped=stopped)
        return Ending(0, self.stdout, b"")


class Bench:
    """Children in their order: (what is printed, ms until the end)."""

    def __init__(
        self, tmp_path: Path, *children: tuple[bytes, int], version: str = "iperf 3.12 (cJSON 1.7.15)"
    ) -> None:
        self.clock = FakeClock()
        self.root = tmp_path
        (tmp_path / "proc/net").mkdir(parents=True)
        self.set_octets(0)
        self.statistics = tmp_path / "sys/class/net/eth0/statistics"
        self.statistics.mkdir(parents=True)
        (self.statistics.parent / "speed").write_text("1000\n")
        (tmp_path / "iperf3").write_text("#!/bin/sh\n")
        (tmp_path / "iperf3").chmod(0o755)
        self.children = list(children)
        self.version = version
        self.started: list[tuple[int, list[str]]] = []  # ms from the begin, arguments
        self.port_faults: list[tuple[int, str] | None] = []
        self.on_start: Callable[[], None] = lambda: None
        self.visitors: Callable[[int], list[Visitor]] = lambda _port: []
        self.bound: list[set[int]] = []
        self.volume = Volume()
        self.engine = Iperf3(
            self.clock,
            program=str(tmp_path / "iperf3"),
            root=tmp_path,
            spawn=self.spawn,
            port_fault=lambda _address, _port: self.port_faults.pop(0) if self.port_faults else None,
            affinity=self,
            volume=self.volume,
            visitors=lambda _address, port: self.visitors(port),
        )

    def allowed(self) -> frozenset[int]:
        return frozenset(range(8))

    def set(self, _pid: int, cpus: Set[int]) -> bool:
        self.bound.append({*cpus})
        return True

    def set_octets(self, octets: int) -> None:
        (self.root / "proc/net/dev").write_text(f"titles\ntitles\neth0: {octets} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")

    async def spawn(self, argv: Sequence[str], clock: Clock) -> FakeChild:
        if argv[-1] == "--version":
            return FakeChild(clock, self.version.encode(), 0)
        self.started.append(((clock.monotonic_ns() - BEGIN_NS) // MS, list(argv)))
        self.on_start()
        stdout, length_ms = self.children.pop(0)
        return FakeChild(clock, stdout, length_ms * MS)

    async def _to_the_end(self, task: "asyncio.Task[ThroughputRun]") -> ThroughputRun:
        await self.clock.advance(4 * SECOND)
        assert task.done()
        return task.result()

    async def client(self, slot: Slot | None = None) -> ThroughputRun:
        running = self.engine.run_client(slot or make_slot(), begin_ns=BEGIN_NS, **LIMITS)  # type: ignore[arg-type]
        return await self._to_the_end(asyncio.create_task(running))

    async def server(self, slot: Slot | None = None) -> ThroughputRun:
        begin_ns = BEGIN_NS - 400 * MS
        running = self.engine.run_server(slot or make_slot(), begin_ns=begin_ns, **LIMITS)  # type: ignore[arg-type]
        return await self._to_the_end(asyncio.create_task(running))


def make_slot(**changed: object) -> Slot:
    values: dict[str, object] = {"streams": 2, "duration_ns": SECOND, "congestion_control": "cubic"}
    profile = pb.Profile(**(values | changed))  # type: ignore[arg-type]
    endpoint = pb.Endpoint(node="a", nic="eth0", address="127.0.0.1")
    return Slot(
        slot_id=b"s" * 16,
        group_id=b"g" * 16,
        client=endpoint,
        server=endpoint,
        port=5201,
        profile=profile.SerializeToString(),
        path=b"path",
    )


def gate(run: ThroughputRun, kind: int, phase: int) -> Gate:
    return next(each for each in run.gates if (each.kind, each.phase) == (kind, phase))


# ---------------------------------------------------------------- client


async def test_a_test_that_works(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_050))
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert run.report.receiver_bytes == 12_582_912
    assert run.report.flags == ()
    assert (run.slot_id, run.group_id, run.path, run.port) == (b"s" * 16, b"g" * 16, b"path", 5201)
    assert run.start_time_ns == START_WALL_NS + SECOND
    assert run.end_time_ns - run.start_time_ns == run.elapsed_ns == 1_050 * MS
    assert run.raw_report == OK
    assert not run.raw_report_cut
    assert [each.tripped for each in run.gates] == [False] * 6
    assert [at_ms for at_ms, _ in bench.started] == [0]
    assert bench.engine.version == "3.12"


async def test_a_server_not_ready_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (REFUSED, 5), (BUSY, 5), (OK, 1_050))
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert iperf3.RETRIED in run.report.flags
    assert [at_ms for at_ms, _ in bench.started] == [0, 80, 160]
    assert run.start_time_ns == START_WALL_NS + SECOND + 160 * MS


async def test_a_server_that_never_comes_is_refused_inside_the_margin(tmp_path: Path) -> None:
    bench = Bench(tmp_path, *[(REFUSED, 5)] * 10)
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_REFUSED
    assert run.report.receiver_bytes is None
    assert [at_ms for at_ms, _ in bench.started] == [0, 80, 160, 240]


async def test_a_client_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    run = await Bench(tmp_path, (HANGS, 60_000)).client()
    assert run.report.outcome == pb.RUN_OUTCOME_TIMEOUT
    assert run.report.detail.startswith("ended at its deadline (TERM)")
    assert run.elapsed_ns == 1_400 * MS


async def test_own_traffic_before_the_test_leaves_it_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    task = asyncio.create_task(bench.engine.run_client(make_slot(), begin_ns=BEGIN_NS, **LIMITS))  # type: ignore[arg-type]
    await bench.clock.advance(SECOND // 2)
    bench.set_octets(100_000_000)  # 0.8 Gbit/s over the second
    await bench.clock.advance(SECOND // 2)
    bench.set_octets(130_000_000)  # still 0.8 Gbit/s over the 0.3 s that are left
    await bench.clock.advance(SECOND)
    run = task.result()
    assert run.report.outcome == pb.RUN_OUTCOME_SKIPPED_OWN_TRAFFIC
    before = gate(run, pb.GATE_KIND_OWN_TRAFFIC, pb.GATE_PHASE_BEFORE)
    assert before.value == pytest.approx(0.8)
    assert before.detail == "put off 1 times"
    assert bench.started == []


async def test_own_traffic_that_ends_inside_the_margin_only_puts_the_test_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 500))
    task = asyncio.create_task(bench.engine.run_client(make_slot(), begin_ns=BEGIN_NS, **LIMITS))  # type: ignore[arg-type]
    await bench.clock.advance(SECOND // 2)
    bench.set_octets(100_000_000)
    await bench.clock.advance(3 * SECOND)
    run = task.result()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert iperf3_run.DEFERRED in run.report.flags
    assert gate(run, pb.GATE_KIND_OWN_TRAFFIC, pb.GATE_PHASE_BEFORE).value == 0.0
    assert [at_ms for at_ms, _ in bench.started] == [300]


async def test_own_traffic_during_the_test_trips_the_gate_and_keeps_the_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000))
    bench.on_start = lambda: bench.set_octets(50_000_000)  # 12.6 MB of them are the test's
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    tripped = gate(run, pb.GATE_KIND_OWN_TRAFFIC, pb.GATE_PHASE_DURING)
    assert tripped.tripped
    assert tripped.value == pytest.approx((50 - 12.582912 * 1.1) * 8 / 1000)


async def test_a_test_cut_short_counts_its_warm_up_once(tmp_path: Path) -> None:
    intervals = [{"sum": {"start": 0, "seconds": 1, "bytes": 10_000_000, "omitted": warm}} for warm in (True, False)]
    cut = json.dumps({"start": {}, "intervals": intervals, "error": "the server has terminated"}).encode()
    bench = Bench(tmp_path, (cut, 1_000))
    bench.on_start = lambda: bench.set_octets(50_000_000)
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_FAILED_PARTIAL
    during = gate(run, pb.GATE_KIND_OWN_TRAFFIC, pb.GATE_PHASE_DURING)
    assert during.value == pytest.approx((50 - 20 * 1.1) * 8 / 1000)


async def test_link_and_clock_gates(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000))
    (bench.statistics / "rx_crc_errors").write_text("1\n")

    def trouble() -> None:
        (bench.statistics / "rx_crc_errors").write_text("9\n")
        bench.clock.step(-2 * SECOND)

    bench.on_start = trouble
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert gate(run, pb.GATE_KIND_LINK, pb.GATE_PHASE_AFTER).detail == "rx_crc_errors 1 -> 9"
    assert gate(run, pb.GATE_KIND_CLOCK, pb.GATE_PHASE_AFTER).value == -2 * SECOND
    assert run.elapsed_ns == SECOND


async def test_a_busy_core_trips_the_cpu_gate(tmp_path: Path) -> None:
    loud = OK.replace(b'"host_total":\t2.2562268850667437', b'"host_total":\t99.0')
    run = await Bench(tmp_path, (loud, 1_000)).client()
    assert gate(run, pb.GATE_KIND_TEST_CPU, pb.GATE_PHASE_DURING).tripped


async def test_threads_are_watched_from_3_16_on(tmp_path: Path) -> None:
    """The report's figure is the sum over the threads: 190 % of two streams is no full core."""
    loud = OK.replace(b'"host_total":\t2.2562268850667437', b'"host_total":\t190.0')
    bench = Bench(tmp_path, (loud, 1_000), version="iperf 3.16 (cJSON 1.7.15)")
    thread = tmp_path / "proc/4242/task/4242"
    thread.mkdir(parents=True)
    (thread / "stat").write_text("4242 (iperf3) R" + " 0" * 49)
    run = await bench.client()
    assert gate(run, pb.GATE_KIND_TEST_CPU, pb.GATE_PHASE_DURING).value == 0.0


async def test_case_07_no_result_above_the_port_speed_without_a_flag(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000))
    (bench.statistics.parent / "speed").write_text("10\n")
    assert iperf3_run.EXCEEDS_PORT_SPEED in (await bench.client()).report.flags


async def test_another_congestion_control_than_asked_for_is_flagged(tmp_path: Path) -> None:
    run = await Bench(tmp_path, (OK, 1_000)).client(make_slot(congestion_control="bbr"))
    assert run.report.congestion_control == "cubic"
    assert iperf3_run.CONGESTION_CONTROL_DIFFERS in run.report.flags


async def test_a_long_report_is_kept_up_to_its_limit_and_read_whole(tmp_path: Path) -> None:
    padded = OK + b" " * iperf3_run.MAX_RAW_REPORT_BYTES
    bench = Bench(tmp_path, (padded, 1_000))
    task = asyncio.create_task(bench.engine.run_client(make_slot(), begin_ns=BEGIN_NS, **LIMITS))  # type: ignore[arg-type]
    await bench.clock.advance(4 * SECOND)
    run = await task  # it was read in a thread
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert len(run.raw_report) == iperf3_run.MAX_RAW_REPORT_BYTES
    assert run.raw_report_cut


# ---------------------------------------------------------------- the program


async def test_a_missing_program_names_the_cure(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "iperf3").unlink()
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_ENGINE_MISSING
    assert "apt install iperf3" in run.report.detail
    assert (bench.engine.state().working, bench.engine.state().state) == (False, "iperf3_missing")
    assert (await bench.server()).report.outcome == pb.RUN_OUTCOME_ENGINE_MISSING


async def test_a_program_that_is_installed_later_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000))
    (tmp_path / "iperf3").rename(tmp_path / "away")
    assert (await bench.engine.check()).state == "iperf3_missing"
    (tmp_path / "away").rename(tmp_path / "iperf3")
    assert (await bench.engine.check()).state == "ok"
    assert bench.engine.version == "3.12"


async def test_iperf_2_is_an_unsupported_version(tmp_path: Path) -> None:
    run = await Bench(tmp_path, version="iperf version 2.1.9 (14 March 2023) pthreads").client()
    assert run.report.outcome == pb.RUN_OUTCOME_UNSUPPORTED_VERSION


async def test_a_slot_that_asks_too_much_is_refused(tmp_path: Path) -> None:
    run = await Bench(tmp_path).client(make_slot(duration_ns=SECOND // 2))
    assert run.report.outcome == pb.RUN_OUTCOME_BAD_PARAMETERS
    assert "whole seconds" in run.report.detail


async def test_a_process_that_cannot_start_is_our_fault(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def refuse() -> None:
        raise OSError(11, "Resource temporarily unavailable")

    bench.on_start = refuse
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_AGENT_FAULT
    assert "Resource temporarily unavailable" in run.report.detail


# ---------------------------------------------------------------- server


async def test_the_server_serves_its_client(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (SERVED, 1_500))
    run = await bench.server()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert run.report.receiver_bytes == 12_582_912
    assert run.role == pb.RUN_ROLE_SERVER
    assert [at_ms for at_ms, _ in bench.started] == [-400]
    assert run.strangers == ()


async def test_nobody_came(tmp_path: Path) -> None:
    run = await Bench(tmp_path, (HANGS, 60_000)).server()
    assert run.report.outcome == pb.RUN_OUTCOME_NO_CLIENT
    assert run.report.receiver_bytes is None
    assert run.elapsed_ns == 1_800 * MS


async def test_strangers_are_recorded_and_the_server_opened_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (EMPTY, 10), (STRANGER, 10), (SERVED, 1_300))
    run = await bench.server()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert run.strangers == (iperf3_server.UNKNOWN_STRANGER, "198.51.100.9")
    assert [at_ms for at_ms, _ in bench.started] == [-400, -370, -340]


async def test_only_strangers_came(tmp_path: Path) -> None:
    run = await Bench(tmp_path, (STRANGER, 10), (HANGS, 60_000)).server()
    assert run.report.outcome == pb.RUN_OUTCOME_NO_CLIENT
    assert run.report.receiver_bytes is None
    assert run.strangers == ("198.51.100.9",)


async def test_a_flood_of_strangers_is_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, *[(EMPTY, 0)] * 1_000)
    run = await bench.server()
    assert run.report.outcome == pb.RUN_OUTCOME_NO_CLIENT
    assert len(run.strangers) == iperf3_run.MAX_STRANGERS
    assert len(bench.started) == iperf3_server.MAX_OPENINGS


async def test_the_planned_client_that_gave_up_may_come_again(tmp_path: Path) -> None:
    run = await Bench(tmp_path, (GAVE_UP, 410), (SERVED, 1_100)).server()
    assert run.report.outcome == pb.RUN_OUTCOME_OK


async def test_the_planned_client_that_gave_up_and_did_not_come_again(tmp_path: Path) -> None:
    run = await Bench(tmp_path, (GAVE_UP, 410), (HANGS, 60_000)).server()
    assert run.report.outcome == pb.RUN_OUTCOME_ABORTED
    assert run.report.receiver_bytes is None


async def test_a_client_in_mid_test_at_the_deadline(tmp_path: Path) -> None:
    run = await Bench(tmp_path, (SERVED, 60_000)).server()
    assert run.report.outcome == pb.RUN_OUTCOME_TIMEOUT
    assert run.report.receiver_bytes is None


async def test_a_port_in_use_is_waited_for_and_then_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.port_faults = [(pb.RUN_OUTCOME_PORT_IN_USE, "127.0.0.1 port 5201: Address already in use")] * 1_000
    run = await bench.server()
    assert run.report.outcome == pb.RUN_OUTCOME_PORT_IN_USE
    assert bench.started == []
    assert run.elapsed_ns == pytest.approx(700 * MS, abs=iperf3_server.REOPEN_PAUSE_NS)


async def test_a_port_that_is_freed_in_time_is_used(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (SERVED, 1_300))
    bench.port_faults = [(pb.RUN_OUTCOME_PORT_IN_USE, "in use")] * 5
    assert (await bench.server()).report.outcome == pb.RUN_OUTCOME_OK


async def test_a_port_not_released_is_flagged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (SERVED, 1_300))
    bench.port_faults = [None, (pb.RUN_OUTCOME_PORT_IN_USE, "in use")]
    assert iperf3.PORT_NOT_RELEASED in (await bench.server()).report.flags


# ---------------------------------------------------------------- who holds the server


async def test_a_stranger_that_says_nothing_is_sent_away_and_the_server_opened_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (HANGS, 60_000), (SERVED, 1_300))
    bench.visitors = lambda _port: [Visitor("198.51.100.9", 40_000)] if len(bench.started) == 1 else []
    run = await bench.server()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert run.strangers == ("198.51.100.9",)
    assert [at_ms for at_ms, _ in bench.started] == [-400, -400 + LOOK_NS // MS + 20]


async def test_a_stranger_beside_the_planned_client_is_left_to_iperf3(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (SERVED, 1_300))
    ours = [Visitor("127.0.0.1", port) for port in (40_000, 40_001)]
    bench.visitors = lambda _port: [*ours, Visitor("198.51.100.9", 40_000)]
    run = await bench.server()
    assert (run.report.outcome, run.strangers) == (pb.RUN_OUTCOME_OK, ())


# ---------------------------------------------------------------- several processes


def make_wide_slot(**changed: object) -> Slot:
    slot = make_slot(streams=4, **changed)
    slot.ports = 4
    return slot


async def test_below_3_16_each_stream_has_a_process_and_the_results_are_added(tmp_path: Path) -> None:
    bench = Bench(tmp_path, *[(OK, 1_000)] * 4)
    run = await bench.client(make_wide_slot())
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert (run.processes, run.port) == (4, 5201)
    assert run.report.receiver_bytes == 4 * 12_582_912
    assert run.report.flags == (SEVERAL_PROCESSES,)
    ports = [argv[argv.index("-p") + 1] for _, argv in bench.started]
    assert sorted(ports) == ["5201", "5202", "5203", "5204"]
    assert {argv[argv.index("-P") + 1] for _, argv in bench.started} == {"1"}
    assert run.raw_report.count(b'"test_start"') == 4


async def test_from_3_16_on_one_process_has_them_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000), version="iperf 3.16 (cJSON 1.7.15)")
    run = await bench.client(make_wide_slot())
    assert (run.processes, run.report.flags) == (1, ())
    assert bench.started[0][1][bench.started[0][1].index("-P") + 1] == "4"


async def test_one_process_that_starts_late_is_flagged_and_one_that_fails_leaves_no_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 900), (REFUSED, 200), (OK, 900), (OK, 900), (OK, 900))
    run = await bench.client(make_wide_slot())
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert PROCESSES_APART in run.report.flags
    bench = Bench(tmp_path / "other", (OK, 900), (OK, 900), (OK, 900), (b"", 10))
    run = await bench.client(make_wide_slot())
    assert (run.report.outcome, run.report.receiver_bytes) == (pb.RUN_OUTCOME_FAILED_PARTIAL, None)


async def test_the_server_opens_all_ports_and_shuts_those_that_the_client_did_not_need(tmp_path: Path) -> None:
    """A client of 3.16 comes to the first port alone."""
    bench = Bench(tmp_path, (SERVED, 1_300), (HANGS, 60_000), (HANGS, 60_000), (HANGS, 60_000))
    run = await bench.server(make_wide_slot())
    assert (run.report.outcome, run.processes, run.strangers) == (pb.RUN_OUTCOME_OK, 1, ())
    assert run.report.receiver_bytes == 12_582_912
    assert run.elapsed_ns <= 1_300 * MS + LOOK_NS
    assert len(bench.started) == 4


async def test_a_server_of_several_processes_adds_them_up(tmp_path: Path) -> None:
    run = await Bench(tmp_path, *[(SERVED, 1_300)] * 4).server(make_wide_slot())
    assert (run.report.outcome, run.processes) == (pb.RUN_OUTCOME_OK, 4)
    assert run.report.receiver_bytes == 4 * 12_582_912


async def test_nobody_came_to_any_port(tmp_path: Path) -> None:
    run = await Bench(tmp_path, *[(HANGS, 60_000)] * 4).server(make_wide_slot())
    assert run.report.outcome == pb.RUN_OUTCOME_NO_CLIENT


# ---------------------------------------------------------------- the host beside the test


async def test_the_ports_own_count_over_the_same_seconds_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000))

    def octets(at_ms: int) -> None:
        line = f"eth0: 7 0 0 0 0 0 0 0 {at_ms * 50_000} 0 0 0 0 0 0 0\n"
        (bench.root / "proc/net/dev").write_text(f"titles\ntitles\n{line}")

    task = asyncio.create_task(bench.engine.run_client(make_slot(), begin_ns=BEGIN_NS, **LIMITS))  # type: ignore[arg-type]
    await bench.clock.advance(SECOND - 1)
    for at_ms in range(0, 2_000, 50):
        octets(at_ms)
        await bench.clock.advance(50 * MS)
    run = task.result()
    assert run.port_bytes is not None
    assert run.port_duration_ns == SECOND
    assert run.port_bytes == pytest.approx(50_000_000, rel=0.06)  # 400 Mbit/s, of which the test's are 100


async def test_iperf3_runs_on_the_cpus_of_the_nics_numa_node_where_that_is_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000), (OK, 1_000), (OK, 1_000))
    await bench.client()
    assert bench.bound == []
    run = await Bench.client(bench, make_slot(numa_cpus=True))
    assert iperf3_run.NO_NUMA_CPUS in run.report.flags
    (bench.statistics.parent / "device").mkdir()
    (bench.statistics.parent / "device/numa_node").write_text("1\n")
    (tmp_path / "sys/devices/system/node/node1").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/node1/cpulist").write_text("4-11\n")
    run = await Bench.client(bench, make_slot(numa_cpus=True))
    assert iperf3_run.NO_NUMA_CPUS not in run.report.flags
    assert bench.bound == [{4, 5, 6, 7}]


async def test_a_nic_that_has_carried_enough_today_is_left_alone_whatever_the_plan_says(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000))
    bench.volume.add("eth0", 600_000_000_000, START_WALL_NS)
    run = await bench.client()
    assert run.report.outcome == pb.RUN_OUTCOME_SKIPPED_LIMIT
    assert "bytes over eth0 today" in run.report.detail
    assert bench.started == []


async def test_what_a_test_has_carried_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (OK, 1_000))
    bench.volume.add("eth0", 540_000_000_000 - 125_000_000 - 12_582_911, START_WALL_NS)
    assert (await bench.client()).report.outcome == pb.RUN_OUTCOME_OK
    assert bench.volume.refusal("eth0", 1_000_000_000, pb.Profile(duration_ns=SECOND), START_WALL_NS)
