"""Benches for the tests of analysis."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.config import Config
from tests.fakes.analysis_bench import Bench, MakeBench
from tests.fakes.measured_log import MeasuredLog


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    """Makes benches, each with a store of its own."""
    made: list[Bench] = []

    def make(log: MeasuredLog, config: Config) -> Bench:
        made.append(Bench(tmp_path / f"store{len(made)}.sqlite", log, config))
        return made[-1]

    yield make
    for bench in made:
        bench.close()
