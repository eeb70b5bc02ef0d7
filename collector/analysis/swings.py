"""Swings of all throughput paths, and what they are laid to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from collector.analysis import statistics, swing
from collector.analysis.elements import Topology
from collector.analysis.rules import oversubscription
from collector.analysis.rules.oversubscription import BLOCK_RULE, RULE, Judged
from collector.analysis.swing import Key, PathVerdict, Result
from collector.config import Config, OversubscriptionRule
from collector.model import Flag, Incident, PathRow, Swing

RackPair = tuple[str, str, str]  # from, to, lane
HourOf = tuple[str, str, str, str]  # and the hour of the local day, two digits
KEPT_NS = 86_400 * 1_000_000_000  # results are kept this much longer than the trailing period, for late ones


@dataclass(frozen=True, slots=True)
class _Names:
    zone: ZoneInfo
    peak: str
    offpeak: str


class Swings:
    """Valid results by path and engine class, judged anew when one comes or goes."""

    def __init__(self, config: Config, topology: Topology) -> None:
        self._rule: OversubscriptionRule = config.rules.oversubscription
        self._topology = topology
        self._paths: dict[int, PathRow] = {}
        self._results: dict[Key, dict[bytes, Result]] = {}
        self._class_of: dict[bytes, Key] = {}
        self._verdicts: dict[Key, PathVerdict] = {}
        self._judged: dict[Key, Judged] = {}
        self._blocks: dict[Key, Judged] = {}
        self._stale: set[Key] = set()
        self._changed: set[Key] = set()
        self._newest_ns = 0
        self._keys_of: dict[RackPair, dict[Key, None]] = {}
        self._stale_pairs: set[RackPair] = set()
        self._hours: dict[RackPair, dict[int, float]] = {}
        sites = {
            site.name: _Names(
                ZoneInfo(site.time_zone),
                "peak " + ", ".join(site.windows.peak),
                "off-peak " + ", ".join(site.windows.offpeak),
            )
            for site in config.sites
        }
        self._names: Mapping[str, _Names] = {node.name: sites[node.site] for node in config.nodes}

    def define(self, path: PathRow) -> None:
        """Says what a throughput path id means."""
        self._paths[path.path_id] = path

    def put(self, path_id: int, slot_id: bytes, result: Result | None) -> None:
        """Sets the valid result of a slot; None: it has none."""
        before = self._class_of.get(slot_id)
        if before is not None and (result is None or before != (path_id, result.engine_class)):
            del self._results[before][slot_id]
            del self._class_of[slot_id]
            self._stale.add(before)
        if result is None:
            return
        key = (path_id, result.engine_class)
        if self._results.setdefault(key, {}).get(slot_id) != result:
            self._results[key][slot_id] = result
            self._class_of[slot_id] = key
            self._stale.add(key)
            self._newest_ns = max(self._newest_ns, result.time_ns)

    @property
    def stale(self) -> bool:
        """Whether there is anything to judge anew."""
        return bool(self._stale)

    def judge(self, open_incidents: Sequence[Incident]) -> list[Flag]:
        """Judges what is new, or too old to stand, and lays the flagged paths to parts of the network."""
        oldest = self._newest_ns - self._rule.trailing - KEPT_NS
        for key, verdict in self._verdicts.items():
            if self._results[key] and verdict.swing.through_time_ns < oldest:
                self._stale.add(key)
        for key in sorted(self._stale):
            self._judge_path(key, oldest)
        self._changed |= self._stale
        self._stale.clear()
        flags: list[Flag] = []
        for rule, judged in ((RULE, self._judged), (BLOCK_RULE, self._blocks)):
            flags += oversubscription.judge(
                [judged[key] for key in sorted(judged)],
                [incident for incident in open_incidents if incident.rule == rule],
                self._topology,
                self._rule,
                rule=rule,
                time_ns=self._newest_ns,
            )
        return flags

    def _judge_path(self, key: Key, oldest_ns: int) -> None:
        self._judged.pop(key, None)
        self._blocks.pop(key, None)
        for slot_id, result in list(self._results[key].items()):
            if result.time_ns < oldest_ns:
                del self._results[key][slot_id]
                del self._class_of[slot_id]
        results = self._results[key].values()
        verdict = self._verdicts[key] = swing.judge(key, results, self._rule)
        path = self._paths.get(key[0])
        names = self._names.get(path.source.node) if path is not None else None
        if path is None or names is None:
            return
        pair = self._pair_of(path)
        if pair is not None:
            self._keys_of.setdefault(pair, {})[key] = None
            self._stale_pairs.add(pair)
        judged = oversubscription.judged_path(path, verdict, names.peak, names.offpeak)
        if judged is not None:
            self._judged[key] = judged
        if judged is None or judged.flagged_since_ns is None:  # one swing, one flag
            self._judge_blocks(key, path, names, results, verdict)

    def _judge_blocks(
        self,
        key: Key,
        path: PathRow,
        names: _Names,
        results: Iterable[Result],
        verdict: PathVerdict,
    ) -> None:
        blocks = swing.blocks(results, names.zone, self._rule)
        if blocks is None:
            return
        self._blocks[key] = Judged(
            path=path,
            flagged_since_ns=verdict.swing.through_time_ns if blocks.swing_ratio > self._rule.threshold else None,
            peak_bps=blocks.worst_bps,
            offpeak_bps=blocks.best_bps,
            tests_peak=blocks.worst_tests,
            tests_offpeak=blocks.best_tests,
            swing_ratio=blocks.swing_ratio,
            sources=blocks.sources,
            peak_name=_block_name(blocks.worst_hour),
            offpeak_name=_block_name(blocks.best_hour),
        )

    def take_changed(self) -> list[tuple[Swing, Result | None]]:
        """Swings judged anew since last asked, each with its newest result."""
        taken = [(self._verdicts[key].swing, self.newest(key)) for key in sorted(self._changed)]
        self._changed.clear()
        return taken

    def newest(self, key: Key) -> Result | None:
        """Newest valid result of a path and engine class."""
        return max(self._results.get(key, {}).values(), key=lambda result: result.time_ns, default=None)

    def paths(self) -> list[PathRow]:
        """All throughput paths."""
        return [self._paths[path_id] for path_id in sorted(self._paths)]

    def hours(self) -> Mapping[HourOf, float]:
        """Median of valid results in each hour of the local day over the trailing period, rack pair by rack pair; of
        the engine class that was measured last, because medians never mix classes."""
        for pair in self._stale_pairs:
            self._hours[pair] = self._hours_of(pair)
        self._stale_pairs.clear()
        return {(*pair, f"{hour:02d}"): bps for pair, of_pair in self._hours.items() for hour, bps in of_pair.items()}

    def _hours_of(self, pair: RackPair) -> dict[int, float]:
        by_class: dict[str, list[Result]] = {}
        for key in self._keys_of.get(pair, ()):
            by_class.setdefault(key[1], []).extend(self._results[key].values())
        newest = max(by_class.values(), key=lambda of_class: max((r.time_ns for r in of_class), default=0), default=[])
        if not newest:
            return {}
        zone = self._names[self._paths[next(iter(self._keys_of[pair]))[0]].source.node].zone
        medians = {
            hour: statistics.median([result.bps for result in found])
            for hour, found in swing.by_local_hour(newest, zone, self._rule.trailing).items()
        }
        return {hour: bps for hour, bps in medians.items() if bps is not None}

    def _pair_of(self, path: PathRow) -> RackPair | None:
        ends = (path.source, path.destination)
        places = [self._topology.place(end.node) if end is not None else None for end in ends]
        if places[0] is None or places[1] is None:
            return None
        return places[0].rack, places[1].rack, path.source.lane

    def all(self) -> list[Swing]:
        """All swings."""
        return [self._verdicts[key].swing for key in sorted(self._verdicts)]


def _block_name(hour: int) -> str:
    return f"{hour:02d}:00-{(hour + swing.BLOCK_HOURS) % 24:02d}:00"
