"""What the rules get to see of the windows, and what becomes usual: never what our own tests did."""

from collections.abc import Sequence

import numpy as np
import pytest

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.doubts import Doubts
from collector.analysis.elements import Topology
from collector.analysis.loading import Loading
from collector.analysis.paths import PathIndex
from collector.analysis.rounds import Rounds
from collector.analysis.usual import Usual
from collector.analysis.views import Views
from collector.analysis.window import BUCKET_NS, WINDOW_NS
from collector.config import Rules
from collector.decode import Definitions
from collector.model import StoredWindow
from tests.fakes.measured_log import SECOND, echo_path, fleet_config

T0 = 1_767_225_600 * SECOND
MINUTE_NS = 60 * SECOND
HEALTHY_NS, QUEUED_NS = 100_000, 10_000_000
QUIET, LOADED = 66, 12  # windows
RULES = Rules()


class Nothing:
    """A store with no rows yet."""

    def rows(self, _: int) -> Sequence[StoredWindow]:
        return ()

    def next_start(self, _: int) -> int | None:
        return None

    def newest_start(self) -> int | None:
        return None


class Site:
    """Two paths: one shares a NIC with the tests of ours, the other shares nothing with them."""

    def __init__(self) -> None:
        self.paths = PathIndex(Topology(fleet_config(3)))
        for pair in (("r1n1", "r2n1"), ("r3n1", "r3n2")):
            self.paths.define(Definitions().path(echo_path(*pair)))
        self.rounds = Rounds(self.paths, Nothing())
        self.loading = Loading(self.paths)
        self.doubts = Doubts(self.paths)
        self.usual = Usual(self.paths, self.rounds, self.loading, self.doubts, RULES)
        self.views = Views(self.paths, self.rounds, self.loading, self.doubts, self.usual)

    def measure(self, start_ns: int, *, queued: Sequence[int] = ()) -> None:
        """Ten packets a bucket on both paths; in ``queued`` buckets the first one waits long, and loses half."""
        window = self.rounds.window(start_ns)
        for path in (0, 1):
            for bucket in range(WINDOW_NS // BUCKET_NS):
                times = start_ns + bucket * BUCKET_NS + np.arange(10, dtype=np.int64) * (BUCKET_NS // 10)
                outcomes = np.full(10, pb.PACKET_OUTCOME_REPLIED, np.uint8)
                delays = np.full(10, HEALTHY_NS, np.int64)
                if path == 0 and bucket in queued:
                    outcomes[::2], delays[:] = pb.PACKET_OUTCOME_LOST, QUEUED_NS
                    delays[::2] = -1
                window.add("n", np.full(10, path, np.intp), times, outcomes, delays)

    def load(self, from_ns: int, to_ns: int) -> None:
        """A test of ours on the NIC of the first path."""
        self.loading.put(b"slot", frozenset({"nic:r1n1/eth0"}), (from_ns, to_ns))

    def learn(self, windows: int) -> int:
        """All windows so far become usual; gives back the full minute after them."""
        for number in range(windows):
            self.usual.learn(T0 + number * WINDOW_NS)
        minute_ns = -(-(T0 + windows * WINDOW_NS) // MINUTE_NS) * MINUTE_NS
        self.usual.refresh(minute_ns, ())
        return minute_ns


@pytest.mark.parametrize("queued", [range(5), [2]])
def test_what_happens_under_a_test_of_ours_does_not_become_usual(queued: Sequence[int]) -> None:
    """One window in six is loaded, whole or for 2 s: neither its delay nor its loss is what the path always does."""
    site = Site()
    for number in range(QUIET + LOADED):
        start = T0 + number * WINDOW_NS
        loaded = number % 6 == 5
        site.measure(start, queued=queued if loaded else ())
        if loaded:
            span = (start + queued[0] * BUCKET_NS, start + (queued[-1] + 1) * BUCKET_NS)
            site.loading.put(number.to_bytes(2, "big"), frozenset({"nic:r1n1/eth0"}), span)
    site.learn(QUIET + LOADED)
    p99 = site.usual.p99_ns()
    assert HEALTHY_NS < p99[0] < 1.1 * HEALTHY_NS
    assert p99[0] == p99[1]
    assert site.usual.loss_ratios().tolist() == [RULES.loss.floor] * 2


def test_what_happens_without_a_test_of_ours_becomes_usual() -> None:
    site = Site()
    for number in range(QUIET + LOADED):
        site.measure(T0 + number * WINDOW_NS, queued=[0] if number % 6 == 5 else ())
    site.learn(QUIET + LOADED)
    p99 = site.usual.p99_ns()
    assert QUEUED_NS < p99[0] < 1.1 * QUEUED_NS
    assert site.usual.loss_ratios()[0] == 5 / 300


def test_the_rules_do_not_see_what_a_test_of_ours_loaded() -> None:
    """The delay rule loses whole windows, the loss rule buckets; a path that shares nothing loses neither."""
    site = Site()
    for number in range(QUIET):
        site.measure(T0 + number * WINDOW_NS)
    now_ns = site.learn(QUIET)
    assert now_ns == T0 + QUIET * WINDOW_NS
    for number in range(6):
        site.measure(now_ns + number * WINDOW_NS, queued=[1] if number == 2 else ())
    site.load(now_ns + 22 * SECOND, now_ns + 24 * SECOND)
    seen = site.views.delay(now_ns + 60 * SECOND, RULES.delay)
    assert seen is not None
    assert seen.samples.tolist() == [[50, 50, 0, 50, 50, 50], [50] * 6]
    assert not seen.slow.any()
    loss = site.views.loss(now_ns + 60 * SECOND, {})
    assert loss.sent[0].tolist() == [0 if bucket == 11 else 10 for bucket in range(30)]
    assert (loss.sent[1] == 10).all()
    assert not loss.lost.any()


def test_without_a_test_of_ours_the_rules_see_it() -> None:
    site = Site()
    for number in range(QUIET):
        site.measure(T0 + number * WINDOW_NS)
    now_ns = site.learn(QUIET)
    for number in range(6):
        site.measure(now_ns + number * WINDOW_NS, queued=[1] if number == 2 else ())
    seen = site.views.delay(now_ns + 60 * SECOND, RULES.delay)
    assert seen is not None
    assert seen.slow.tolist() == [[0, 0, 5, 0, 0, 0], [0] * 6]
    assert site.views.loss(now_ns + 60 * SECOND, {}).lost[0].tolist() == [5 * (b == 11) for b in range(30)]
