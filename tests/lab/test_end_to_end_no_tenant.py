"""An evening on which nobody else comes."""

from pathlib import Path

import pytest

from tests.lab import verdict
from tests.lab.configuration import Measuring
from tests.lab.evening import run_evening
from tests.lab.topology import Topology


@pytest.mark.timeout(360)
def test_without_a_tenant_nothing_is_flagged(tmp_path: Path) -> None:
    """Neither by its throughput nor by loss or delay: the queues are those of our own tests.

    The delay rule knows what is usual from a quiet stretch, and judges by it while the tests, which go on for more
    than two minutes, fill the uplinks' queues (10 ms).
    """
    topology = Topology({"r1": 2, "r2": 1})
    measuring = Measuring(planned=6, echo_rate=20, delay_min_samples=50)
    paths, incidents = run_evening(topology, measuring, tmp_path, quiet_s=20)
    assert verdict.faults(paths, incidents, topology) == []
    assert all(abs(path["swing_ratio"]) < 0.15 for path in paths)
    assert incidents == []
