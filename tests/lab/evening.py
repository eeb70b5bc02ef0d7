"""One undisturbed night and evening in a lab, from an empty directory to what the collector says."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lab import verdict
from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.faults import CompetingTenant
from tests.lab.installation import Installation, wait_until
from tests.lab.lab import Lab
from tests.lab.topology import Topology

Item = Mapping[str, Any]
START_S = 12  # for collector and agents to start and to have their plan
MOST_TIMEOUTS = 3


def run_evening(
    topology: Topology, measuring: Measuring, directory: Path, *, quiet_s: int = 0
) -> tuple[Sequence[Item], Sequence[Item]]:
    """Throughput paths (as ``verdict.document`` makes them) and incidents; the tenant, if there is one, comes between
    night and evening. Asserts on the way what holds in every undisturbed run: no gate tripped, every test done, at
    most a few timed out beside the tenant, accounting adds up.

    ``quiet_s``: at least so long before the night there are echoes and no tests, and the night begins with a full
    minute. Baselines are read at full minutes and lag two behind: the one that is read two minutes after the night
    began holds the quiet and nothing else.
    """
    length_s = window_s(topology, measuring)
    between_s = 6 if topology.tenant else 1
    start_s = int(time.time()) + START_S + quiet_s
    if quiet_s:
        start_s += -start_s % 60
    evening = Evening.starting_at(start_s, window_s=length_s, between_s=between_s)
    with Lab(topology) as lab, Installation(lab, directory, evening, measuring) as installation:
        tenant = CompetingTenant(lab) if topology.tenant else None
        installation.start_collector()
        installation.start_agents()
        wait_until(evening.night_end_s, installation)
        if tenant:
            tenant.start()
        wait_until(evening.evening_end_s, installation)
        installation.wait_until_decided(within=40)
        assert tenant is None or tenant.is_on()
        _check_tests(installation.timetable(), topology)
        _check_accounting(installation.accounting(), measuring)
        paths = verdict.document(installation.throughput_paths(), [], 0)["paths"]
        return paths, installation.incidents()


def _check_tests(slots: Sequence[Item], topology: Topology) -> None:
    timed_out = [slot for slot in slots if verdict.is_the_tenants_doing(slot, topology)]
    assert len(timed_out) <= MOST_TIMEOUTS, timed_out
    for slot in slots:
        if slot in timed_out:
            continue
        assert slot["category"] == "ok", slot
        for end in ("client_run", "server_run"):
            assert not slot[end]["gates_tripped"], slot
            assert set(slot[end]["flags"]) <= {"several_processes"}, slot


def _check_accounting(rows: Sequence[Item], measuring: Measuring) -> None:
    for row in rows:
        assert row["planned"] == measuring.planned, row
        assert row["planned"] == row["ok"] + row["failed"] + row["skipped"] + row["lost"], row
