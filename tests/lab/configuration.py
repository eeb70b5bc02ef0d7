"""A virtual night and a virtual evening, and the configuration files of a collector and its agents in a lab. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from collector.config import read_config
from collector.planner.timetable import needed_ns
from tests.lab.topology import COLLECTOR_ADDRESS, DATA_NIC, Host, Topology

SITE = "idc-a"
TIME_ZONE = "Asia/Shanghai"
COLLECTOR_NAME = "collector"
GRPC_ADDRESS = f"{COLLECTOR_ADDRESS}:7443"


@dataclass(frozen=True, slots=True)
class Evening:
    """When the windows are, in whole seconds since the epoch; ends are exclusive."""

    night_start_s: int
    night_end_s: int
    evening_start_s: int
    evening_end_s: int

    @classmethod
    def starting_at(cls, start_s: int, *, window_s: int, between_s: int) -> "Evening":
        """Night, a pause for the tenant to come, evening."""
        evening = start_s + window_s + between_s
        return cls(start_s, start_s + window_s, evening, evening + window_s)


@dataclass(frozen=True, slots=True)
class Measuring:
    """What differs from one run to the next. 1 s tests in 2 s slots: a test that stands in a shared queue for so
    short a time still gives the share that a longer one would, within a few per cent."""

    seed: int = 0
    planned: int = 5  # tests per path and window
    min_tests: int = 4
    duration: str = "1s"
    slot: str = "2s"
    margin: str = "460ms"  # iperf3 needs up to 300 ms more than its second beside the tenant
    flush: str = "1s"
    echo_rate: float = 10.0
    echo_payload: int = 56
    # Of the delay rule. Short of a full queue (10 ms), and more than two busy cores add by themselves.
    delay_above: str = "4ms"
    delay_min_samples: int = 300
    targets: Sequence[Mapping[str, Any]] = ()  # as in collector.yaml
    min_lost: int = 3  # of the loss rule
    path_mtu: bool = True
    reference_traces: bool = True
    addresses: Mapping[str, str] = field(default_factory=dict)  # of hosts that are not measured by their IPv4 one
    speed: str = ""  # of every data NIC, as in collector.yaml; empty: not configured
    stamp: Mapping[str, Any] = field(default_factory=dict)  # measure.stamp, as in collector.yaml
    permissions: Sequence[Mapping[str, Any]] = ()  # as in collector.yaml
    rules: Mapping[str, Any] = field(default_factory=dict)  # further ones, as in collector.yaml


def window_s(topology: Topology, measuring: Measuring) -> int:
    """How long a window must be for all planned tests, as the collector's own planner reckons it."""
    guess = Evening.starting_at(0, window_s=3600, between_s=0)
    nowhere = Path("/nowhere")
    text = collector_file(topology, guess, measuring, certificates=nowhere, state_dir=nowhere, http_fd=3)
    return math.ceil(needed_ns(read_config(text, "collector.yaml")) / 1_000_000_000)


def time_of_day(epoch_s: int, zone: str = TIME_ZONE) -> str:
    return datetime.fromtimestamp(epoch_s, ZoneInfo(zone)).strftime("%H:%M:%S")


def collector_file(
    topology: Topology, evening: Evening, measuring: Measuring, *, certificates: Path, state_dir: Path, http_fd: int
) -> str:
    """collector.yaml for the lab."""
    document: Mapping[str, Any] = {
        "collector": {
            "name": COLLECTOR_NAME,
            "grpc_listen": GRPC_ADDRESS,
            "http_listen": f"fd:{http_fd}",
            "state_dir": str(state_dir),
            "tls": {
                "ca": str(certificates / "ca.pem"),
                "certificate": str(certificates / "collector.pem"),
                "key": str(certificates / "collector.key"),
            },
        },
        "sites": [
            {
                "name": SITE,
                "time_zone": TIME_ZONE,
                "windows": {
                    "offpeak": [f"{time_of_day(evening.night_start_s)}-{time_of_day(evening.night_end_s)}"],
                    "peak": [f"{time_of_day(evening.evening_start_s)}-{time_of_day(evening.evening_end_s)}"],
                },
            }
        ],
        "nodes": [
            {
                "name": host.name,
                "site": SITE,
                "rack": host.rack,
                "endpoints": [
                    {"nic": DATA_NIC, "address": measuring.addresses.get(host.name, host.address), "lane": "rail0"}
                    | ({"speed": measuring.speed} if measuring.speed else {})
                ],
            }
            for host in topology.hosts
        ],
        "targets": list(measuring.targets),
        "units": [{"name": f"{rack}-uplink", "kind": "uplink", "rack": rack} for rack in topology.racks],
        "permissions": list(measuring.permissions),
        "measure": {
            "flush": measuring.flush,
            "seed": measuring.seed,
            "echo": {"rate": measuring.echo_rate, "payload": measuring.echo_payload},
            "stamp": dict(measuring.stamp),
            "path_mtu": {"enabled": measuring.path_mtu},
            "trace": {"reference": measuring.reference_traces},
            "throughput": {
                "duration": measuring.duration,
                "omit": "0s",
                "streams": 4,
                "processes": 1,  # a core is enough for these links, and two cores carry the whole lab
                "congestion_control": "cubic",
                "planned": measuring.planned,
                "around_the_clock": 0,
                "slot": measuring.slot,
                "margin": measuring.margin,
            },
        },
        "rules": {
            "oversubscription": {"min_tests": measuring.min_tests},
            "loss": {"min_lost": measuring.min_lost},
            "delay": {"above": measuring.delay_above, "min_samples": measuring.delay_min_samples},
            **measuring.rules,
        },
    }
    return yaml.safe_dump(document, sort_keys=False)


def mark_socket(name: str) -> str:
    """Where a host's trainers say that a checkpoint begins; hosts of a lab share one ``/run``."""
    return f"/run/mark-{name}.sock"


def agent_file(host: Host, *, certificates: Path, state_dir: Path, iperf3: Path) -> str:
    """agent.yaml for one host."""
    document = {
        "agent": {
            "name": host.name,
            "state_dir": str(state_dir),
            "collectors": [GRPC_ADDRESS],
            "identity": {
                "ca": str(certificates / "ca.pem"),
                "certificate": str(certificates / f"{host.name}.pem"),
                "key": str(certificates / f"{host.name}.key"),
            },
            "iperf3": str(iperf3),
            "mark": {"socket": mark_socket(host.name)},
        }
    }
    return yaml.safe_dump(document, sort_keys=False)
