"""When a test of ours loads which paths."""

import numpy as np

from collector.analysis.elements import Topology
from collector.analysis.loading import Loading, stretch
from collector.analysis.paths import PathIndex
from collector.analysis.window import BUCKET_NS, WINDOW_NS, Window
from collector.decode import Definitions
from tests.fakes.measured_log import SECOND, echo_path, fleet_config

T0 = 1_767_225_600 * SECOND
PAIRS = [("r1n1", "r1n2"), ("r1n1", "r2n1"), ("r1n2", "r2n2"), ("r2n1", "r2n2"), ("r3n1", "r3n2"), ("r3n1", "r2n2")]


def network() -> tuple[PathIndex, Loading]:
    index = PathIndex(Topology(fleet_config(3)))
    for pair in PAIRS:
        index.define(Definitions().path(echo_path(*pair)))
    return index, Loading(index)


def tokens(index: PathIndex, source: str, destination: str) -> frozenset[str]:
    return index.topology.path_tokens(Definitions().path(echo_path(source, destination)))


def test_tokens_are_named_as_the_planner_names_them() -> None:
    index, _ = network()
    assert tokens(index, "r1n1", "r2n1") == {"nic:r1n1/eth0", "nic:r2n1/eth0", "uplink:s/r1", "uplink:s/r2"}
    assert tokens(index, "r1n1", "r1n2") == {"nic:r1n1/eth0", "nic:r1n2/eth0"}


def test_a_cross_rack_test_loads_all_that_shares_a_nic_or_an_uplink() -> None:
    index, loading = network()
    loading.put(b"slot", tokens(index, "r1n1", "r2n1"), stretch(T0 + 10 * SECOND, T0 + 24 * SECOND, None))
    loaded = loading.mask(T0, BUCKET_NS, 15)
    shares = [True, True, True, True, False, True]
    assert loaded.any(axis=1).tolist() == shares
    # From 100 ms before its start, so the bucket before it; to the end of its margin.
    assert np.flatnonzero(loaded[1]).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    loading.put(b"slot", tokens(index, "r1n1", "r2n1"), stretch(T0 + 10 * SECOND, T0 + 24 * SECOND + 1, None))
    assert np.flatnonzero(loading.mask(T0, BUCKET_NS, 15)[1]).tolist()[-1] == 12  # of which it touches the beginning


def test_the_real_end_counts_when_it_is_later_or_much_earlier() -> None:
    planned = (100 * SECOND, 114 * SECOND)
    assert stretch(*planned, None)[1] == 114 * SECOND
    assert stretch(*planned, 112 * SECOND)[1] == 114 * SECOND
    assert stretch(*planned, 101 * SECOND)[1] == 101 * SECOND + SECOND // 10
    assert stretch(*planned, 120 * SECOND)[1] == 120 * SECOND + SECOND // 10


def test_no_record_makes_a_slot_load_for_ever() -> None:
    planned = (100 * SECOND, 114 * SECOND)
    assert stretch(*planned, (1 << 62) - 1)[1] == 174 * SECOND
    index, loading = network()
    loading.put(b"slot", tokens(index, "r1n1", "r2n1"), stretch(*planned, 86_400 * SECOND))
    assert loading.overlapping(200 * SECOND, 100_000 * SECOND) == []


def test_what_a_change_touches() -> None:
    index, loading = network()
    held = tokens(index, "r1n1", "r2n1")
    assert loading.put(b"slot", held, (100, 200)) == (100, 200)
    assert loading.put(b"slot", held, (100, 200)) is None
    assert loading.put(b"slot", held, (100, 250)) == (200, 250)
    assert loading.put(b"slot", held, (100, 150)) == (150, 250)
    assert loading.put(b"slot", held, None) == (100, 150)
    assert loading.put(b"slot", held, None) is None
    assert loading.overlapping(0, 1000) == []


def test_a_window_names_the_slot_that_loaded_it() -> None:
    index, loading = network()
    window = Window(T0)
    window.grow(len(index))
    window.closed[:] = True
    loading.put(b"slot", tokens(index, "r1n1", "r1n2"), (T0 - 5 * SECOND, T0 + SECOND))
    loading.label(window)
    assert window.loaded_by == {0: b"slot", 1: b"slot", 2: b"slot"}  # by its NIC
    assert np.flatnonzero(window.changed).tolist() == [0, 1, 2]
    window.changed[:] = False
    loading.label(window)
    assert not window.changed.any()
    later = Window(T0 + WINDOW_NS)
    loading.label(later)
    assert later.loaded_by == {}
