"""Path MTU: faults of many paths laid to what they share, so that one bad uplink is one incident. Pure.

A path that carries less is laid to the part of the network with the most such paths on which no path has been checked
and found whole since the first of them failed; of equals to the smallest, and alone to itself. Checks are an hour
apart, so the part grows as they come in. It stays the one until the last of its paths is whole again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from collector.analysis.elements import KINDS
from collector.analysis.paths import PathIndex
from collector.model import Element, Flag, Incident, Source

MAX_SOURCES = 50  # records an incident names, the newest


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found by now. All by path id."""

    paths: PathIndex
    faulty: Collection[int]
    whole: Mapping[int, int]  # when it was last checked and found whole


def holder(path_id: int, element: Element, opened: Sequence[Incident]) -> Incident | None:
    """The open incident that a path is part of."""
    name = f"{path_id:016x}"
    return next((incident for incident in opened if incident.element == element or name in incident.children), None)


def pooled(flag: Flag, path_id: int, checked: Checked, opened: Sequence[Incident]) -> list[Flag]:
    """What is said in place of ``flag``, which is of one path; ``opened`` are this rule's incidents."""
    known = holder(path_id, flag.element, opened)
    if not flag.raised:
        left = _left(known, checked) if known is not None else []
        return [] if known is None or left else [replace(flag, element=known.element)]
    element, faulty = _blamed(path_id, flag, checked, opened, known)
    names = {f"{one:016x}" for one in faulty}
    replaced = [one for one in opened if one.element != element and names.intersection(one.children)]
    replaced = [one for one in replaced if set(_left(one, checked)) <= set(faulty)]
    before = [one for one in opened if one.element == element] + replaced
    sources: list[Source] = list(flag.evidence)
    sources += [source for one in before for source in one.evidence if source not in sources]
    newest = sorted(sources, key=lambda source: (-source.position, -source.record_index))[:MAX_SOURCES]
    worst = "critical" if any(one.severity == "critical" for one in before) else flag.severity
    return [
        replace(
            flag,
            element=element,
            severity=worst,
            values={**flag.values, "paths": len(faulty)},
            children=sorted(names),
            evidence=newest,
            replaces=[one.element for one in replaced],
        )
    ]


def _blamed(
    path_id: int, flag: Flag, checked: Checked, opened: Sequence[Incident], known: Incident | None
) -> tuple[Element, list[int]]:
    """The element, and the faulty paths that cross it."""
    index = checked.paths.find(path_id)
    assert index is not None
    best, found = flag.element, [path_id]
    crossed = checked.paths.topology.elements(checked.paths.rows[index])
    for element in sorted(crossed, key=lambda one: (KINDS.index(one.kind), one.name)):
        faulty = _faulty_of(element, checked)
        stays = known is not None and element == known.element
        if len(faulty) > len(found) and (stays or _is_faulty_throughout(element, faulty, flag, checked, opened)):
            best, found = element, faulty
    return best, found


def _faulty_of(element: Element, checked: Checked) -> list[int]:
    rows, topology = checked.paths.rows, checked.paths.topology
    found = []
    for path_id in checked.faulty:
        index = checked.paths.find(path_id)
        if index is not None and element in topology.elements(rows[index]):
            found.append(path_id)
    return sorted(found)


def _is_faulty_throughout(
    element: Element, faulty: Sequence[int], flag: Flag, checked: Checked, opened: Sequence[Incident]
) -> bool:
    """No path that crosses it was found whole since the first of these failed."""
    names = {f"{path_id:016x}" for path_id in faulty}
    since_ns = min(
        (incident.opened_time_ns for incident in opened if names.intersection(incident.children)), default=flag.time_ns
    )
    crossing = checked.paths.membership.paths_of(element).tolist()
    return all(checked.whole.get(checked.paths.ids[index], -1) < since_ns for index in crossing)


def _left(incident: Incident, checked: Checked) -> list[int]:
    return [path_id for path_id in (int(child, 16) for child in incident.children) if path_id in checked.faulty]
