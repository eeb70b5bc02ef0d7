import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.result import PartState, Report, ThroughputRun
from agent.schedule import FileJournal, Hold, SlotRunner
from agent.schedule.journal import MAX_APPENDED, MAX_FILE_BYTES
from agent.schedule.timing import GATE_LEAD_NS, RUN, WAIT, Skip, decide, slot_times
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION, Plan, Slot
from tests.fakes.clock import START_WALL_NS, FakeClock

MS = 1_000_000
SECOND = 1_000_000_000
CLIENT, SERVER = pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER
MARGIN_NS = 400 * MS


def make_slot(
    number: int, start_s: float, *, client: str = "a", server: str = "b", nic: str = "eth0", reverse: bool = False
) -> Slot:
    profile = pb.Profile(engine=pb.ENGINE_IPERF3, streams=1, duration_ns=SECOND, congestion_control="cubic")
    return Slot(
        slot_id=number.to_bytes(16, "big"),
        start_time_ns=START_WALL_NS + round(start_s * SECOND),
        margin_ns=MARGIN_NS,
        client=pb.Endpoint(node=client, nic=nic, address="192.0.2.1"),
        server=pb.Endpoint(node=server, nic=nic, address="192.0.2.2"),
        port=5201,
        profile=profile.SerializeToString(),
        path=b"path",
        reverse=reverse,
    )


def make_plan(*slots: Slot, expiry_s: float = 86_400, version: int = 1) -> Plan:
    return Plan(
        version=version,
        node="a",
        slot=slots,
        expiry_time_ns=START_WALL_NS + round(expiry_s * SECOND),
        offline_test_grace_ns=6 * 3600 * SECOND,
        own_traffic_limit_ratio=0.2,
    )


