"""How long the timetable of a large fleet takes, and how close its rounds come to what no timetable can beat.

``all_pairs``: every ordered pair of N hosts in racks of 16, one test a NIC and c an uplink at a time. No timetable has
fewer rounds than the busiest token has tests, over its capacity: 2(N - 1) where only NICs limit, 2(R - 1)H²/c where
R racks of H hosts share uplinks. ``planned``: what the product plans for the same fleet (above eight hosts rack pairs
and a round inside each rack, see ``collector.planner.pairs``); ``seconds`` is then the whole plan of the coming day, as
``serve`` makes it. Rounds are checked: no token beyond its capacity, no pair missing, none twice.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence

from collector.config import Config, read_config
from collector.planner.endpoints import Pair, capacity, placed_endpoints
from collector.planner.pairs import every_pair, pairs_of_day
from collector.planner.plan import build_plans
from collector.planner.rounds import rounds

RACK = 16
DAY_NS = 86_400 * 1_000_000_000
NOON_NS = 1_796_126_400 * 1_000_000_000
ALL_PAIRS_UP_TO = 512  # a quarter of a million pairs; four times as many take as much longer and show nothing new


def fleet(hosts: int, uplink_tokens: int) -> Config:
    """One site, racks of 16."""
    lines = ["sites: [{name: a, time_zone: UTC}]", "nodes:"]
    for host in range(hosts):
        rack, place = divmod(host, RACK)
        end = f"{{nic: eth0, address: 10.{rack}.0.{place + 1}}}"
        lines.append(f"  - {{name: h{host}, site: a, rack: r{rack}, endpoints: [{end}]}}")
    lines.append(f"measure: {{throughput: {{uplink_tokens: {uplink_tokens}}}}}")
    return read_config("\n".join(lines), "fleet")


def checked(found: list[list[Pair]], pairs: Sequence[Pair], uplink_tokens: int) -> None:
    """Raises AssertionError unless the rounds are right."""
    for together in found:
        held = Counter(token for pair in together for token in pair.tokens)
        assert all(count <= capacity(token, uplink_tokens) for token, count in held.items())
    names = [(pair.source.node, pair.destination.node) for together in found for pair in together]
    assert len(names) == len(set(names)) == len(pairs)


def bound_of(pairs: Sequence[Pair], uplink_tokens: int) -> int:
    """Rounds that no timetable goes below."""
    load = Counter(token for pair in pairs for token in pair.tokens)
    return max(-(-count // capacity(token, uplink_tokens)) for token, count in load.items())


def row(kind: str, hosts: int, tokens: int, pairs: Sequence[Pair], found: list[list[Pair]]) -> dict[str, object]:
    """The figures of one timetable, after a check."""
    checked(found, pairs, tokens)
    return {
        "kind": kind,
        "hosts": hosts,
        "uplink_tokens": tokens,
        "pairs": len(pairs),
        "rounds": len(found),
        "bound_rounds": bound_of(pairs, tokens),
    }


def all_pairs(hosts: int, tokens: int) -> dict[str, object]:
    """Every ordered pair."""
    endpoints = placed_endpoints(fleet(hosts, tokens))
    begun = time.perf_counter()
    pairs = every_pair(endpoints, tokens)
    found = rounds(pairs, tokens)
    seconds = time.perf_counter() - begun
    assert len(pairs) == hosts * (hosts - 1)
    return row("all_pairs", hosts, tokens, pairs, found) | {"seconds": round(seconds, 3)}


def planned(hosts: int) -> dict[str, object]:
    """What ``serve`` plans, with one test an uplink at a time."""
    config = fleet(hosts, 1)
    begun = time.perf_counter()
    plans = build_plans(config, NOON_NS)
    seconds = time.perf_counter() - begun
    pairs = pairs_of_day(placed_endpoints(config), NOON_NS // DAY_NS, 1)
    figures = row("planned", hosts, 1, pairs, rounds(pairs, 1))
    return figures | {"tests": len(plans.slots), "seconds": round(seconds, 3)}


def run(quick: bool) -> dict[str, object]:
    """``{"timetable": [{kind, hosts, uplink_tokens, rounds, bound_rounds, seconds, …}, …]}``."""
    rows = []
    for hosts in (16, 64, 512, 1024):
        rows.append(planned(hosts))
        print(f"timetable: {rows[-1]}", file=sys.stderr)
        if hosts > ALL_PAIRS_UP_TO:
            continue
        for tokens in (RACK, 4, 1):  # a rack has no more than 16 hosts: as good as no limit
            if hosts > 64 and quick and tokens < RACK:
                continue
            rows.append(all_pairs(hosts, tokens))
            print(f"timetable: {rows[-1]}", file=sys.stderr)
    return {"timetable": rows}
