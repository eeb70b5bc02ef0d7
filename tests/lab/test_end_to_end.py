"""Another seed, another oversold rack, with a rack that neither shares its uplink nor is in it; and an evening on
which nobody else comes.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab import verdict
from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.faults import CompetingTenant
from tests.lab.installation import Installation, wait_until
from tests.lab.lab import Lab
from tests.lab.topology import Tenant, Topology, oversold_by_seed

pytestmark = pytest.mark.timeout(420)

Item = Mapping[str, Any]


def evening_in(topology: Topology, measuring: Measuring, directory: Path) -> tuple[Sequence[Item], Sequence[Item]]:
    """Throughput paths and incidents after a night and an evening; the tenant, if there is one, comes in between."""
    length_s = window_s(topology, measuring)
    evening = Evening.starting_at(int(time.time()) + 14, window_s=length_s, between_s=6 if topology.tenant else 1)
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
        for slot in installation.timetable():
            assert slot["category"] == "ok", slot
            assert not slot["client_run"]["gates_tripped"], slot
            assert not slot["server_run"]["gates_tripped"], slot
        for row in installation.accounting():
            assert row["planned"] == row["ok"] == measuring.planned, row
        paths = verdict.document(installation.throughput_paths(), [], 0)["paths"]
        return paths, installation.incidents()


def test_with_another_seed_another_rack_is_oversold_and_its_uplink_is_named(tmp_path: Path) -> None:
    seed, racks = 0, {"r1": 1, "r2": 2, "r3": 1}
    oversold = oversold_by_seed(seed, list(racks))
    assert oversold != oversold_by_seed(1, ["r1", "r2"])  # what the other end-to-end test has
    assert racks[oversold] == 2  # two hosts tell an uplink from a NIC
    topology = Topology(racks, tenant=Tenant(oversold))
    paths, incidents = evening_in(topology, Measuring(seed=seed, planned=4), tmp_path)
    assert verdict.faults(paths, incidents, topology) == []
    for path in paths:
        assert path["flagged"] or abs(path["swing_ratio"]) < 0.15, path
    named = [incident["element"] for incident in incidents if incident["rule"] == verdict.RULE]
    assert [(element["kind"], oversold in element["name"]) for element in named] == [("uplink", True)]


def test_without_a_tenant_nothing_is_flagged(tmp_path: Path) -> None:
    topology = Topology({"r1": 2, "r2": 1})
    paths, incidents = evening_in(topology, Measuring(planned=4), tmp_path)
    assert verdict.faults(paths, incidents, topology) == []
    assert all(abs(path["swing_ratio"]) < 0.15 for path in paths)
    assert incidents == []
