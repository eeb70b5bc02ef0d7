"""When throughput tests stay out of the way: an open mark, a burst on one of this node's NICs, or somebody's word.

Joins parts that do not know each other. What our own tests do to a NIC is no burst: those that run, or ran until just
now, are left out by NIC and direction.
"""

from collections.abc import Callable, Collection, Sequence

from agent.sample.mark_book import OpenMark
from agent.schedule import Hold

MAX_NAMED = 3

Load = tuple[str, str]  # NIC, "receive" or "transmit"


class Quiet:
    """Says what holds tests off.

    Args:
        marks: that are open.
        bursts: NICs and directions in a burst, by the sampler's quick word; what a burst was, the collector says later.
        own_loads: NICs and directions that carry a test of ours.
        paused: why tests are paused here; empty when they are not.
    """

    def __init__(
        self,
        *,
        marks: Callable[[], Sequence[OpenMark]],
        bursts: Callable[[], Collection[Load]],
        own_loads: Callable[[], Collection[Load]],
        paused: Callable[[], str] = lambda: "",
    ) -> None:
        self._marks = marks
        self._bursts = bursts
        self._own_loads = own_loads
        self._paused = paused

    def hold(self) -> Hold | None:
        """What keeps tests out just now. A pause is named first: it is somebody's decision."""
        paused = self._paused()
        if paused:
            return Hold(paused, paused=True, count=0)
        marks = self._marks()
        bursts = sorted(set(self._bursts()) - set(self._own_loads()))
        if not marks and not bursts:
            return None
        words = [f"mark open: {mark}" for mark in marks[:MAX_NAMED]]
        words += [f"burst on {nic} ({direction})" for nic, direction in bursts[:MAX_NAMED]]
        more = len(marks) + len(bursts) - len(words)
        detail = "; ".join(words) + (f"; and {more} more" if more else "")
        return Hold(detail, count=len(marks) + len(bursts))
