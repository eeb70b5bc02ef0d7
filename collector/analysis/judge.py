"""Loss and delay judged in event time: every 2 s what the windows behind it show.

What a judge says at a time depends on the windows up to there and on its state, and the state is small: open
incidents, and what they hold fixed. It is written down once a minute, so judging can start again from any minute of
the past when late data have come.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from collector.analysis.contention import Contention
from collector.analysis.doubts import Doubts
from collector.analysis.incidents import Book, Change
from collector.analysis.loading import Loading
from collector.analysis.nic_figures import NOBODY, NicFigures, RowsOf
from collector.analysis.occasions import NO_BURSTS, Occasions
from collector.analysis.paths import PathIndex
from collector.analysis.rounds import Rounds
from collector.analysis.rules import burst_contention, delay, loss
from collector.analysis.state import State
from collector.analysis.usual import AFTER_NS, MINUTE_NS, Usual, accused
from collector.analysis.views import SPAN_NS, Views
from collector.analysis.window import BUCKET_NS, SECOND, WINDOW_NS
from collector.config import Rules
from collector.model import Flag, Incident

UNSEEN_NS = 3600 * SECOND  # an incident nobody measures any more is closed after this
RULES = (loss.RULE, delay.RULE, burst_contention.RULE)


@dataclass(frozen=True, slots=True)
class Network:
    """What has been measured, and how it hangs together."""

    paths: PathIndex
    rounds: Rounds
    loading: Loading
    doubts: Doubts
    bursts: Occasions = NO_BURSTS
    nic_rows: RowsOf = NOBODY  # of nic_windows, those not written yet included


class Judge:
    """Runs the loss and delay rules from one moment on."""

    def __init__(
        self, network: Network, rules: Rules, through_ns: int, state: State, checkpoints: Mapping[int, str]
    ) -> None:
        """Takes up judging behind ``through_ns``.

        Args:
            network: what is known by now.
            rules: thresholds.
            through_ns: last moment judged, a multiple of 2 s.
            state: as it was right after that moment.
            checkpoints: states by minute over the trailing baseline period, where not empty.
        """
        self._rounds, self._rules = network.rounds, rules
        self.through_ns = through_ns
        self.errors: dict[str, int] = {}  # times a rule failed
        self._book = Book(state.incidents)
        self._over_until = dict(state.over_until)
        self._seen = dict(state.seen_ns)
        self._usual = Usual(
            network.paths, network.rounds, network.loading, network.doubts, rules, bursts=network.bursts
        )
        self._views = Views(network.paths, network.rounds, network.loading, network.doubts, self._usual)
        windows = (network.paths, network.rounds, network.loading, network.doubts)
        figures = NicFigures(network.nic_rows, network.loading, network.bursts, rules.burst_contention)
        self._contention = Contention(windows, self._usual, network.bursts, figures, rules)
        self._usual.take_up(
            through_ns,
            {minute: accused(State.decode(text).incidents) for minute, text in checkpoints.items()},
            state.frozen_p99_ns,
        )

    def advance(self, to_ns: int) -> tuple[list[Change], dict[int, str]]:
        """Judges every moment up to ``to_ns``. Gives back what changed, and the states at the minutes passed."""
        changes: list[Change] = []
        minutes: dict[int, str] = {}
        last = to_ns // BUCKET_NS * BUCKET_NS
        while self.through_ns < last:
            self._skip(last)
            if self.through_ns >= last:
                break
            self.through_ns += BUCKET_NS
            changes += self._moment(self.through_ns)
            if self.through_ns % MINUTE_NS == 0:
                minutes[self.through_ns] = self.state().encode()
        return changes, minutes

    def state(self) -> State:
        """What is to be written down now."""
        slow = accused(self._book.open())[1]
        return State(self._book.open(), dict(self._over_until), self._usual.frozen(slow) if slow else {}, self._seen)

    def open(self) -> list[Incident]:
        """Open incidents."""
        return self._book.open()

    def _skip(self, last_ns: int) -> None:
        """Passes over time in which there is nothing to judge: no window, no incident, nothing to learn."""
        if self._book.open() or self._over_until:
            return
        following = self._rounds.next_start(self.through_ns - AFTER_NS - WINDOW_NS)
        if following is not None and following <= self.through_ns:
            return
        self.through_ns = last_ns if following is None else min(following, last_ns)
        self._usual.refresh(self.through_ns // MINUTE_NS * MINUTE_NS, ())

    def _moment(self, time_ns: int) -> list[Change]:
        self._over_until = {element: until for element, until in self._over_until.items() if until > time_ns - SPAN_NS}
        if time_ns % WINDOW_NS == 0:
            self._usual.learn(time_ns - AFTER_NS - WINDOW_NS)
        if time_ns % MINUTE_NS == 0:
            self._usual.refresh(time_ns, accused(self._book.open())[1])
        changes = self._run(loss.RULE, time_ns)
        if time_ns % WINDOW_NS == 0:
            changes += self._run(delay.RULE, time_ns)
        changes += self._run(burst_contention.RULE, time_ns)
        if time_ns % MINUTE_NS == 0:
            changes += self._close_unseen(time_ns)
            self._usual.note(time_ns, accused(self._book.open()))
        return changes

    def _run(self, rule: str, time_ns: int) -> list[Change]:
        judge = {loss.RULE: self._loss, delay.RULE: self._delay, burst_contention.RULE: self._bursts}[rule]
        try:
            changes = self._book.apply(judge(time_ns))
        except Exception:  # noqa: BLE001 - a fault in one rule costs only itself, and is counted
            self.errors[rule] = self.errors.get(rule, 0) + 1
            return []
        for change in changes:
            if rule == loss.RULE and change.incident.closed_time_ns is not None:
                self._over_until[change.incident.element] = change.incident.closed_time_ns
        return changes

    def _loss(self, time_ns: int) -> list[Flag]:
        opened = self._book.open(loss.RULE)
        if not opened and not self._views.any_lost(time_ns):
            return []
        flags = loss.judge(self._views.loss(time_ns, self._over_until), opened, self._rules.loss)
        return self._contention.told_of(flags, opened, time_ns)

    def _delay(self, time_ns: int) -> list[Flag]:
        view = self._views.delay(time_ns, self._rules.delay)
        if view is None:
            return []
        opened = self._book.open(delay.RULE)
        return self._contention.told_of(delay.judge(view, opened), opened, time_ns)

    def _bursts(self, time_ns: int) -> list[Flag]:
        return self._contention.judge(time_ns, self._book.open())

    def _close_unseen(self, time_ns: int) -> list[Change]:
        changes = []
        seen: dict[str, int] = {}
        for incident in self._book.open():
            last = self._seen.get(incident.incident_id, incident.updated_time_ns)
            if self._views.measured(time_ns, incident.element):
                last = time_ns
            if time_ns - last >= UNSEEN_NS:
                changes.append(self._book.close(incident, last, time_ns, "no measurements"))
            else:
                seen[incident.incident_id] = last
        self._seen = seen
        return changes
