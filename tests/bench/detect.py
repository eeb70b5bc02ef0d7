"""``detect``: how long a loss is on the wire before ``/metrics`` says so, and a swing after the test that proves it.

Labs of two racks of two hosts, with real agents and a real collector, default flush, default rules, ten probes a second
at each host. A seeded nft rule drops a share of the echo packets that arrive at one host, so that share of the round
trips through it is lost. The clock runs from the first packet that the rule has dropped (read every 50 ms; the last
reading without one counts, so the figure errs upwards) to the first scrape with an active loss incident. Onsets in one
lab are kept apart until the one before has left the rules' 60 s.

The full run holds five labs at once, which share the machine.
"""

import math
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.faults import ECHO, CompetingTenant, injected, share
from tests.lab.installation import Installation, wait_until
from tests.lab.lab import Lab
from tests.lab.topology import DATA_NIC, Host, Tenant, Topology

RACKS = {"r1": 2, "r2": 2}
ECHO_RATE = 10.0  # probes/s at each host
SEEDS = 20
LABS = 5
FLUSH = "2s"
APART_S = 62  # the longest that a loss rule looks back, and a moment
LOOK_S = 0.05
SCRAPE_S = 0.1
QUICK_END_S = 54  # of what is measured; ending the labs takes a few seconds
ACTIVE = re.compile(
    r'^bandwitness_incident_active\{rule="(\w+)".*?kind="(\w+)",element="([^"]*)"[^}]*\} 1', re.MULTILINE
)

NOTE = "first dropped packet to /metrics; flush 2 s, 10 probes/s at each host, loss of round trips at one host"


class BenchError(Exception):
    """It could not be held, or nothing was found."""


@dataclass(frozen=True, slots=True)
class Case:
    """One share of loss, and how long it is waited for: past this, it counts as missed."""

    ratio: float
    limit_s: float

    @property
    def key(self) -> str:
        return f"loss{self.ratio * 100:g}"


TEN = Case(0.10, limit_s=60)
ONE = Case(0.01, limit_s=180)


class Results:
    """Times by case, from all labs. A case that has missed more than its p90 allows ends the bench."""

    def __init__(self, onsets: Mapping[str, int]) -> None:
        self._onsets = onsets
        self._lock = threading.Lock()
        self.times: dict[str, list[float]] = {name: [] for name in onsets}
        self.named = dict.fromkeys(onsets, 0)  # found, and the incident named the host
        self.misses = dict.fromkeys(onsets, 0)
        self.cut = dict.fromkeys(onsets, 0)  # the quick run's time was over: neither found nor missed

    def note(self, case: Case, seconds: float | None, *, named: bool = False, cut: bool = False) -> None:
        with self._lock:
            self.named[case.key] += named
            if seconds is not None:
                self.times[case.key].append(seconds)
            elif cut:
                self.cut[case.key] += 1
            else:
                self.misses[case.key] += 1
            if self.misses[case.key] > self._onsets[case.key] // 10:
                raise BenchError(
                    f"{case.ratio:.0%} loss: no incident in time in {self.misses[case.key]} of "
                    f"{self._onsets[case.key]} onsets: the rule does not work, or far too late"
                )

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, times in self.times.items():
            counted = sorted([*times, *[math.inf] * self.misses[name]])
            # Nearest rank; with few onsets it is the slowest of them.
            found[f"{name}_s"] = round(counted[math.ceil(0.9 * len(counted)) - 1], 2) if counted else None
            found[f"{name}_median_s"] = round(median(times), 2) if times else None
            found[f"{name}_max_s"] = round(max(times), 2) if times else None
            found[f"{name}_n"] = len(counted)
            found[f"{name}_named"] = self.named[name]
            found[f"{name}_misses"] = self.misses[name]
            found[f"{name}_cut"] = self.cut[name]
        return found


