"""Snapshots of a fleet that lives: each is a second later, its counters higher, now and then a test's result newer."""

from collections.abc import Iterator
from dataclasses import replace

from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, PROTOCOL_STAMP, PROTOCOL_TCP_THROUGHPUT
from collector.analysis.snapshot import DELAY_BOUNDS_NS, DelayHistogram, NicStatus, PathTotals, Snapshot
from collector.model import (
    Burst,
    BurstScore,
    CarrierStatus,
    ClusterBurst,
    Element,
    EndpointRow,
    Incident,
    NodeRow,
    PathStatus,
    SelfCheckStatus,
    ThroughputStatus,
)
from tests.fakes.fleet import fleet

LANES = ("rail0", "rail1")
SECOND = 1_000_000_000
CONFIG = fleet({"a": [2, 2], "b": [1]}, lanes=LANES)
NODES = tuple(node.name for node in CONFIG.nodes)  # a1-1, a1-2, a2-1, a2-2, b1-1
RACK = {node.name: node.rack for node in CONFIG.nodes}
BROKEN = "a2-2"  # its agent is away, its clock drifts, its echo probe lacks a right
TARGET = "gw-telecom"


def _endpoint(node: str, lane: str) -> EndpointRow:
    return EndpointRow(node, f"eth{LANES.index(lane)}", "198.18.0.1", lane)


def _crosses_racks(src: str, dst: str) -> bool:
    return RACK[src] != RACK.get(dst)


def _pairs() -> Iterator[tuple[int, str, str, str]]:
    """Number, source, destination, lane."""
    number = 0
    for src in NODES:
        for dst in (*NODES, TARGET):
            for lane in LANES:
                if dst not in (src, TARGET) or (dst == TARGET and lane == LANES[0]):
                    number += 1
                    yield number, src, dst, lane


def _echo(now_ns: int, pair: tuple[int, str, str, str]) -> PathStatus:
    number, src, dst, lane = pair
    far = _crosses_racks(src, dst)
    return PathStatus(
        number, src, dst, _endpoint(src, lane), None if dst == TARGET else _endpoint(dst, lane), "198.18.0.2", lane,
        PROTOCOL_ICMP_ECHO, now_ns - 10 * SECOND, 100, 2 * far, 0.02 * far, 90_000 + 200_000 * far,
        250_000 + 900_000 * far, lane == LANES[1], None, hop_count=2 + 2 * far, path_mtu_bytes=9000,
    )  # fmt: skip


def _test(start_ns: int, result: int, pair: tuple[int, str, str, str]) -> PathStatus:
    number, src, dst, lane = pair
    far = _crosses_racks(src, dst)
    peak = (40e9 if far else 95e9) + 1e8 * result
    status = ThroughputStatus(peak, start_ns + 3 * result * SECOND, 98e9, peak, 1 - peak / 98e9, far, 5, 5)
    return PathStatus(
        1000 + number, src, dst, _endpoint(src, lane), _endpoint(dst, lane), "198.18.0.2", lane,
        PROTOCOL_TCP_THROUGHPUT, None, None, None, None, None, None, None, status,
    )  # fmt: skip


def _stamp(now_ns: int, pair: tuple[int, str, str, str]) -> PathStatus:
    return replace(_echo(now_ns, pair), path_id=2000 + pair[0], protocol=PROTOCOL_STAMP, source_port=50000)


def _totals(path_id: int, src: str, seconds: int) -> PathTotals:
    """980 of 1000 packets a second are answered; 12 and 3 of the lost ones are known to be lost there and back."""
    outcomes = (980 * seconds, 15 * seconds, 3 * seconds, 2 * seconds, 1, 2, 3)
    return PathTotals(path_id, src, outcomes, 0, 0, 12 * seconds, 3 * seconds)


def _self_check(now_ns: int, well: bool) -> SelfCheckStatus:
    reasons = () if well else ("late", "starved")
    return SelfCheckStatus(
        now_ns, 8, 0, 15_000, 1_000_000, 4_000_000 if well else 600_000_000, 0.9, 0.03 if well else 0.6, 0.0, reasons,
        now_ns // SECOND // 2, dict.fromkeys(reasons, now_ns // SECOND // 4),
    )  # fmt: skip


def _nodes(now_ns: int) -> Iterator[NodeRow]:
    for node in CONFIG.nodes:
        well = node.name != BROKEN
        parts = () if well else ({"part": "echo", "state": "icmp_unavailable", "detail": ""},)
        yield NodeRow(
            node.name, node.site, node.rack, (), well, now_ns - (1 if well else 300) * SECOND, now_ns, "0.1.0", "3.18",
            well, 2_000_000 if well else 90_000_000, 4096, 0 if well else 70, parts,
            self_check=_self_check(now_ns, well), gaps=0 if well else 3,
            certificate_expiry_time_ns=now_ns + (60 if well else 5) * 86_400 * SECOND,
        )  # fmt: skip


