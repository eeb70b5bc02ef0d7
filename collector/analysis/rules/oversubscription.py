"""Oversubscription, grade 0: an alert, never a claim. Flagged paths are laid to the smallest part that explains them.

Which paths are flagged, ``swing`` says path by path. Here they are grouped: a part of the network (with direction)
explains flagged paths when most of the judged paths that cross it are flagged. In-rack paths cross no uplink and are
the controls: where they are flagged too, the host or the rack is named and not its uplink. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collector.analysis import statistics
from collector.analysis.elements import KINDS, Topology, path_name
from collector.analysis.swing import PathVerdict
from collector.config import OversubscriptionRule
from collector.model import Element, Flag, Incident, PathRow, Source

RULE = "oversubscription"
BLOCK_RULE = "oversubscription_block"
VERSION = 1
HIT_RATIO = 0.6  # of the judged paths that cross the part: near the threshold some are always below it
MIN_PATHS = 2
SECOND = 1_000_000_000
_DIRECTIONS = ("out", "in", "both")


@dataclass(frozen=True, slots=True)
class Judged:
    """One throughput path with enough tests, and since when it is flagged (None: it is not)."""

    path: PathRow
    flagged_since_ns: int | None
    peak_bps: float
    offpeak_bps: float
    tests_peak: int
    tests_offpeak: int
    swing_ratio: float
    sources: Sequence[Source]
    peak_name: str
    offpeak_name: str


def parts(path: PathRow, topology: Topology) -> list[tuple[Element, str]]:
    """What a test crosses, with the direction seen from that part."""
    found = [(Element("path", path_name(path)), "both")]
    ends = (("out", path.source), ("in", path.destination))
    for direction, end in ends:
        if end is not None:
            element = Element("endpoint", f"{end.node}/{end.nic}")
            found += [(element, direction), (element, "both")]
    places = [topology.place(end.node) if end is not None else None for _, end in ends]
    source, destination = places
    if source is None or destination is None:
        return found
    for rack in sorted({source.rack, destination.rack}):
        found.append((Element("rack", rack), "both"))
    if source.uplink != destination.uplink:
        pair = "|".join(sorted((source.rack, destination.rack)))
        found += [(Element("rack_pair", pair), "both"), (Element("fabric", "all"), "both")]
        found += [(Element("rack_pair", pair), f"{source.rack} to {destination.rack}")]
        for direction, place in (("out", source), ("in", destination)):
            found += [(Element("uplink", place.rack), direction), (Element("uplink", place.rack), "both")]
    if source.site != destination.site:
        found.append((Element("site_link", "|".join(sorted((source.site, destination.site)))), "both"))
    return found


@dataclass(frozen=True, slots=True)
class Group:
    """One part and the flagged paths it explains."""

    element: Element
    direction: str
    flagged: Sequence[Judged]
    judged: int


def groups(judged: Iterable[Judged], topology: Topology) -> list[Group]:
    """Parts that explain all flagged paths, each path in one group; the part that explains most comes first."""
    crossing: dict[tuple[Element, str], list[Judged]] = {}
    for entry in judged:
        for part in parts(entry.path, topology):
            crossing.setdefault(part, []).append(entry)
    left = {entry.path.path_id for members in crossing.values() for entry in members if entry.flagged_since_ns}
    found: list[Group] = []
    while left:
        best: list[tuple[Element, str]] = []
        most = 0
        for part, members in crossing.items():
            hit = sum(entry.flagged_since_ns is not None for entry in members)
            new = sum(entry.path.path_id in left for entry in members)
            explains = part[0].kind == "path" or (hit >= MIN_PATHS and hit >= HIT_RATIO * len(members))
            if explains and new > most:
                best, most = [part], new
            elif explains and new == most and new:
                best.append(part)
        chosen = _smallest(best, crossing)
        members = crossing[chosen]
        flagged = [entry for entry in members if entry.path.path_id in left]
        found.append(Group(*chosen, flagged, len(members)))
        left -= {entry.path.path_id for entry in flagged}
    return found


def _smallest(
    tied: Sequence[tuple[Element, str]], crossing: Mapping[tuple[Element, str], list[Judged]]
) -> tuple[Element, str]:
    """Of parts that explain as many: the one with the fewest judged paths, then the smaller kind and the narrower
    direction. Two uplinks (or two NICs) that explain equally are both passed over for what lies between them."""
    fewest = min(len(crossing[part]) for part in tied)
    smallest = [part for part in tied if len(crossing[part]) == fewest]
    names = {kind: {part[0].name for part in smallest if part[0].kind == kind} for kind in KINDS}
    single = [part for part in smallest if len(names[part[0].kind]) == 1] or smallest
    return min(single, key=lambda part: (KINDS.index(part[0].kind), part[1] == "both", part[1], part[0].name))


def judge(
    judged: Sequence[Judged],
    open_incidents: Sequence[Incident],
    topology: Topology,
    setting: OversubscriptionRule,
    *,
    rule: str,
    time_ns: int,
) -> list[Flag]:
    """Flags over all throughput paths at one moment.

    An incident whose paths are now explained by another part moves there; one with no flagged path left is clean.
    """
    flags: list[Flag] = []
    taken: set[Element] = set()
    found = groups(judged, topology)
    elements = {group.element for group in found}
    for group in found:
        children = {f"{entry.path.path_id:016x}" for entry in group.flagged}
        replaced = [
            incident.element
            for incident in open_incidents
            if incident.element not in elements | taken and children & set(incident.children)
        ]
        taken.update(replaced)
        known = any(incident.element == group.element for incident in open_incidents)
        since = min(entry.flagged_since_ns or time_ns for entry in group.flagged)
        flags.append(_flag(group, judged, setting, rule, time_ns=time_ns if known else since, replaced=replaced))
    flags += [
        Flag(rule, VERSION, incident.element, time_ns, "warning", False, {"clean_since_ns": time_ns})
        for incident in open_incidents
        if incident.element not in elements | taken
    ]
    return flags


def _flag(
    group: Group,
    judged: Sequence[Judged],
    setting: OversubscriptionRule,
    rule: str,
    *,
    time_ns: int,
    replaced: Sequence[Element],
) -> Flag:
    flagged = group.flagged
    peak = statistics.median([entry.peak_bps for entry in flagged]) or 0.0
    offpeak = statistics.median([entry.offpeak_bps for entry in flagged]) or 0.0
    controls = [entry for entry in judged if entry.flagged_since_ns is None]
    return Flag(
        rule=rule,
        rule_version=VERSION,
        element=group.element,
        time_ns=time_ns,
        severity="warning",
        raised=True,
        values={
            "direction": group.direction,
            "peak_bps": peak,
            "offpeak_bps": offpeak,
            "swing_ratio": statistics.median([entry.swing_ratio for entry in flagged]) or 0.0,
            "tests_peak": sum(entry.tests_peak for entry in flagged),
            "tests_offpeak": sum(entry.tests_offpeak for entry in flagged),
            "min_tests_peak": min(entry.tests_peak for entry in flagged),
            "min_tests_offpeak": min(entry.tests_offpeak for entry in flagged),
            "threshold_ratio": setting.threshold,
            "trailing_s": setting.trailing // SECOND,
            "peak_name": flagged[0].peak_name,
            "offpeak_name": flagged[0].offpeak_name,
            "paths_flagged": len(flagged),
            "paths_judged": group.judged,
            "controls": len(controls),
            "grade": 0,
        },
        children=[f"{entry.path.path_id:016x}" for entry in flagged],
        evidence=[source for entry in flagged for source in entry.sources],
        replaces=tuple(replaced),
    )


def judged_path(path: PathRow, verdict: PathVerdict, peak_name: str, offpeak_name: str) -> Judged | None:
    """A path's verdict for grouping; None where there is no swing to speak of."""
    swing = verdict.swing
    if swing.swing_ratio is None or swing.peak_bps is None or swing.offpeak_bps is None:
        return None
    return Judged(
        path=path,
        flagged_since_ns=verdict.flagged_since_ns,
        peak_bps=swing.peak_bps,
        offpeak_bps=swing.offpeak_bps,
        tests_peak=swing.tests_peak,
        tests_offpeak=swing.tests_offpeak,
        swing_ratio=swing.swing_ratio,
        sources=swing.evidence,
        peak_name=peak_name,
        offpeak_name=offpeak_name,
    )