def run(quick: bool) -> dict[str, Any]:
    """All onsets; within 60 s when quick, and then without the swing."""
    if quick:
        cases = [[TEN], [ONE], [ONE]]
        ends_s: float | None = time.monotonic() + QUICK_END_S
        swing_s = None
    else:
        cases = [[TEN, ONE] * (SEEDS // LABS)] * LABS
        ends_s = None
        swing_s = swing()
    results = Results({case.key: sum(plan.count(case) for plan in cases) for case in (TEN, ONE)})
    stop = threading.Event()
    seeds = iter(range(10_000))
    with ThreadPoolExecutor(len(cases)) as pool:
        plans = [[(case, next(seeds)) for case in plan] for plan in cases]
        running: list[Future[None]] = [pool.submit(onsets, plan, results, stop, ends_s) for plan in plans]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
    for done in running:
        done.result()
    if not results.times[TEN.key]:
        raise BenchError("no onset was found")
    return {**results.figures(), "swing_s": swing_s, "note": NOTE}


def onsets(plan: Sequence[tuple[Case, int]], results: Results, stop: threading.Event, ends_s: float | None) -> None:
    """One lab, and one onset after the other in it."""
    with installed(Topology(RACKS)) as installation:
        # Without a past of a minute the rule needs fewer losses: only the quick run takes that in its stride.
        started_s = time.monotonic() if ends_s is None else -math.inf
        for case, seed in plan:
            chance = random.Random(seed)
            host = chance.choice(list(installation.lab.topology.hosts))
            # The onset falls anywhere between two flushes, two judgements and two scrapes.
            await_quiet(installation, started_s + APART_S + chance.uniform(0, 4), stop, ends_s)
            if stop.is_set():
                return
            limit = Limit(case.limit_s, math.inf, stop)
            if ends_s is not None:  # 1 % has as long as there is
                limit = Limit(30 if case is TEN else math.inf, ends_s, stop)
            seconds, element = onset(installation, host, case, seed, limit)
            started_s = time.monotonic()
            cut = seconds is None and ends_s is not None and started_s >= ends_s
            if stop.is_set() and seconds is None and not cut:
                return
            said = f"{seconds:.2f} s, {element}" if seconds is not None else "cut off" if cut else "MISSED"
            print(f"{case.ratio:.0%} loss at {host.name}, seed {seed}: {said}", file=sys.stderr, flush=True)
            results.note(case, seconds, named=host.name in element, cut=cut)


@dataclass(frozen=True, slots=True)
class Limit:
    """How long an onset is waited for."""

    after_first_s: float
    ends_s: float  # of the whole run, monotonic
    stop: threading.Event

    def passed(self, first_s: float | None) -> bool:
        now_s = time.monotonic()
        over = first_s is not None and now_s - first_s > self.after_first_s
        return over or now_s > self.ends_s or self.stop.is_set()


def onset(installation: Installation, host: Host, case: Case, seed: int, limit: Limit) -> tuple[float | None, str]:
    """Seconds from the first lost packet to the incident, None where none came; and the element it names."""
    condition = f"{ECHO} {share(case.ratio, seed)}"
    with injected(installation.lab, host.name, DATA_NIC, condition, "drop") as rule:
        first_s = time.monotonic()
        while True:
            looked_s = time.monotonic()
            if rule.packets():
                break
            first_s = looked_s
            if limit.passed(None):
                return None, ""
            if active(installation.metrics(), "loss") and not rule.packets():
                raise BenchError("a loss incident before the first lost packet")
            time.sleep(LOOK_S)  # between two looks at the counter
        while not limit.passed(first_s):
            if found := active(installation.metrics(), "loss"):
                return time.monotonic() - first_s, found[0]
            time.sleep(SCRAPE_S)  # between two scrapes, as Prometheus would
    return None, ""


def active(metrics: str, rule: str) -> list[str]:
    """Elements of the rule's open incidents."""
    return [f"{kind} {element}" for name, kind, element in ACTIVE.findall(metrics) if name == rule]


def await_quiet(installation: Installation, from_s: float, stop: threading.Event, ends_s: float | None) -> None:
    """Returns after the monotonic moment ``from_s``, once no loss incident is open."""
    deadline_s = ends_s or max(from_s, time.monotonic()) + 180
    while time.monotonic() < from_s or active(installation.metrics(), "loss"):
        installation.check_alive()
        if time.monotonic() > deadline_s:
            raise BenchError("a loss incident stays open though nothing is lost")
        if stop.wait(0.2):
            return


@contextmanager
def installed(topology: Topology) -> Iterator[Installation]:
    """A lab in which every path is being measured and no throughput test is near."""
    measuring = Measuring(flush=FLUSH, echo_rate=ECHO_RATE)
    length_s = window_s(topology, measuring)
    evening = Evening.starting_at(int(time.time()) + 3 * 3600, window_s=length_s, between_s=60)
    with (
        tempfile.TemporaryDirectory(prefix="bwdetect-") as directory,
        Lab(topology) as lab,
        Installation(lab, Path(directory), evening, measuring) as installation,
    ):
        installation.start_collector(within=60)
        installation.start_agents(within=60)
        paths = len(topology.hosts) * (len(topology.hosts) - 1)
        patiently(
            "all paths to be measured",
            lambda: installation.metrics().count("\nbandwitness_probe_packets_sent_total{") == paths,
        )
        yield installation


def patiently(what: str, condition: Callable[[], bool], within_s: float = 60) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise BenchError(f"{what}: not within {within_s:g} s")
        time.sleep(SCRAPE_S)  # between two looks at the condition


# ---------------------------------------------------------------- the swing


def swing() -> float:
    """Seconds from the end of the last test that the rule needs to the incident, over one night and one evening."""
    topology = Topology({"r1": 1, "r2": 1}, tenant=Tenant("r1"))
    measuring = Measuring(flush=FLUSH, min_tests=4, planned=5)
    length_s = window_s(topology, measuring)
    evening = Evening.starting_at(int(time.time()) + 15, window_s=length_s, between_s=6)
    with (
        tempfile.TemporaryDirectory(prefix="bwdetect-") as directory,
        Lab(topology) as lab,
        Installation(lab, Path(directory), evening, measuring) as installation,
    ):
        installation.start_collector()
        installation.start_agents()
        wait_until(evening.night_end_s, installation)
        tenant = CompetingTenant(lab)
        tenant.start()
        wait_until(evening.evening_start_s, installation)
        patiently(
            "an oversubscription incident",
            lambda: bool(active(installation.metrics(), "oversubscription")),
            within_s=length_s + 30,
        )
        seen_s = time.time()
        paths = [path for path in installation.throughput_paths() if path["throughput"]["flagged"]]
        if not paths:
            raise BenchError("an oversubscription incident, but no path is flagged")
        last_s = max(_needed_test_end_s(installation.timetable(), path) for path in paths)
        print(f"swing: {seen_s - last_s:.2f} s after the test it needs", file=sys.stderr, flush=True)
        return round(seen_s - last_s, 2)


def _needed_test_end_s(slots: Sequence[Mapping[str, Any]], path: Mapping[str, Any]) -> float:
    """When the newest test ended that the verdict on ``path`` counts, in seconds since the epoch."""
    ends: list[float] = []
    for slot in slots:
        run_of = slot["client_run"]
        if slot["window"] != "peak" or slot["category"] != "ok" or run_of is None:
            continue
        way = (slot["client"]["node"], slot["server"]["node"])
        if (way[::-1] if slot["reverse"] else way) == (path["src"], path["dst"]):
            ends.append(_seconds(run_of["end_time"]))
    count = path["throughput"]["tests_peak"]
    if len(ends) < count or not count:
        raise BenchError(f"{path['src']} to {path['dst']}: {count} peak tests counted, {len(ends)} in the timetable")
    return sorted(ends)[int(count) - 1]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()
