"""Another seed, another oversold rack, beside a rack that has no part in it."""

from pathlib import Path

import pytest

from tests.lab import verdict
from tests.lab.configuration import Measuring
from tests.lab.evening import run_evening
from tests.lab.topology import Tenant, Topology, oversold_by_seed


@pytest.mark.timeout(420)
def test_with_another_seed_another_rack_is_oversold_and_its_uplink_is_named(tmp_path: Path) -> None:
    seed, racks = 0, {"r1": 1, "r2": 2, "r3": 1}
    oversold = oversold_by_seed(seed, list(racks))
    assert oversold != oversold_by_seed(1, ["r1", "r2"])  # what the other end-to-end test has
    assert racks[oversold] == 2  # two hosts tell an uplink from a NIC
    topology = Topology(racks, tenant=Tenant(oversold))
    paths, incidents = run_evening(topology, Measuring(seed=seed, planned=4, min_tests=2), tmp_path)
    assert verdict.faults(paths, incidents, topology) == []
    for path in paths:
        assert path["flagged"] or abs(path["swing_ratio"]) < 0.15, path
    named = [incident["element"] for incident in incidents if incident["rule"] == verdict.RULE]
    assert [(element["kind"], oversold in element["name"]) for element in named] == [("uplink", True)]
