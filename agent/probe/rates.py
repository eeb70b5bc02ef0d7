"""How many packets a second targets ask for. Pure.

Guard: ``Plan.max_probes_per_second`` limits all round-trip probes of a node together. Each kind gets what the others'
targets leave; what is over it is not sent, and said.
"""

from collections.abc import Iterable

from agent.probe.path_slots import MAX_RATE
from bandwitness.v1.plan_pb2 import Plan, RoundTripTarget, StampTarget

SECOND_NS = 1_000_000_000


def rate_of(targets: Iterable[RoundTripTarget]) -> float:
    """Packets a second, each name counted as one address."""
    return sum(SECOND_NS / target.interval_ns for target in targets if target.interval_ns)


def stamp_rate_of(targets: Iterable[StampTarget]) -> float:
    """The same of STAMP targets, over all their source ports."""
    return sum(
        (len(target.source_port) + target.rotating_ports) * SECOND_NS / target.interval_ns
        for target in targets
        if target.interval_ns
    )


def limits(plan: Plan) -> tuple[float, float]:
    """Packets a second that the plan allows its round-trip targets, and its STAMP targets."""
    if not plan.max_probes_per_second:
        return MAX_RATE, MAX_RATE
    most = min(float(plan.max_probes_per_second), MAX_RATE)
    return max(0.0, most - stamp_rate_of(plan.stamp)), max(0.0, most - rate_of(plan.round_trip))