class FakeEngine:
    """Runs as long as told; notes what it was asked."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.calls: list[tuple[int, str, float, float]] = []  # slot, role, asked at, begin (s from the start)
        self.fault: Exception | None = None
        self.length_ns = SECOND

    def state(self) -> PartState:
        return PartState("throughput", working=True, state="ok")

    async def run_client(
        self,
        slot: Slot,
        *,
        begin_ns: int,
        last_attempt_ns: int,
        deadline_ns: int,
        own_traffic_limit_ratio: float,
        stop: asyncio.Event,
    ) -> ThroughputRun:
        assert begin_ns < last_attempt_ns < deadline_ns
        assert own_traffic_limit_ratio == 0.2
        return await self._run(slot, CLIENT, "client", begin_ns, stop)

    async def run_server(
        self,
        slot: Slot,
        *,
        begin_ns: int,
        last_attempt_ns: int,
        deadline_ns: int,
        own_traffic_limit_ratio: float,
        stop: asyncio.Event,
    ) -> ThroughputRun:
        assert begin_ns < last_attempt_ns < deadline_ns
        assert own_traffic_limit_ratio == 0.2
        return await self._run(slot, SERVER, "server", begin_ns, stop)

    async def _run(self, slot: Slot, role: int, name: str, begin_ns: int, stop: asyncio.Event) -> ThroughputRun:
        wall_ns = self.clock.wall_ns() - START_WALL_NS
        begin_s = (begin_ns - self.clock.monotonic_ns() + wall_ns) / SECOND
        self.calls.append((int.from_bytes(slot.slot_id, "big"), name, wall_ns / SECOND, round(begin_s, 3)))
        if self.fault is not None:
            raise self.fault
        ending = asyncio.ensure_future(self.clock.sleep_until(begin_ns + self.length_ns))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((ending, stopping), return_when=asyncio.FIRST_COMPLETED)
        outcome = pb.RUN_OUTCOME_OK
        if stop.is_set():
            begun = self.clock.monotonic_ns() >= begin_ns
            outcome = pb.RUN_OUTCOME_ABORTED_PAUSED if begun else pb.RUN_OUTCOME_SKIPPED_PAUSED
        ending.cancel()
        stopping.cancel()
        start_ns = START_WALL_NS + round(begin_s * SECOND)
        return ThroughputRun(
            slot_id=slot.slot_id,
            group_id=b"",
            role=role,
            path=slot.path,
            profile=slot.profile,
            report=Report(outcome=outcome),
            start_time_ns=min(start_ns, self.clock.wall_ns()),
            end_time_ns=self.clock.wall_ns(),
            elapsed_ns=self.length_ns,
            reverse=False,
            port=5201,
        )


class Bench:
    def __init__(self, journal: Path, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.engine = FakeEngine(self.clock)
        self.offline_ns = 0
        self.hold: Hold | None = None
        self.runner = SlotRunner(
            "a",
            self.clock,
            self.engine,
            FileJournal(journal),
            offline_ns=lambda: self.offline_ns,
            hold=lambda: self.hold,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.runner.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(round(seconds * SECOND))

    def outcomes(self) -> list[tuple[int, int]]:
        return [(int.from_bytes(run.slot_id, "big"), run.report.outcome) for run in self.runner.drain()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "slots")


# ---------------------------------------------------------------- when


def test_when_each_end_acts() -> None:
    slot = make_slot(1, 10)
    client, server = slot_times(slot, CLIENT), slot_times(slot, SERVER)
    start_ns = slot.start_time_ns
    assert client.act_ns == start_ns - GATE_LEAD_NS
    assert client.begin_ns == start_ns
    assert server.begin_ns == start_ns - MARGIN_NS
    assert server.act_ns == start_ns - MARGIN_NS - GATE_LEAD_NS
    assert client.last_attempt_ns == start_ns + 300 * MS
    assert client.deadline_ns == server.deadline_ns == start_ns + SECOND + MARGIN_NS


def test_a_slot_that_cannot_be_timed() -> None:
    slot = make_slot(1, 10)
    slot.margin_ns = 400 * SECOND
    with pytest.raises(ValueError, match="at most"):
        slot_times(slot, CLIENT)
    slot.profile = b"\xff"
    with pytest.raises(ValueError, match="profile"):
        slot_times(slot, CLIENT)


@pytest.mark.parametrize(
    ("at_s", "changed", "expected"),
    [
        (9.699, {}, WAIT),
        (9.7, {}, RUN),
        (10.4, {}, RUN),
        (10.401, {}, pb.RUN_OUTCOME_SKIPPED_MISSED_START),
        (9.7, {"expiry_ns": START_WALL_NS + 10 * SECOND}, pb.RUN_OUTCOME_SKIPPED_PLAN_EXPIRED),
        (9.7, {"expiry_ns": START_WALL_NS + 10 * SECOND + 1}, RUN),
        (9.7, {"offline_ns": 60 * SECOND}, RUN),
        (9.7, {"offline_ns": 60 * SECOND + 1}, pb.RUN_OUTCOME_SKIPPED_PLAN_EXPIRED),
        (9.9, {"nic_busy": True}, WAIT),
        (10.0, {"nic_busy": True}, pb.RUN_OUTCOME_SKIPPED_OVERLAP),
    ],
)
def test_what_is_done_with_a_slot(at_s: float, changed: dict[str, object], expected: object) -> None:
    given: dict[str, object] = {
        "expiry_ns": START_WALL_NS + 3600 * SECOND,
        "offline_ns": 0,
        "offline_grace_ns": 60 * SECOND,
        "nic_busy": False,
    }
    times = slot_times(make_slot(1, 10), CLIENT)
    verdict = decide(times, START_WALL_NS + round(at_s * SECOND), **(given | changed))  # type: ignore[arg-type]
    assert (verdict.outcome if isinstance(verdict, Skip) else verdict) == expected


# ---------------------------------------------------------------- running


async def test_client_and_server_slots_run_at_their_times(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10), make_slot(2, 20, client="b", server="a"), make_slot(3, 5)))
    async with bench.running():
        await bench.advance(30)
        assert bench.engine.calls == [(3, "client", 4.7, 5.0), (1, "client", 9.7, 10.0), (2, "server", 19.3, 19.6)]
        assert bench.outcomes() == [(3, pb.RUN_OUTCOME_OK), (1, pb.RUN_OUTCOME_OK), (2, pb.RUN_OUTCOME_OK)]


async def test_slots_of_others_are_not_ours(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10, client="c", server="d")))
    async with bench.running():
        await bench.advance(30)
    assert bench.engine.calls == []
    assert bench.runner.drain() == []


async def test_two_nics_at_once_and_the_overlap_gate_is_clear(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10), make_slot(2, 10, nic="eth1")))
    async with bench.running():
        await bench.advance(10.5)
        assert bench.runner.earliest_running_ns() == START_WALL_NS + 9_700 * MS
        await bench.advance(1)
        runs = bench.runner.drain()
        assert [run.report.outcome for run in runs] == [pb.RUN_OUTCOME_OK] * 2
        gates = [gate for run in runs for gate in run.gates]
        clear = [(kind, False, 0.0) for kind in (pb.GATE_KIND_OVERLAP, pb.GATE_KIND_BURST)]
        assert [(gate.kind, gate.tripped, gate.value) for gate in gates] == clear * 2
        assert bench.runner.earliest_running_ns() is None


async def test_case_36_tests_that_collide_on_a_nic_are_not_both_run(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10), make_slot(2, 10.5)))
    async with bench.running():
        await bench.advance(20)
        assert bench.outcomes() == [(2, pb.RUN_OUTCOME_SKIPPED_OVERLAP), (1, pb.RUN_OUTCOME_OK)]
    assert [call[0] for call in bench.engine.calls] == [1]


async def test_the_next_slot_waits_for_the_nic_until_its_start(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10), make_slot(2, 11.1)))  # acts at 10.8, the first ends at 11.0
    async with bench.running():
        await bench.advance(20)
        assert bench.outcomes() == [(1, pb.RUN_OUTCOME_OK), (2, pb.RUN_OUTCOME_OK)]
    assert bench.engine.calls[1][2] == 11.0


async def test_a_missed_start_is_recorded_not_run(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    await bench.advance(10.401)
    async with bench.running():
        await bench.advance(1)
        assert bench.outcomes() == [(1, pb.RUN_OUTCOME_SKIPPED_MISSED_START)]
    assert bench.engine.calls == []


async def test_a_late_start_inside_the_margin_runs(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    await bench.advance(10.3)
    async with bench.running():
        await bench.advance(2)
        assert bench.outcomes() == [(1, pb.RUN_OUTCOME_OK)]


async def test_an_expired_plan_runs_nothing(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10), make_slot(2, 20), expiry_s=15))
    async with bench.running():
        await bench.advance(30)
        assert bench.outcomes() == [(1, pb.RUN_OUTCOME_OK), (2, pb.RUN_OUTCOME_SKIPPED_PLAN_EXPIRED)]


async def test_too_long_away_from_the_collector_runs_nothing(bench: Bench) -> None:
    bench.offline_ns = 6 * 3600 * SECOND + 1
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    async with bench.running():
        await bench.advance(30)
        runs = bench.runner.drain()
    assert [run.report.outcome for run in runs] == [pb.RUN_OUTCOME_SKIPPED_PLAN_EXPIRED]
    assert "offline_test_grace" in runs[0].report.detail


async def test_a_plan_sent_again_runs_nothing_twice(bench: Bench) -> None:
    plan = make_plan(make_slot(1, 10), make_slot(2, 20))
    bench.runner.set_plan(plan)
    async with bench.running():
        await bench.advance(10.5)
        bench.runner.set_plan(plan)  # the first is running
        await bench.advance(1)
        bench.runner.set_plan(plan)  # and over
        await bench.advance(20)
        assert bench.outcomes() == [(1, pb.RUN_OUTCOME_OK), (2, pb.RUN_OUTCOME_OK)]


async def test_a_slot_that_moved_runs_at_its_new_time(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    async with bench.running():
        await bench.advance(1)
        bench.runner.set_plan(make_plan(make_slot(1, 15)))
        await bench.advance(20)
    assert bench.engine.calls == [(1, "client", 14.7, 15.0)]


async def test_a_withdrawn_slot_is_recorded_by_its_client_only(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10), make_slot(2, 20, client="b", server="a")))
    async with bench.running():
        await bench.advance(1)
        bench.runner.set_plan(make_plan(version=2))
        await bench.advance(30)
        assert bench.outcomes() == [(1, pb.RUN_OUTCOME_SKIPPED_WITHDRAWN)]
        assert bench.engine.calls == []


async def test_a_fault_in_one_slot_stops_no_other(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.engine.fault = RuntimeError("no such luck")
    bench.runner.set_plan(make_plan(make_slot(1, 10), make_slot(2, 20)))
    async with bench.running():
        await bench.advance(15)
        bench.engine.fault = None
        await bench.advance(15)
        runs = bench.runner.drain()
    assert [run.report.outcome for run in runs] == [pb.RUN_OUTCOME_AGENT_FAULT, pb.RUN_OUTCOME_OK]
    assert runs[0].report.detail == "RuntimeError: no such luck"
    assert bench.runner.faults == 1
    assert bench.runner.state().detail == "faults 1"
    assert "no such luck" in caplog.text


async def test_a_slot_that_cannot_be_read_is_recorded(bench: Bench) -> None:
    bad_profile, bad_id = make_slot(1, 10), make_slot(2, 10)
    bad_profile.profile, bad_id.slot_id = b"\xff", b"short"
    bench.runner.set_plan(make_plan(bad_profile, bad_id))
    assert [run.report.outcome for run in bench.runner.drain()] == [pb.RUN_OUTCOME_BAD_PARAMETERS] * 2


async def test_a_clock_set_forward_is_noticed(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 100)))
    async with bench.running():
        await bench.advance(1)
        bench.clock.step(98 * SECOND)
        await bench.advance(3)
    assert [call[:2] for call in bench.engine.calls] == [(1, "client")]


async def test_stopping_the_agent_records_what_ran(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    async with bench.running():
        await bench.advance(10.5)
    runs = bench.runner.drain()
    assert [run.report.outcome for run in runs] == [pb.RUN_OUTCOME_ABORTED]
    assert runs[0].start_time_ns == START_WALL_NS + 9_700 * MS


# ---------------------------------------------------------------- through a restart


async def test_a_crash_in_mid_slot_is_recorded_and_the_slot_not_run_again(tmp_path: Path) -> None:
    clock, plan = FakeClock(), make_plan(make_slot(1, 10), make_slot(2, 20))
    before = Bench(tmp_path / "slots", clock)
    before.runner.set_plan(plan)
    async with before.running():
        await before.advance(10.1)
        after = Bench(tmp_path / "slots", clock)  # as the disk is right now
    after.runner.set_plan(plan)
    async with after.running():
        await after.advance(20)
        runs = after.runner.drain()
    assert [(run.slot_id[-1], run.report.outcome) for run in runs] == [
        (1, pb.RUN_OUTCOME_ABORTED),
        (2, pb.RUN_OUTCOME_OK),
    ]
    assert runs[0].start_time_ns == START_WALL_NS + 9_700 * MS
    assert [call[0] for call in after.engine.calls] == [2]


async def test_a_crash_before_the_record_was_kept_leaves_no_slot_without_one(tmp_path: Path) -> None:
    clock, plan = FakeClock(), make_plan(make_slot(1, 10))
    before = Bench(tmp_path / "slots", clock)
    before.runner.set_plan(plan)
    async with before.running():
        await before.advance(11.1)
        assert before.outcomes() == [(1, pb.RUN_OUTCOME_OK)]  # and the agent is gone before the spool has it
    assert Bench(tmp_path / "slots", clock).outcomes() == [(1, pb.RUN_OUTCOME_ABORTED)]


async def test_what_was_kept_is_not_recorded_again_after_a_restart(tmp_path: Path) -> None:
    clock, plan = FakeClock(), make_plan(make_slot(1, 10), make_slot(2, 12, nic="eth1"))
    for expected in ([(1, pb.RUN_OUTCOME_OK)], [(2, pb.RUN_OUTCOME_SKIPPED_MISSED_START)], []):
        bench = Bench(tmp_path / "slots", clock)
        bench.runner.set_plan(plan)
        async with bench.running():
            await bench.advance(11.1 if expected == [(1, pb.RUN_OUTCOME_OK)] else 0.1)
            assert bench.outcomes() == expected
            bench.runner.kept()
        await clock.advance(5 * SECOND)


def test_a_torn_or_foreign_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    journal = FileJournal(path)
    journal.begun(make_slot(1, 10), CLIENT, 5)
    journal.begun(make_slot(2, 10), CLIENT, 6)
    journal.done([((make_slot(1, 10).slot_id, CLIENT), make_slot(1, 10).start_time_ns)])
    with path.open("a") as file:
        file.write('{"done": "00", "role": 1, "time": Infinity}\n' + "[" * 100_000 + "\n")
        file.write('{"done": 7}\nnonsense\n{"begun": "zz", "role": 1, "time": 1}\n[]\n{"begun": "0a10')
    state = FileJournal(path).load(START_WALL_NS)
    assert [(entry.slot.slot_id[-1], entry.time_ns) for entry in state.begun] == [(2, 6)]
    assert [key[0][-1] for key in state.done] == [1]
    assert FileJournal(path).load(START_WALL_NS + 3 * 86_400 * SECOND).done == {}


def test_a_journal_does_not_grow_for_ever_and_keeps_what_is_newest(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "slots")
    old, new = make_slot(1, 10), make_slot(2, 3 * 86_400)
    for _ in range(MAX_APPENDED):
        journal.done([((old.slot_id, CLIENT), old.start_time_ns)])
    journal.begun(new, CLIENT, new.start_time_ns)  # the old one is three days ago
    assert len((tmp_path / "slots").read_text().splitlines()) == 1
    with (tmp_path / "slots").open("r+b") as file:
        lines = file.read()
        file.truncate(0)
        file.seek(MAX_FILE_BYTES)  # more than is read stands before them
        file.write(b"\n" + lines)
    assert [entry.slot for entry in FileJournal(tmp_path / "slots").load(new.start_time_ns).begun] == [new]


def test_a_journal_that_cannot_be_written_is_counted_and_stops_nothing(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "missing" / "slots")
    assert journal.load(0).begun == ()
    journal.begun(make_slot(1, 10), CLIENT, 5)
    assert journal.faults == 2


async def test_no_plan_is_a_state(bench: Bench) -> None:
    assert bench.runner.state().state == "no_plan"


# ---------------------------------------------------------------- held

BURST = Hold("checkpoint of job llm (user 7)", count=2)
PAUSE = Hold("paused here", paused=True)


@pytest.mark.parametrize(
    ("hold", "outcome"), [(BURST, pb.RUN_OUTCOME_SKIPPED_BURST), (PAUSE, pb.RUN_OUTCOME_SKIPPED_PAUSED)]
)
async def test_no_test_begins_while_held_and_the_slot_is_recorded_as_skipped(
    bench: Bench, hold: Hold, outcome: int
) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    bench.hold = hold
    async with bench.running():
        await bench.advance(9.9)
        assert bench.outcomes() == []  # waited for until the start
        await bench.advance(0.2)
    (run,) = bench.runner.drain()
    assert (run.report.outcome, run.report.detail) == (outcome, hold.detail)
    assert bench.engine.calls == []
    gates = [(gate.kind, gate.phase, gate.tripped, gate.value) for gate in run.gates]
    assert gates == ([] if hold.paused else [(pb.GATE_KIND_BURST, pb.GATE_PHASE_BEFORE, True, 2.0)])


async def test_a_test_begins_when_what_held_it_ends_in_time(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    bench.hold = BURST
    async with bench.running():
        await bench.advance(9.8)
        bench.hold = None
        await bench.advance(2)
    assert bench.outcomes() == [(1, pb.RUN_OUTCOME_OK)]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("hold", "outcome"), [(BURST, pb.RUN_OUTCOME_ABORTED_BURST), (PAUSE, pb.RUN_OUTCOME_ABORTED_PAUSED)]
)
async def test_a_running_test_is_stopped_at_once_when_told_and_within_a_tenth_of_a_second_when_not(
    bench: Bench, hold: Hold, outcome: int, told: bool
) -> None:
    bench.engine.length_ns = 10 * SECOND
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    async with bench.running():
        await bench.advance(13)
        bench.hold = hold
        if told:
            bench.runner.look()
        await bench.advance(0.001 if told else 0.1)
        (run,) = bench.runner.drain()
    assert run.report.outcome == outcome
    assert run.report.detail.startswith(hold.detail)
    assert run.end_time_ns - START_WALL_NS <= 13_100 * MS
    tripped = [gate.kind for gate in run.gates if gate.tripped]
    assert tripped == ([] if hold.paused else [pb.GATE_KIND_BURST])


async def test_a_test_stopped_before_it_began_is_skipped_not_failed(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    async with bench.running():
        await bench.advance(9.8)  # its gates are read
        bench.hold = BURST
        await bench.advance(0.1)
    assert bench.outcomes() == [(1, pb.RUN_OUTCOME_SKIPPED_BURST)]


async def test_a_test_that_ends_by_itself_as_a_burst_opens_keeps_its_result_and_the_gate_trips(bench: Bench) -> None:
    bench.runner.set_plan(make_plan(make_slot(1, 10)))
    async with bench.running():
        await bench.advance(10.5)
        (planned,) = bench.runner._running.values()
        planned.hold = BURST
        await bench.advance(1)
    (run,) = bench.runner.drain()
    assert run.report.outcome == pb.RUN_OUTCOME_OK
    assert [gate.kind for gate in run.gates if gate.tripped] == [pb.GATE_KIND_BURST]


async def test_which_nics_carry_a_test_of_ours_and_for_how_long_counters_show_it(bench: Bench) -> None:
    bench.runner.set_plan(
        make_plan(
            make_slot(1, 10),
            make_slot(2, 10, nic="eth1", reverse=True),
            make_slot(3, 10, nic="eth2", client="b", server="a"),
        )
    )
    async with bench.running():
        await bench.advance(9)
        assert bench.runner.loads() == set()
        await bench.advance(1.5)
        loads = {("eth0", "transmit"), ("eth1", "receive"), ("eth2", "receive")}
        assert bench.runner.loads() == loads
        await bench.advance(1)
        assert bench.runner.earliest_running_ns() is not None
        assert bench.runner.loads() == loads
        await bench.advance(11)
        assert bench.runner.loads() == set()


async def test_slots_of_one_contention_group_run_side_by_side_on_one_nic_and_others_do_not(bench: Bench) -> None:
    def grouped(number: int, *, client: str, server: str, group: bytes) -> Slot:
        slot = make_slot(number, 10, client=client, server=server)
        slot.group_id, slot.purpose = group, SLOT_PURPOSE_CONTENTION
        return slot

    ring = [grouped(1, client="a", server="b", group=b"g" * 16), grouped(2, client="c", server="a", group=b"g" * 16)]
    bench.runner.set_plan(make_plan(*ring, grouped(3, client="a", server="d", group=b"h" * 16)))
    async with bench.running():
        await bench.advance(20)
        runs = bench.runner.drain()
    outcomes = {int.from_bytes(run.slot_id, "big"): run.report.outcome for run in runs}
    assert outcomes == {1: pb.RUN_OUTCOME_OK, 2: pb.RUN_OUTCOME_OK, 3: pb.RUN_OUTCOME_SKIPPED_OVERLAP}
    assert not any(gate.tripped for run in runs for gate in run.gates if gate.kind == pb.GATE_KIND_OVERLAP)
