"""An evening on which nobody else comes."""

from pathlib import Path

import pytest

from tests.lab import verdict
from tests.lab.configuration import Measuring
from tests.lab.evening import run_evening
from tests.lab.topology import Topology


@pytest.mark.timeout(300)
def test_without_a_tenant_nothing_is_flagged(tmp_path: Path) -> None:
    topology = Topology({"r1": 2, "r2": 1})
    paths, incidents = run_evening(topology, Measuring(planned=4), tmp_path)
    assert verdict.faults(paths, incidents, topology) == []
    assert all(abs(path["swing_ratio"]) < 0.15 for path in paths)
    assert incidents == []
