"""Whether a stable subset of source ports loses, or all: seeded losses of both kinds."""

import numpy as np
import pytest

from collector.analysis.rules.ports import describe, describe_slow

PORTS = np.arange(61_000, 61_016)
BUCKETS = 30


def matrices(sent: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full((len(PORTS), BUCKETS), float(sent)), np.zeros((len(PORTS), BUCKETS))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_one_bad_member_of_four_is_a_stable_subset(seed: int, ratio: float) -> None:
    sent, lost = matrices(2)
    bad = [1, 6, 7, 13]
    lost[bad, 10:] = np.random.default_rng(seed).binomial(2, ratio, (4, 20))
    found = describe(PORTS, sent, lost)
    assert found == {
        "ports_pattern": "some",
        "ports_lossy": 4,
        "ports_probed": 16,
        "lossy_ports": "61001 61006 61007 61013",
    }


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("ratio", [0.02, 0.2, 1.0])
def test_loss_of_all_is_never_called_a_subset_but_by_the_chance_allowed(seed: int, ratio: float) -> None:
    sent, lost = matrices(2)
    lost[:, 5:] = np.random.default_rng(1000 + seed).binomial(2, ratio, (16, 25))
    found = describe(PORTS, sent, lost)
    assert found["ports_pattern"] in ("all", "unclear")
    if ratio >= 0.2:
        assert found["ports_pattern"] == "all"
        assert found["ports_lossy"] == 16


def test_losses_of_one_moment_alone_say_nothing_yet() -> None:
    sent, lost = matrices(2)
    lost[3, 29] = 2
    assert describe(PORTS, sent, lost)["ports_pattern"] == "unclear"


def test_paths_without_a_port_of_their_own_are_left_out_and_pairs_add_up() -> None:
    sent, lost = matrices(1)
    lost[2, ::2] = 1
    ports = np.concatenate([np.zeros(1, np.int64), PORTS, PORTS])
    echo = np.ones((1, BUCKETS))
    found = describe(ports, np.concatenate([echo, sent, sent]), np.concatenate([echo, lost, lost]))
    assert (found["ports_pattern"], found["lossy_ports"], found["ports_probed"]) == ("some", "61002", 16)


def test_nothing_is_said_without_ports_to_compare_or_without_loss() -> None:
    sent, lost = matrices(1)
    assert describe(PORTS, sent, lost) == {}
    lost[0] = 1
    assert describe(np.zeros(16, np.int64), sent, lost) == {}
    assert describe(PORTS[:1], sent[:1], lost[:1]) == {}


def test_of_many_ports_one_is_not_named_for_what_chance_does_to_one_of_so_many() -> None:
    slow = np.zeros(20)
    slow[3] = 5  # of 100, where 1 is usual: 3 in 1,000 by chance, and 20 ports are asked
    names = np.arange(61_000, 61_020)
    assert describe_slow(names, np.full(20, 100.0), slow, 0.01) == {}
    assert describe_slow(names[2:4], np.full(2, 100.0), slow[2:4], 0.01)["slow_ports"] == "61003"


def test_a_port_that_sent_nothing_was_not_probed() -> None:
    sent, lost = np.full((3, 10), 10.0), np.zeros((3, 10))
    lost[:2] = 1
    sent[2] = 0
    found = describe(np.array([61_000, 61_001, 61_002]), sent, lost)
    assert (found["ports_pattern"], found["ports_lossy"], found["ports_probed"]) == ("all", 2, 2)
