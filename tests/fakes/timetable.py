"""What must hold of any timetable, as one check for all tests."""

from collections import defaultdict
from collections.abc import Iterable

from collector.config import Config
from collector.model import SlotRow
from collector.planner.endpoints import capacity


def assert_no_token_is_held_beyond_its_capacity(slots: Iterable[SlotRow], config: Config) -> None:
    """At no moment do more tests hold a token than it allows."""
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for slot in slots:
        for token in slot.tokens:
            changes[token] += [(slot.start_time_ns - slot.margin_ns, 1), (slot.end_time_ns, -1)]
    for token, moments in changes.items():
        held = 0
        for time_ns, change in sorted(moments):  # an end comes before a start at the same moment
            held += change
            limit = capacity(token, config.measure.throughput.uplink_tokens)
            assert held <= limit, f"{token} is held {held} times at {time_ns}"
