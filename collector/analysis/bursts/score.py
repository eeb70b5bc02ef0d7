"""How well bursts and marks agree. Pure.

Trainers' marks are the truth, as far as they go: only nodes on which somebody marked are looked at. What a mark speaks
of is an *event*: all marks of one job, kind and step, or without a step those that begin within half a minute. A
*detection* is a cluster burst, or a burst that is in none, of a kind (save, restore) that somebody marks at all.

precision: detections with an event, of all. recall: events with a detection, of all. start error: start of the
detection less the first begin that was said, of those that agree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from collector.analysis.bursts.joining import AFTER_NS, Said, burst_kind, said, speaks_of
from collector.model import Burst, BurstScore, ClusterBurst, MarkRow


@dataclass(slots=True)
class _Event:
    job: str
    kind: str
    step: int | None
    from_ns: int
    to_ns: int
    nodes: set[str] = field(default_factory=set)


MOST_NAMED = 100


def score(clusters: Iterable[ClusterBurst], bursts: Iterable[Burst], marks: Iterable[MarkRow]) -> BurstScore:
    """Of all that is given: ended or open, in one stretch of time."""
    events = _events(said(marks))
    marking = {node for event in events for node in event.nodes}
    detections: list[tuple[str, str, int, int, int, frozenset[str]]] = [
        (one.burst_id, one.kind, one.start_time_ns, one.last_time_ns, one.error_ns, frozenset(one.nodes))
        for one in clusters
    ]
    detections += [
        (one.burst_id, one.kind, one.start_time_ns, one.last_time_ns, one.error_ns, frozenset({one.node}))
        for one in bursts
        if not one.cluster_id and one.confirmed
    ]
    spoken_of = {burst_kind(event.kind) for event in events}
    detections = [one for one in detections if one[1] in spoken_of and one[5] & marking]
    seen: set[int] = set()
    marked: set[str] = set()
    errors: dict[int, int] = {}
    for burst_id, kind, start_ns, last_ns, error_ns, nodes in sorted(detections, key=lambda one: (one[2], one[0])):
        for place, event in enumerate(events):
            stretch = Said("", event.kind, event.job, event.step, event.from_ns, event.to_ns)
            if nodes & event.nodes and speaks_of(stretch, kind, start_ns, last_ns, error_ns):
                seen.add(place)
                marked.add(burst_id)
                errors.setdefault(place, start_ns - event.from_ns)
    sizes = sorted(abs(error) for error in errors.values())
    return BurstScore(
        detections=len(detections),
        detections_marked=len(marked),
        events=len(events),
        events_detected=len(seen),
        precision_ratio=len(marked) / len(detections) if detections else None,
        recall_ratio=len(seen) / len(events) if events else None,
        start_error_median_ns=_quantile(sizes, 50),
        start_error_p90_ns=_quantile(sizes, 90),
        start_error_mean_ns=sum(errors.values()) // len(errors) if errors else None,
        unmarked=tuple(one[0] for one in detections if one[0] not in marked)[:MOST_NAMED],
        unseen=tuple(
            f"{event.job} {event.kind}" + (f" step {event.step}" if event.step is not None else "")
            for place, event in enumerate(events)
            if place not in seen
        )[:MOST_NAMED],
    )


def _events(stretches: Iterable[Said]) -> list[_Event]:
    found: list[_Event] = []
    newest: dict[tuple[str, str, int | None], _Event] = {}
    for one in sorted(stretches, key=lambda one: (one.from_ns, one.node)):
        if not burst_kind(one.kind):
            continue
        key = (one.job, burst_kind(one.kind), one.step)
        event = newest.get(key)
        # A job that went back after a failure saves a step a second time.
        if event is None or one.from_ns - event.from_ns > (AFTER_NS if one.step is None else 10 * AFTER_NS):
            event = newest[key] = _Event(one.job, one.kind, one.step, one.from_ns, one.to_ns)
            found.append(event)
        event.to_ns = max(event.to_ns, one.to_ns)
        event.nodes.add(one.node)
    return found


def _quantile(ordered: Sequence[int], percent: int) -> int | None:
    """Nearest rank."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)] if ordered else None
