"""One night and evening in two racks with everything going wrong that may: the collector and an agent are killed,
iperf3 is missing for a while, and after the windows a host loses packets. The verdict must be that of a quiet run.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from bandwitness.chain import header_hash
from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, GAP_REASON_RESTART
from grafana.make_dashboards import DASHBOARDS
from tests.fakes.dashboards import empty_panels, prometheus
from tests.lab import verdict
from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.evening import MOST_TIMEOUTS
from tests.lab.evidence import LoggedBatch, SpoolTip, by_chain, logged, spool_tips
from tests.lab.faults import CompetingTenant, loss_at_host
from tests.lab.installation import Installation, wait_until
from tests.lab.lab import Lab, wait_for
from tests.lab.topology import Tenant, Topology, oversold_by_seed

pytestmark = pytest.mark.timeout(600)

SEED = 1
RACKS = {"r1": 2, "r2": 2}
KILLED = "gpu-r1-02"
WITHOUT_IPERF3 = "gpu-r2-02"
LOSSY = "gpu-r1-01"
MEASURING = Measuring(seed=SEED, planned=4, min_tests=2)  # what the faults cost must not cost the verdict
Item = Mapping[str, Any]


@dataclass
class Story:
    """What was seen, and when things were done (seconds since the epoch)."""

    topology: Topology
    evening: Evening
    disturbed: list[tuple[str, float, float]] = field(default_factory=list)  # node or "", from, to
    timetable: Sequence[Item] = ()
    accounting: Sequence[Item] = ()
    paths: Sequence[Item] = ()
    paths_again: Sequence[Item] = ()  # judged anew from the log alone
    incidents: Sequence[Item] = ()
    loss_opened: Sequence[Item] = ()
    loss_closed: Sequence[Item] = ()
    metrics: str = ""
    batches: Sequence[LoggedBatch] = ()
    empty_panels: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by dashboard: titles
    tips: Mapping[str, Mapping[int, SpoolTip]] = field(default_factory=dict)

    def is_disturbed(self, slot: Item) -> bool:
        start, end = opening(slot), seconds(slot["end_time"])
        nodes = {"", slot["client"]["node"], slot["server"]["node"]}
        # What a killed agent had not sealed yet goes with it: up to a flush before.
        return any(node in nodes and start < to and end > since - 2 for node, since, to in self.disturbed)


def seconds(time_text: str) -> float:
    return datetime.fromisoformat(time_text[:26].rstrip("Z") + "+00:00").timestamp()


def opening(slot: Item) -> float:
    """When the server of a test is opened, in seconds since the epoch."""
    return seconds(slot["start_time"]) - float(slot["margin_ns"]) / 1e9


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    topology = Topology(RACKS, tenant=Tenant(oversold_by_seed(SEED, list(RACKS))))
    length_s = window_s(topology, MEASURING)
    evening = Evening.starting_at(int(time.time()) + 14, window_s=length_s, between_s=6)
    story = Story(topology, evening)
    with (
        Lab(topology) as lab,
        Installation(lab, tmp_path_factory.mktemp("e2e"), evening, MEASURING) as installation,
        ExitStack() as stack,
    ):
        tenant = CompetingTenant(lab)
        installation.start_collector()
        installation.start_agents()
        scraping = stack.enter_context(prometheus(tmp_path_factory.mktemp("prometheus"), installation.port, scrapes=1))
        _night(installation, story)
        tenant.start()
        _evening(installation, story)
        installation.wait_until_decided(within=40, one_end=story.is_disturbed)
        assert tenant.is_on()
        tenant.stop()
        _keep_what_the_collector_says(installation, story)
        since_s = time.time() - evening.night_start_s
        story.empty_panels = {board["uid"]: empty_panels(scraping, board, since_s) for board in DASHBOARDS}
        _lose_packets(installation, story)
        _judge_again(installation, story)
        _end(installation, story)
        yield story


def _night(installation: Installation, story: Story) -> None:
    evening = installation.evening
    wait_until(evening.night_start_s + 15, installation)
    mine = [slot for slot in installation.timetable() if slot["client"]["node"] == KILLED]
    in_it, missed = [slot for slot in mine if opening(slot) > time.time() + 1][:2]
    wait_until(seconds(in_it["start_time"]) + 0.5, installation)
    began = time.time()
    installation.kill_agent(KILLED)
    wait_for("the collector to see it", lambda: KILLED not in installation.connected(), within=10)
    wait_until(seconds(missed["end_time"]), installation)
    installation.start_agent(KILLED)
    wait_for("the agent to come back", lambda: KILLED in installation.connected(), within=20)
    story.disturbed.append((KILLED, began, time.time()))

    slots = [slot for slot in installation.timetable() if seconds(slot["start_time"]) > time.time() + 2]
    installation.kill_collector()
    wait_until(seconds(slots[3]["end_time"]), installation)  # four tests pass unseen
    installation.start_collector()
    wait_for("all agents to come back", lambda: len(installation.connected()) == 4, within=30)
    wait_until(evening.night_end_s, installation)


def _evening(installation: Installation, story: Story) -> None:
    evening = installation.evening
    wait_until(evening.evening_start_s + 20, installation)
    began = time.time()
    installation.hide_iperf3(WITHOUT_IPERF3)

    def failed_as_client_and_server() -> bool:
        failed = [slot for slot in installation.timetable() if slot["category"] == "failed"]
        later = [slot for slot in failed if seconds(slot["start_time"]) > began]
        return {"client", "server"} <= {end for slot in later for end in _ends(slot, WITHOUT_IPERF3)}

    wait_for("tests to fail for want of iperf3", failed_as_client_and_server, within=40)
    installation.show_iperf3(WITHOUT_IPERF3)
    story.disturbed.append((WITHOUT_IPERF3, began, time.time()))
    wait_until(evening.evening_end_s, installation)


def _ends(slot: Item, node: str) -> list[str]:
    return [end for end in ("client", "server") if slot[end]["node"] == node]


def _keep_what_the_collector_says(installation: Installation, story: Story) -> None:
    story.timetable = installation.timetable()
    story.accounting = installation.accounting()
    story.paths = installation.throughput_paths()
    story.incidents = installation.incidents()
    story.metrics = installation.metrics()


def _lose_packets(installation: Installation, story: Story) -> None:
    def opened() -> list[Item]:
        known = {incident["incident_id"] for incident in story.incidents}
        return [incident for incident in installation.incidents("loss") if incident["incident_id"] not in known]

    with loss_at_host(installation.lab, LOSSY, 0.1):
        wait_for("a loss incident", lambda: bool(opened()), within=60, every=0.5)
        story.loss_opened = opened()
    wait_for(
        "the loss incidents to close",
        lambda: not installation.incidents("loss", active=True),
        within=150,
        every=0.5,
    )
    story.loss_closed = opened()


def _judge_again(installation: Installation, story: Story) -> None:
    """Without the store the collector has only its log to judge from."""
    installation.kill_collector()
    for file in installation.collector_state.glob("store.sqlite*"):
        file.unlink()
    installation.start_collector()
    installation.wait_until_decided(within=60, one_end=story.is_disturbed)

    def as_before() -> bool:
        story.paths_again = installation.throughput_paths()
        return [path["throughput"] for path in story.paths_again] == [path["throughput"] for path in story.paths]

    wait_for("the same verdicts from the log alone", as_before, within=30, every=0.5)


def _end(installation: Installation, story: Story) -> None:
    wait_for("all agents to come back", lambda: len(installation.connected()) == 4, within=30)
    installation.stop_agents()
    installation.stop_collector()
    story.batches = logged(installation.collector_state)
    story.tips = {host.name: spool_tips(installation.agent_state(host.name)) for host in story.topology.hosts}


# ---------------------------------------------------------------- the verdict


def test_cross_rack_paths_are_flagged_and_in_rack_paths_are_not(story: Story) -> None:
    document = verdict.document(story.paths, story.incidents, 0)
    assert verdict.faults(document["paths"], story.incidents, story.topology) == []
    for path in document["paths"]:
        assert path["flagged"] or abs(path["swing_ratio"]) < 0.15, path


def test_the_verdict_from_the_log_alone_is_the_same(story: Story) -> None:
    assert [path["throughput"] for path in story.paths_again] == [path["throughput"] for path in story.paths]


def test_no_gate_trips_where_nothing_was_disturbed(story: Story) -> None:
    calm = [slot for slot in story.timetable if not story.is_disturbed(slot)]
    assert len(calm) > 60
    timed_out = [slot for slot in calm if verdict.is_the_tenants_doing(slot, story.topology)]
    assert len(timed_out) <= MOST_TIMEOUTS, timed_out
    for slot in calm:
        if slot in timed_out:
            continue
        said = [(slot[end] or {}).get("outcome_detail") for end in ("client_run", "server_run")]
        assert slot["category"] == "ok", (slot["outcome"], said, slot)
        for end in ("client_run", "server_run"):
            assert slot[end] is not None, slot
            assert not slot[end]["gates_tripped"], slot[end]
            assert set(slot[end]["flags"]) <= {"several_processes"}, slot[end]


# ---------------------------------------------------------------- every attempt is a record


def test_accounting_adds_up(story: Story) -> None:
    assert len(story.accounting) == 24  # 12 pairs, two windows
    for row in story.accounting:
        assert row["pending"] == 0, row
        assert row["planned"] == MEASURING.planned, row
        assert row["planned"] == row["ok"] + row["failed"] + row["skipped"] + row["lost"], row
        assert sum(row["outcomes"].values()) == row["planned"], row
    by_category = Counter(slot["category"] for slot in story.timetable)
    assert by_category == Counter(
        {
            name: count
            for name in ("ok", "failed", "skipped", "lost")
            if (count := sum(row[name] for row in story.accounting))
        }
    )


def test_a_missing_iperf3_is_an_outcome_and_never_0_bits_per_second(story: Story) -> None:
    _, since, to = next(entry for entry in story.disturbed if entry[0] == WITHOUT_IPERF3)
    failed = [
        slot
        for slot in story.timetable
        if slot["category"] == "failed" and since < seconds(slot["start_time"]) < to and _ends(slot, WITHOUT_IPERF3)
        if not verdict.is_the_tenants_doing(slot, story.topology)
    ]
    assert {end for slot in failed for end in _ends(slot, WITHOUT_IPERF3)} == {"client", "server"}
    for slot in failed:
        as_client = slot["client"]["node"] == WITHOUT_IPERF3
        assert slot["outcome"] == ("engine_missing" if as_client else "refused"), slot
        assert slot["client_run"]["throughput_bps"] is None, slot
        if not as_client and slot["server_run"] is not None:
            assert slot["server_run"]["outcome"] == "engine_missing", slot
    for slot in story.timetable:
        for end in ("client_run", "server_run"):
            if slot[end] is not None:
                assert slot[end]["throughput_bps"] is None or slot[end]["throughput_bps"] > 0, slot
    rates = [line for line in story.metrics.splitlines() if "throughput_bytes_per_second{" in line]
    assert rates
    assert all(float(line.rpartition(" ")[2]) > 0 for line in rates)


def test_verdicts_come_from_the_tests_that_are_ok_and_from_no_others(story: Story) -> None:
    for path in story.paths:
        figures = path["throughput"]
        for window in ("offpeak", "peak"):
            of_path = (slot for slot in story.timetable if slot["path_id"] == path["path_id"])
            ok = [slot for slot in of_path if (slot["window"], slot["category"]) == (window, "ok")]
            assert figures[f"tests_{window}"] <= len(ok), (path, window)
            counted = [slot["client_run"]["throughput_bps"] for slot in ok if not slot["left_out"]]
            assert figures[f"tests_{window}"] == len(counted), (path, window, ok)
            assert figures[f"{window}_bps"] == pytest.approx(statistics.median(counted)), (path, window)
    # Among them are paths of which tests failed for want of iperf3.
    failed = {slot["path_id"] for slot in story.timetable if slot["category"] == "failed" and slot["window"] == "peak"}
    assert any(path["path_id"] in failed and WITHOUT_IPERF3 in (path["src"], path["dst"]) for path in story.paths)


def test_the_killed_agent_accounts_for_its_tests(story: Story) -> None:
    _, since, to = next(entry for entry in story.disturbed if entry[0] == KILLED)
    own = [slot for slot in story.timetable if slot["client"]["node"] == KILLED]
    in_it = next(slot for slot in own if seconds(slot["start_time"]) < since < seconds(slot["end_time"]))
    missed = next(slot for slot in own if since < opening(slot) and seconds(slot["end_time"]) <= to)
    for slot in (in_it, missed):
        assert slot["category"] in ("failed", "skipped", "lost"), slot
        assert slot["client_run"] is None or slot["client_run"]["throughput_bps"] is None, slot


# ---------------------------------------------------------------- loss and delay


def test_a_fabric_accuses_nothing_of_loss_or_delay_before_the_tenant_comes(story: Story) -> None:
    """Of delay that says little here: there is no quiet stretch from which the rule could know what is usual.
    ``test_end_to_end_no_tenant.py`` has one."""
    for incident in story.incidents:
        if incident["rule"] not in ("loss", "delay"):
            continue
        # Beside the tenant the shared uplink does queue and drop; that may be said, of it and from then on only.
        assert seconds(incident["opened_time"]) >= story.evening.night_end_s, incident
        assert incident["element"]["kind"] in ("path", "pair", "rack_pair", "uplink", "fabric"), incident


def test_ten_per_cent_loss_at_a_host_opens_an_incident_that_closes_again(story: Story) -> None:
    assert any(
        LOSSY in str(incident["element"]) or LOSSY in str(incident["children"]) for incident in story.loss_opened
    )
    assert story.loss_closed
    assert all(incident["closed_time"] is not None for incident in story.loss_closed)


def test_an_agent_that_is_back_within_seconds_is_not_called_silent(story: Story) -> None:
    assert [incident for incident in story.incidents if incident["rule"] == "agent_silent"] == []


# ---------------------------------------------------------------- no batch lost, none doubled


def test_every_batch_is_in_the_log_exactly_once(story: Story) -> None:
    assert [batch for batch in story.batches if batch.quarantine] == []
    for chain, batches in by_chain(story.batches).items():
        sequence = sorted(batch.header.seq for batch in batches)
        assert sequence == list(range(1, len(sequence) + 1)), chain


def test_every_chain_is_linked_from_its_first_header_to_its_last(story: Story) -> None:
    for chain, batches in by_chain(story.batches).items():
        before = b""
        for batch in sorted(batches, key=lambda batch: batch.header.seq):
            assert batch.header.previous_header_hash == before, chain
            before = header_hash(batch.header_bytes)


def test_what_an_agent_sealed_is_in_the_log_or_still_in_its_spool(story: Story) -> None:
    chains = {
        (chain.agent, chain.batch_class, chain.chain_id): {batch.header.seq for batch in batches}
        for chain, batches in by_chain(story.batches).items()
        if chain.batch_class != BATCH_CLASS_CONTROL
    }
    assert len(chains) == 2 * len(story.tips)  # evidence and telemetry of each agent
    for agent, tips in story.tips.items():
        for batch_class, tip in tips.items():
            held = chains[agent, batch_class, tip.chain_id]
            assert set(range(1, tip.acknowledged + 1)) <= held
            assert held | set(tip.waiting) == set(range(1, tip.seq + 1))


def test_the_killed_agent_goes_on_in_its_chain_and_says_what_is_missing(story: Story) -> None:
    own = [batch for batch in story.batches if batch.chain.agent == KILLED]
    assert len({batch.chain.chain_id for batch in own}) == len({batch.chain.batch_class for batch in own}) == 2
    assert len({batch.header.run_id for batch in own}) == 2
    gaps = [record.gap for batch in own for record in batch.records() if record.WhichOneof("kind") == "gap"]
    restarts = [gap for gap in gaps if gap.reason == GAP_REASON_RESTART]
    assert restarts
    _, since, to = next(entry for entry in story.disturbed if entry[0] == KILLED)
    for gap in restarts:
        assert since - 5 < gap.from_time_ns / 1e9 <= gap.to_time_ns / 1e9 < to + 5
    others = {batch.chain.agent for batch in story.batches for record in batch.records() if record.HasField("gap")}
    assert others == {KILLED}


# What this lab has nothing of: targets with carriers, STAMP, RDMA, priorities that pause, a clock that somebody keeps;
# and what by then was in order. Bursts have a lab and a dashboard of their own.
NOTHING_TO_SHOW: Mapping[str, set[str]] = {
    "bandwitness-fleet": {"Carriers 运营商线路", "What does not work on agents agent 上不工作的部分"},
    "bandwitness-path": {"Loss there and back 去程与回程丢包"},
    "bandwitness-oversubscription": set(),
    "bandwitness-nics": {"Errors and drops 错误与丢弃", "Discards 丢弃", "ECN and CNP 拥塞通知", "Paused 流控暂停"},
    "bandwitness-itself": {
        "Clock error of agents 时钟误差上限",
        "What does not work 不工作的部分",
        "Refused and quarantined 拒绝与隔离",
        "Doubtful self-checks 存疑的自检",
        "Enrolment 注册与冲突",
        "Certificates 证书剩余时间",
        *(
            f"Remote write: {what}"
            for what in ("waiting 待发送", "samples 远程写入样本", "last success 距上次成功", "retries 重试")
        ),
    },
}


@pytest.mark.parametrize("board", NOTHING_TO_SHOW)
def test_every_panel_shows_what_the_lab_has(story: Story, board: str) -> None:
    assert set(story.empty_panels[board]) <= NOTHING_TO_SHOW[board]
