"""When an agent doubted its own delays: our own host's faults must not accuse the network.

A window of 10 s that a doubtful self-check touches is doubtful for all paths that begin at the agent's node, whatever
the reason was. It is doubtful too for paths that *end* there, as far as that host's part in the answer reaches:

- An echo or a refused connect is answered by the kernel, in softirq. A starved process takes no part in it. What slows
  the kernel itself does: slow or lost loopback, a hypervisor that took the CPU, suspend.
- A STAMP reply is stamped and sent by the reflector, a process: it suffers from all that a prober suffers from.

Such windows are kept and shown, and stay out of delay verdicts and baselines. Loss is not touched: a packet that did
not come back within its waiting time did not come back, however late we looked.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bandwitness.v1.record_pb2 import PROTOCOL_STAMP
from collector.analysis.paths import PathIndex
from collector.analysis.rounds import Span, union, window_start
from collector.analysis.window import BUCKET_NS, WINDOW_NS, Window
from collector.model import SelfCheckRow

# Reasons that say the kernel's own answers were late; a word of a later version is taken for one of these.
OF_THE_PROCESS = frozenset({"late", "starved"})
MAX_WINDOWS = 128  # from either end of one check; a host that slept measured nothing in between
KEPT_NS = 27 * 3600 * 1_000_000_000  # judging goes back a day, and learns two hours before that

Key = tuple[int, str]  # start of the window, node


class Doubts:
    """Doubtful windows of all agents."""

    def __init__(self, paths: PathIndex) -> None:
        self._paths = paths
        self._reasons: dict[int, dict[str, tuple[str, ...]]] = {}  # start -> node -> reasons in order of the alphabet
        self._changed: set[Key] = set()

    def put(self, check: SelfCheckRow) -> Span | None:
        """Takes in a check. Gives back the stretch of time for which that changed anything: only the ends of windows,
        since the delay rule looks at whole ones. Otherwise every check of a host in trouble would have it judged again.
        """
        if not check.reasons:
            return None
        span: Span | None = None
        for start in _starts(check.from_time_ns, check.to_time_ns):
            of_window = self._reasons.setdefault(start, {})
            known = of_window.get(check.node, ())
            reasons = tuple(sorted({*known, *check.reasons}))
            if reasons != known:
                of_window[check.node] = reasons
                self._changed.add((start, check.node))
                span = union(span, (start + WINDOW_NS - BUCKET_NS, start + WINDOW_NS))
        return span

    def restore(self, rows: Iterable[tuple[int, str, Sequence[str]]]) -> None:
        """Puts back what was stored: (start, node, reasons)."""
        for start, node, reasons in rows:
            self._reasons.setdefault(start, {})[node] = tuple(reasons)

    def take_changed(self) -> Sequence[tuple[int, str, Sequence[str]]]:
        """What is not stored yet."""
        rows = [(start, node, self._reasons[start][node]) for start, node in sorted(self._changed)]
        self._changed.clear()
        return rows

    def forget(self, before_ns: int) -> None:
        """Drops windows that end before a time and are stored."""
        fresh = {start for start, _ in self._changed}
        for start in [start for start in self._reasons if start + WINDOW_NS <= before_ns and start not in fresh]:
            del self._reasons[start]

    def mask(self, from_ns: int, windows: int) -> NDArray[np.bool_]:
        """[path, window]: whether the path's delays of that window are doubtful; windows follow on from ``from_ns``."""
        assert from_ns % WINDOW_NS == 0
        doubtful = np.zeros((len(self._paths), windows), np.bool_)
        for number in range(windows):
            doubtful[list(self._labels(from_ns + number * WINDOW_NS)), number] = True
        return doubtful

    def label(self, window: Window) -> None:
        """Writes into a window why each path is doubtful; closed rows for which that is new count as changed."""
        labels = self._labels(window.start_time_ns)
        if labels == window.doubtful:
            return
        window.grow(len(self._paths))
        for index in labels.keys() | window.doubtful.keys():
            if window.closed[index] and labels.get(index) != window.doubtful.get(index):
                window.changed[index] = True
        window.doubtful = labels

    def _labels(self, start_ns: int) -> dict[int, str]:
        """Path index -> reasons, of the sender and then of the one that answers (``peer_``)."""
        found: dict[int, list[str]] = {}
        of_window = self._reasons.get(start_ns, {})
        for node, reasons in of_window.items():
            for index in self._paths.of_agent(node):
                found.setdefault(index, []).extend(reasons)
        for node, reasons in of_window.items():
            of_kernel = [f"peer_{reason}" for reason in reasons if reason not in OF_THE_PROCESS]
            of_all = [f"peer_{reason}" for reason in reasons]
            for index in self._paths.to_node(node):
                words = of_all if self._paths.rows[index].protocol == PROTOCOL_STAMP else of_kernel
                if words:
                    found.setdefault(index, []).extend(words)
        return {index: " ".join(words) for index, words in found.items()}


def _starts(from_ns: int, to_ns: int) -> list[int]:
    """Starts of the windows that ``[from, to)`` touches; of very many those at both ends."""
    starts = range(window_start(from_ns), to_ns, WINDOW_NS)
    if len(starts) <= 2 * MAX_WINDOWS:
        return list(starts)
    return [*starts[:MAX_WINDOWS], *starts[-MAX_WINDOWS:]]
