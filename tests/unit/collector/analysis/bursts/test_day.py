"""Two hours of a training fleet, as somebody might have recorded them: what is said of them, whole."""

import math
import os
from pathlib import Path

import msgspec

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.agents import Agent, Agents
from collector.analysis.bursts.bursts import Bursts
from collector.analysis.bursts.watch import NOTHING
from collector.analysis.octets import Octets
from collector.config import Config, EndpointConfig
from collector.model import MarkRow, NicSamples, Source
from tests.fakes.measured_log import SECOND, fleet_config
from tests.fakes.nic_records import T0, record
from tests.fakes.traffic import MBIT, Line, Stretch, save

GOLDEN = Path(__file__).parents[4] / "golden" / "bursts" / "day.txt"
LENGTH_S = 7200


def config() -> Config:
    """Two racks of two, each node with a rail and a storage lane."""
    made = fleet_config(2, 2)
    nodes = tuple(
        msgspec.structs.replace(
            node,
            endpoints=(
                *node.endpoints,
                EndpointConfig(nic="eth1", address=node.endpoints[0].address.replace("10.0", "10.9"), lane="storage"),
            ),
        )
        for node in made.nodes
    )
    return msgspec.structs.replace(made, nodes=nodes)


def lines(number: int) -> dict[str, Line]:
    """A job starts after ten minutes and saves every 20; the third save is slow on one node, one restores after a
    failure, and a stranger copies something from one node."""
    flutter = [Stretch(at, at + 1, 3 + at * (number + 3) % 5, 2 + at * 7 % 4) for at in range(0, LENGTH_S, 7)]
    training = [Stretch(600 + 4 * n, 602 + 4 * n, 410 + n % 9, 415 + n % 7) for n in range((LENGTH_S - 600) // 4)]
    saves = [save(1200 + 1200 * n + number * 0.3, 45, 700) for n in range(5)]
    if number == 2:
        saves[2] = save(3600.6, 130, 240)
    restore = [Stretch(5400, 5440, 800, 8)]
    stranger = [save(4300, 25, 600)] if number == 1 else []
    return {"eth0": Line([*flutter, *training]), "eth1": Line([*flutter, *saves, *restore, *stranger])}


def mark(node: str, at_s: float, step: int, phase: int, kind: str = "checkpoint") -> MarkRow:
    source = Source(node, bytes(16), pb.BATCH_CLASS_EVIDENCE, 1, phase, round(at_s * 1000))
    return MarkRow(source, node, T0 + round(at_s * SECOND), None, phase, kind, "llm", step, None, 0)


def carried(line: Line) -> list[Octets]:
    """Second by second."""
    octets = [[line.base_mbps * MBIT] * LENGTH_S for _ in range(2)]
    for one in line.stretches:
        for second in range(int(one.from_s), min(math.ceil(one.to_s), LENGTH_S)):
            share = min(second + 1, one.to_s) - max(second, one.from_s)
            octets[0][second] += share * one.receive_mbps * MBIT
            octets[1][second] += share * one.transmit_mbps * MBIT
    return [
        Octets(T0 + (second + 1) * SECOND, SECOND, round(receive), round(transmit))
        for second, (receive, transmit) in enumerate(zip(*octets, strict=True))
    ]


def told() -> str:
    fleet = config()
    bursts = Bursts(fleet, lambda *_: NOTHING)
    agents = Agents(fleet, [Agent(node.name, T0, T0) for node in fleet.nodes])
    records: dict[str, NicSamples] = {
        nic: record({"rx_bytes": [0]}, nic=nic, speed_bps=10**9) for nic in ("eth0", "eth1")
    }
    for number, node in enumerate(fleet.nodes):
        for nic, line in lines(number).items():
            counted = carried(line)
            for at in range(0, LENGTH_S, 300):
                bursts.add([(node.name, nic, counted[at : at + 300])], [records[nic]], T0 + at * SECOND, 2_000_000)
        agent = agents.get(node.name)
        assert agent is not None
        agent.last_received_time_ns = T0 + LENGTH_S * SECOND
        for save_number in (0, 1, 2, 4):
            at_s = 1200 + 1200 * save_number + number * 0.1 - 0.2
            bursts.mark(mark(node.name, at_s, 100 * save_number, pb.MARK_PHASE_BEGIN))
            bursts.mark(mark(node.name, at_s + 50, 100 * save_number, pb.MARK_PHASE_END))
    now_ns = T0 + LENGTH_S * SECOND
    bursts.advance(now_ns, agents)
    text = []
    calendar = bursts.calendar
    for one in calendar.clusters_started(0, now_ns):
        members = [calendar.burst(key) for key in one.members]
        text.append(
            f"{(one.start_time_ns - T0) / SECOND:7.1f} +{(one.last_time_ns - one.start_time_ns) / SECOND:6.1f} s"
            f" {one.kind:9s}{one.scope} {one.name} {one.lane} {len(one.nodes)} nodes"
            f" {one.bytes / 1e9:.3f} GB {one.achieved_bps / 1e6:.0f} Mbit/s spread {one.start_spread_ns / SECOND:.1f} s"
            f" slowest {one.slowest_node} {one.slowest_bps / 1e6:.0f} Mbit/s"
            f" {'step ' + str(one.step) if one.marked else 'unmarked'}"
            + (f" next {(one.next_start_time_ns - T0) / SECOND:.1f}" if one.next_start_time_ns else "")
        )
        text += [f"          {m.node} {m.bytes / 1e9:.3f} GB peak {m.peak_bps / 1e6:.0f} Mbit/s" for m in members if m]
    for burst in calendar.bursts_started(0, now_ns):
        if not burst.cluster_id:
            text.append(f"{(burst.start_time_ns - T0) / SECOND:7.1f} {burst.kind} {burst.node} {burst.nic} alone")
    score = bursts.score(now_ns)
    text.append(
        f"precision {score.precision_ratio} recall {score.recall_ratio} start {score.start_error_p90_ns} ns p90"
    )
    return "\n".join(text) + "\n"


def test_two_hours_as_they_are_told() -> None:
    found = told()
    if os.environ.get("BANDWITNESS_REFRESH_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")
