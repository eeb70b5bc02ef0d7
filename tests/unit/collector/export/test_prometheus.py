"""Whole scrapes from whole snapshots, read back by the reference parser."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, PROTOCOL_TCP_THROUGHPUT
from collector.analysis.snapshot import DELAY_BOUNDS_NS, DelayHistogram, NicStatus, PathTotals, Snapshot
from collector.app.figures import enrolment_of, intake_of
from collector.app.remote import Remotes
from collector.config import Collector, RemoteWrite
from collector.export.exposition import Sample
from collector.export.prometheus import PARTS, STALE_NS, Exporter, Scrape
from collector.ingest import Sessions
from collector.log import Log
from collector.model import (
    CarrierStatus,
    Element,
    EndpointRow,
    Incident,
    NodeRow,
    PathStatus,
    SelfCheckStatus,
    ThroughputStatus,
)
from collector.vocabulary import METRICS
from tests.fakes.bursts import BURST, CLUSTER, SCORE

A = EndpointRow("a", "eth0", "198.18.1.1", "rail0")
B = EndpointRow("b", "eth0", "198.18.1.2", "rail0")
ECHO = PathStatus(
    1, "a", "b", A, B, B.address, "rail0", PROTOCOL_ICMP_ECHO, 10**18, 20, 1, 0.05, 96_000, None, False, None
)  # fmt: skip
TEST = PathStatus(
    2, "a", "b", A, B, B.address, "rail0", PROTOCOL_TCP_THROUGHPUT, None, None, None, None, None, None, None,
    ThroughputStatus(None, None, 180e6, None, None, False, 5, 0),
)  # fmt: skip
NODE = NodeRow(
    "a", "s", "r1", (A,), True, 10**18, None, "0.1.0", "3.12", True, 2_000_000, 4096, 0,
    ({"part": "echo", "state": "icmp_unavailable", "detail": ""},),
    self_check=SelfCheckStatus(10**18, 8, 0, 15_000, 10**6, 5 * 10**8, 0.9, 0.4, 0.0, ("starved",), 9, {"starved": 2}),
    gaps=3,
)  # fmt: skip
SNAPSHOT = Snapshot(
    made_time_ns=10**18,
    nodes=(NODE,),
    paths={1: ECHO, 2: TEST},
    totals={1: PathTotals(1, "a", (90, 5, 3, 2, 7, 8, 9), 1, 1)},
    delays=(DelayHistogram("r1", "r2", "rail0", (*(0,) * 5, 3, *(0,) * (len(DELAY_BOUNDS_NS) - 5)), 300_000),),
    carriers=(CarrierStatus("s", "中国电信", PROTOCOL_ICMP_ECHO, 0, 1, 3, 2, ("t",), 10, 2, 0.2, 0, 8, 7000, 9000),),
    attempts={("a", "b", "rail0", "refused"): 6},
    incidents=(Incident("x", "loss", 1, Element("uplink", "r1"), "critical", 1, None, 2, "", {}),),
    nics=(
        NicStatus(
            "a",
            "eth0",
            10**18,
            1000,
            2000,
            None,
            125e6,
            None,
            0,
            errors={"rx_dropped": 7},
            congestion={"cnp_handled": 3},
            kind="physical",
            driver="mlx5_core",
            coverage=("vfs_unseen",),
            receive_pause_ratio=0.25,
        ),
    ),
    corrections={("a", "b", "rail0", "lost", "ok"): 1},
    open_bursts=(BURST,),
    open_clusters=(CLUSTER, CLUSTER),
    forecasts=(CLUSTER,),
    burst_counts={("storage", "save"): 3},
    burst_bytes={("storage", "save"): 5000},
    cluster_burst_counts={("rack", "storage", "save", "no"): 2},
    burst_score=SCORE,
    batches={"evidence": 12},
    quarantined={"gap": 1},
    lag_ns=1_500_000_000,
)


def scrape(snapshot: Snapshot = SNAPSHOT, parts: object = PARTS) -> dict[str, float]:
    exporter = Exporter(lambda: snapshot, lambda node: node, lambda: 10**18 + 2_000_000_000, parts)  # type: ignore[arg-type]
    text = exporter.render()
    assert text.endswith("\n")
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items() if name != "path")
            key = f"{sample.name.removeprefix('bandwitness_')}{{{labels}}}"
            assert key not in found
            found[key] = sample.value
    return found


PATH = "src=a,dst=b,lane=rail0,protocol="


def test_figures_in_base_units() -> None:
    found = scrape()
    expected = {
        f"probe_packets_sent_total{{{PATH}icmp_echo}}": 100,
        f"probe_packets_lost_total{{{PATH}icmp_echo}}": 10,
        "probe_outcomes_total{src=a,outcome=send_failed}": 8,
        f"path_loss_ratio{{{PATH}icmp_echo}}": 0.05,
        f"path_delay_seconds{{{PATH}icmp_echo,quantile=0.5}}": 96e-6,
        f"path_loaded{{{PATH}icmp_echo}}": 0,
        f"offpeak_throughput_bytes_per_second{{{PATH}tcp_throughput}}": 22.5e6,
        "throughput_tests_total{src=a,dst=b,lane=rail0,outcome=refused}": 6,
        "throughput_tests_corrected_total{src=a,dst=b,lane=rail0,outcome=lost,corrected=ok}": 1,
        "burst_active{node=a,nic=eth0,lane=storage,kind=save}": 1,
        "bursts_total{lane=storage,kind=save}": 3,
        "burst_bytes_total{lane=storage,kind=save}": 5000,
        "cluster_burst_active{site=s,scope=job,lane=storage,kind=save,marked=yes}": 2,
        "cluster_burst_bytes_per_second{site=s,scope=job,lane=storage,kind=save,marked=yes}": 2e8,
        "cluster_bursts_total{scope=rack,lane=storage,kind=save,marked=no}": 2,
        "cluster_burst_next_start_timestamp_seconds{site=s,lane=storage,kind=save}": 1_796_084_400,
        "burst_precision_ratio{}": 0.9,
        "burst_recall_ratio{}": 0.75,
        "burst_start_error_seconds{quantile=0.9}": 0.9,
        "incident_active{rule=loss,severity=critical,kind=uplink,element=r1,during=}": 1,
        "nic_transmit_bytes_total{node=a,nic=eth0}": 2000,
        "nic_transmit_peak_bytes_per_second{node=a,nic=eth0}": 125e6,
        "agent_last_seen_timestamp_seconds{node=a,site=s,rack=r1}": 1e9,
        "agent_clock_error_seconds{node=a,site=s,rack=r1}": 0.002,
        "agent_part_working{node=a,site=s,rack=r1,part=echo,state=icmp_unavailable}": 0,
        "collector_batches_quarantined_total{reason=gap}": 1,
        "collector_analysis_lag_seconds{}": 1.5,
        "collector_snapshot_age_seconds{}": 2,
        "round_trip_delay_seconds_count{src_rack=r1,dst_rack=r2,lane=rail0}": 3,
        "round_trip_delay_seconds_sum{src_rack=r1,dst_rack=r2,lane=rail0}": 0.0003,
        "round_trip_delay_seconds_bucket{src_rack=r1,dst_rack=r2,lane=rail0,le=+Inf}": 3,
    }
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)


def test_case_44_a_failed_test_is_not_exported_as_zero() -> None:
    """Peak tests all failed: no result, no peak median, no swing; the failures are counted under their reason."""
    found = scrape()
    absent = ("throughput_bytes_per_second", "throughput_result", "peak_throughput", "swing_ratio")
    assert not [key for key in found if key.startswith(absent)]
    assert found["throughput_tests_total{src=a,dst=b,lane=rail0,outcome=refused}"] == 6


def test_what_is_unknown_has_no_sample() -> None:
    found = scrape()
    assert not [key for key in found if key.startswith(("nic_speed", "nic_receive_peak"))]
    assert not [key for key in found if key.startswith("path_delay") and "quantile=0.99" in key]


def test_a_collector_without_data_is_empty_but_valid() -> None:
    found = scrape(Snapshot())
    assert "collector_build_info{version=" in " ".join(found)
    assert not [key for key in found if key.startswith(("probe", "path", "nic", "agent", "incident"))]


def test_case_46_one_failing_part_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    def infiniband(_: Scrape) -> Iterator[tuple[str, Sample]]:
        yield "nic_speed_bytes_per_second", (("a", "mlx5_0"), 1.0)
        raise OSError("no such device")

    found = scrape(parts=(*PARTS, infiniband))
    assert found["collector_scrape_errors{part=infiniband}"] == 1
    assert found["nic_transmit_bytes_total{node=a,nic=eth0}"] == 2000
    assert found["nic_pause_ratio{node=a,nic=eth0,direction=receive}"] == 0.25
    assert "nic_pause_ratio{node=a,nic=eth0,direction=transmit}" not in found
    assert found["nic_info{node=a,nic=eth0,kind=physical,driver=mlx5_core,coverage=vfs_unseen}"] == 1
    assert not [key for key in found if "mlx5_0" in key]
    assert "infiniband" in caplog.text


def test_only_described_metrics_are_exported() -> None:
    names = {metric.name for metric in METRICS}
    exporter = Exporter(lambda: SNAPSHOT, lambda node: node)
    for family in text_string_to_metric_families(exporter.render()):
        name = family.name.removeprefix("bandwitness_")
        assert name in names or f"{name}_total" in names


async def test_every_described_metric_is_exported(tmp_path: Path) -> None:
    """From a picture in which nothing is missing; a figure that nobody fills would be described in vain."""
    swing = ThroughputStatus(90e6, 10**18, 180e6, 90e6, 0.5, True, 5, 5)
    whole = replace(
        SNAPSHOT,
        paths={
            1: replace(ECHO, delay_p99_ns=120_000, source_port=61_000, hop_count=3, path_mtu_bytes=1500),
            2: replace(TEST, throughput=swing),
        },
        nics=[replace(nic, speed_bps=10**10, receive_peak_bytes_per_second=1e6) for nic in SNAPSHOT.nics],
        nodes=[replace(NODE, last_received_time_ns=10**18, certificate_expiry_time_ns=10**18)],
        rule_errors={"loss": 1},
        hours={("r1", "r2", "rail0", "19"): 9e9},
    )
    log, sessions = Log.open(tmp_path), Sessions()
    sessions.statistics.refused_streams["ABORTED"] += 1

    def broken(_: Scrape) -> Iterator[tuple[str, Sample]]:
        raise OSError("no such device")

    remote = RemoteWrite(name="p", url="http://127.0.0.1:9090/api/v1/write")
    remotes = Remotes(Collector(remote_write=(remote,)), tmp_path / "store.sqlite", lambda: 10**18)
    remotes.senders[0].statistics.last_success_ns = 10**18

    outcomes = Counter(enrolled=1)
    parts = (*PARTS, intake_of(sessions, log), remotes.remote_write, enrolment_of(outcomes, sessions), broken)
    text = Exporter(lambda: whole, lambda node: node, parts=parts).render()
    log.close()
    remotes.stop()
    samples = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    silent = [m.name for m in METRICS if not samples & {m.full_name, f"{m.full_name}_count"}]
    assert silent == []


def test_openmetrics_says_the_same_and_satisfies_its_parser() -> None:
    exporter = Exporter(lambda: SNAPSHOT, lambda node: node, wall_ns=lambda: 10**18)
    plain, strict = exporter.render(), exporter.render(openmetrics=True)
    families = list(openmetrics.text_string_to_metric_families(strict))  # type: ignore[no-untyped-call]
    read = {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }
    expected = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(plain)
        for sample in family.samples
    }
    itself = ("bandwitness_collector_scrape_duration_seconds",)
    assert read.keys() == expected.keys()
    assert {key: value for key, value in read.items() if key != itself} == {
        key: value for key, value in expected.items() if key != itself
    }
    assert {family.unit for family in families} == {"", "seconds", "bytes", "ratio", "bytes_per_second"}


def test_promtool_has_no_complaint() -> None:
    text = Exporter(lambda: SNAPSHOT, lambda node: node).render()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_an_agent_that_doubts_itself_says_so_and_why() -> None:
    found = scrape()
    labels = "node=a,site=s,rack=r1"
    assert found[f"agent_self_checks_total{{{labels}}}"] == 9
    assert found["agent_doubtful_self_checks_total{node=a,site=s,rack=r1,reason=starved}"] == 2
    assert found[f"agent_delays_doubtful{{{labels}}}"] == 1
    assert found[f"agent_loopback_delay_seconds{{{labels}}}"] == 15e-6
    assert found[f"agent_timer_lateness_seconds{{{labels}}}"] == 0.5
    assert found[f"agent_gaps_total{{{labels}}}"] == 3


def test_a_carrier_has_its_own_words_and_figures() -> None:
    found = scrape()
    labels = "site=s,carrier=中国电信,protocol=icmp_echo"
    assert found[f"carrier_targets{{{labels}}}"] == 3
    assert found[f"carrier_targets_reachable{{{labels}}}"] == 2
    assert found[f"carrier_loss_ratio{{{labels}}}"] == 0.2
    assert found[f"carrier_delay_seconds{{{labels},quantile=0.99}}"] == 9e-6


def test_a_clock_that_was_set_back_makes_no_negative_age_and_no_sample_has_a_time_of_its_own() -> None:
    """Prometheus gives samples the time of its own scrape: however far its clock is from ours, nothing is refused."""
    text = Exporter(lambda: SNAPSHOT, lambda node: node, wall_ns=lambda: SNAPSHOT.made_time_ns - 3600 * 10**9).render()
    assert "bandwitness_collector_snapshot_age_seconds 0" in text.splitlines()
    assert all(re.fullmatch(r"[^ {]+(\{.*\})? \S+", line) for line in text.splitlines() if not line.startswith("#"))


def test_a_path_that_is_probed_no_longer_has_no_figures_of_how_it_is_now() -> None:
    start_ns = ECHO.window_start_time_ns
    assert start_ns is not None
    ways = replace(ECHO, hop_count=3, path_mtu_bytes=1500)

    def shown(through_ns: int | None) -> set[str]:
        snapshot = replace(SNAPSHOT, paths={1: ways, 2: TEST}, through_time_ns=through_ns)
        return {key.partition("{")[0] for key in scrape(snapshot) if key.partition("{")[0].startswith("path_")}

    gauges = {"path_loss_ratio", "path_delay_seconds", "path_loaded", "path_doubtful", "path_hops", "path_mtu_bytes"}
    assert shown(None) == shown(start_ns) == shown(start_ns + STALE_NS) == gauges
    assert shown(start_ns + STALE_NS + 1) == set()
    gone = scrape(replace(SNAPSHOT, through_time_ns=start_ns + STALE_NS + 1))
    assert gone[f"probe_packets_sent_total{{{PATH}icmp_echo}}"] == 100  # a counter never falls
    assert f"offpeak_throughput_bytes_per_second{{{PATH}tcp_throughput}}" in gone
