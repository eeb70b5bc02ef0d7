"""STAMP of a pair, out of its paths."""

from bandwitness.v1.record_pb2 import LOSS_DIRECTION_EITHER, LOSS_DIRECTION_FORWARD, LOSS_DIRECTION_REVERSE
from collector.decode import Definitions
from collector.model import PathRow, PortLoss
from collector.store.pairs import fold_pairs
from tests.fakes.measured_log import stamp_path


def paths(source: str, destination: str) -> list[PathRow]:
    return [Definitions().path(stamp_path(source, destination, port)) for port in (61_001, 61_000, 61_002)]


def test_ports_stand_by_themselves_and_together_and_what_has_no_direction_is_said() -> None:
    there, back = paths("r1n1", "r2n1"), paths("r2n1", "r1n1")
    counted = {there[0].path_id: (100, 9), there[1].path_id: (100, 0), back[0].path_id: (50, 0)}
    directed: dict[tuple[int, int], int] = {
        (there[0].path_id, LOSS_DIRECTION_FORWARD): 5,
        (there[0].path_id, LOSS_DIRECTION_REVERSE): 1,
        (there[0].path_id, LOSS_DIRECTION_EITHER): 2,  # one more has no reply behind it yet
    }
    first, second = fold_pairs(there + back, counted, directed)
    assert (first.src, first.dst, first.sent, first.lost, first.loss_ratio) == ("r1n1", "r2n1", 200, 9, 0.045)
    assert (first.forward_lost, first.reverse_lost, first.either_lost) == (5, 1, 3)
    assert first.ports == [PortLoss(61_000, 100, 0, 0, 0), PortLoss(61_001, 100, 9, 5, 1)]
    assert (second.src, second.lost, second.either_lost) == ("r2n1", 0, 0)


def test_a_gap_that_goes_on_behind_the_last_window_is_no_more_than_what_was_lost_in_it() -> None:
    path = paths("r1n1", "r2n1")[0]
    one_way: dict[tuple[int, int], int] = {(path.path_id, LOSS_DIRECTION_FORWARD): 12}
    (pair,) = fold_pairs([path], {path.path_id: (100, 9)}, one_way)
    assert (pair.lost, pair.forward_lost, pair.reverse_lost, pair.either_lost) == (9, 9, 0, 0)
    (pair,) = fold_pairs([path], {path.path_id: (100, 9)}, one_way | {(path.path_id, LOSS_DIRECTION_REVERSE): 6})
    assert (pair.lost, pair.forward_lost, pair.reverse_lost, pair.either_lost) == (9, 6, 3, 0)
    assert (pair.ports[0].forward_lost, pair.ports[0].reverse_lost) == (6, 3)


def test_a_pair_that_sent_nothing_is_left_out() -> None:
    assert fold_pairs(paths("r1n1", "r2n1"), {}, {}) == []