def _incidents() -> Iterator[Incident]:
    for rule, severity, kind, name in (
        ("oversubscription", "warning", "uplink", "a1"),
        ("loss", "critical", "rack_pair", "a1|a2"),
        ("agent_silent", "warning", "agent", BROKEN),
    ):
        yield Incident(rule, rule, 1, Element(kind, name), severity, 1, None, 2, "", {})
    for rule, during in (("burst_contention", "checkpoint"), ("delay", "burst")):
        yield Incident(rule, rule, 1, Element("uplink", "a1"), "warning", 1, None, 2, "", {"during": during})


def _burst(node: str, now_ns: int) -> Burst:
    start = now_ns - 20 * SECOND
    return Burst(
        f"b{node}", node, "eth0", "rail0", "save", start, None, start + 2 * SECOND, now_ns, SECOND, None, 10**9, 10**7,
        4e9, 3e9, 1e8, 1e9, True, "c",
    )  # fmt: skip


def _cluster(now_ns: int, marked: bool) -> ClusterBurst:
    start = now_ns - 20 * SECOND
    return ClusterBurst(
        f"c{marked}", "job" if marked else "rack", "llm", "a", "rail0", "save", start, None, start + 3 * SECOND, now_ns,
        SECOND, SECOND, None, 4 * 10**9, 1.6e10, tuple(NODES), (), NODES[0], 3e9, marked,
        next_start_time_ns=now_ns + 600 * SECOND,
    )  # fmt: skip


def moving_fleet(start_ns: int, seconds: int) -> Snapshot:
    """What is known so many seconds after the start. Every part of the picture is filled."""
    now_ns = start_ns + seconds * SECOND
    pairs = list(_pairs())
    tests = [pair for pair in pairs if pair[2] != TARGET]
    echoes = [_echo(now_ns, pair) for pair in pairs]
    stamps = [_stamp(now_ns, pair) for pair in tests]
    throughput = [_test(start_ns, seconds // 3, pair) for pair in tests]
    racks = sorted(set(RACK.values()))
    due = 10 + seconds // 2
    return Snapshot(
        made_time_ns=now_ns - SECOND,
        nodes=tuple(_nodes(now_ns)),
        paths={path.path_id: path for path in (*echoes, *stamps, *throughput)},
        totals={path.path_id: _totals(path.path_id, path.src, seconds) for path in (*echoes, *stamps)},
        delays=[
            DelayHistogram(src, dst, lane, (*(0,) * 6, 900 * seconds, 90 * seconds, 10 * seconds, *(0,) * (
                len(DELAY_BOUNDS_NS) - 8
            )), 10**8 * seconds)
            for src in racks for dst in (*racks, TARGET) for lane in LANES
        ],
        carriers=[
            CarrierStatus(
                "a", carrier, PROTOCOL_ICMP_ECHO, now_ns - 60 * SECOND, now_ns, 3, 3 - lost, ["gw"][:lost], 1000,
                200 * lost, 0.2 * lost, 0, 1000 - 200 * lost, 8_000_000, 9_000_000,
            )
            for lost, carrier in enumerate(("telecom", "中国联通"))
        ],
        hours={
            (src, dst, lane, f"{hour:02d}"): 9e9 if hour < 18 else 4e9
            for src in racks for dst in racks for lane in LANES for hour in (2, 3, 12, 19, 20)
        },
        attempts={
            (src, dst, lane, outcome): count
            for _, src, dst, lane in tests
            for outcome, count in (("ok", due), ("refused", 2 + due), ("skipped_own_traffic", 3), ("lost", 1))
        },
        corrections={(src, dst, lane, "lost", "ok"): due for _, src, dst, lane in tests},
        incidents=tuple(_incidents()),
        nics=[
            NicStatus(
                node, f"eth{lane}", now_ns, 10**9 * seconds, 2 * 10**9 * seconds, 5e9, 11e9, 100 * 10**9, 0,
                errors={"rx_crc_errors": seconds, "receive_discards": 2 * seconds, "out_of_sequence": seconds},
                congestion={"cnp_handled": seconds, "ecn_marked": seconds},
                kind="physical", driver="mlx5_core", coverage=("no_rdma",),
                receive_pause_ratio=0.02, transmit_pause_ratio=0.01,
            )
            for node in NODES for lane in range(len(LANES))
        ],
        open_bursts=[_burst(node, now_ns) for node in NODES],
        open_clusters=[_cluster(now_ns, marked) for marked in (True, False)],
        forecasts=[_cluster(now_ns, True)],
        burst_counts={("rail0", "save"): seconds, ("storage", "restore"): seconds},
        burst_bytes={("rail0", "save"): 10**9 * seconds, ("storage", "restore"): 10**9 * seconds},
        cluster_burst_counts={("job", "rail0", "save", "yes"): seconds, ("rack", "rail0", "save", "no"): seconds},
        burst_score=BurstScore(9, 8, 8, 8, 8 / 9, 1.0, 300_000_000, 900_000_000, 100_000_000),
        burst_steps_waited_out=seconds,
        batches={"evidence": 5 * seconds, "telemetry": 5 * seconds, "control": 2},
        quarantined={"gap": 1},
        unreadable_records=1,
        rule_errors={"delay": 1},
        step_errors=0,
        lag_ns=SECOND,
    )  # fmt: skip
