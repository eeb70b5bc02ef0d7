"""How the demo shows itself: a live panel on a terminal, plain lines elsewhere, and the tables at the end."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Item = Mapping[str, Any]
LINE_EVERY_S = 5.0
SHOWN_RESULTS = 6
SHOWN_METRICS = (
    "swing_ratio",
    "offpeak_throughput_bytes_per_second",
    "peak_throughput_bytes_per_second",
    "incident_active",
)


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a run. ``results`` are the API's timetable items of tests that ended, the newest first."""

    phase: str
    left_s: float  # of the phase
    whole_s: float
    done: int
    planned: int
    results: Sequence[Item] = ()


def mbps(rate_bps: float | None) -> str:
    return "–" if rate_bps is None else f"{rate_bps / 1e6:.0f}"


def percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio * 100:+.0f} %"


def result(attempt: Item) -> str:
    """``gpu-r1-01 → gpu-r2-01  peak  61 Mbit/s``, or how it failed; never a figure where there is none."""
    run = attempt["client_run"]
    rate = run["throughput_bps"] if run else None
    end = f"{mbps(rate)} Mbit/s" if rate is not None else f"{attempt['category']}: {attempt['outcome']}"
    source, destination = attempt["client"]["node"], attempt["server"]["node"]
    if attempt["reverse"]:
        source, destination = destination, source
    return f"{source} → {destination}  {end}"


class Display:
    """``with Display(console) as display: display.show(Progress(…))``."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._last_line = 0.0
        self._last_phase = ""

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        """A line that stays."""
        self._console.print(line, highlight=False, soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """The panel now; where there is no terminal, a line every few seconds and at each new phase."""
        if self._live:
            self._live.update(_panel(progress))
            return
        now = time.monotonic()
        if progress.phase == self._last_phase and now - self._last_line < LINE_EVERY_S:
            return
        self._last_line, self._last_phase = now, progress.phase
        newest = f"  last: {result(progress.results[0])}" if progress.results else ""
        self.say(f"{progress.phase}: {progress.left_s:.0f} s left, tests {progress.done}/{progress.planned}{newest}")


def _panel(progress: Progress) -> Group:
    head = Text.assemble((progress.phase, "bold"), f"  {progress.left_s:.0f} s left")
    tests = Text(f"tests {progress.done} of {progress.planned}")
    bar = ProgressBar(total=max(progress.planned, 1), completed=progress.done, width=60)
    results = [Text("  " + result(attempt), style="dim") for attempt in progress.results[:SHOWN_RESULTS]]
    return Group(head, tests, bar, *results)


def path_table(paths: Sequence[Item]) -> Table:
    """Each path with its medians, swing and verdict; items as ``verdict.document`` makes them."""
    table = Table(title="Throughput by path: medians in Mbit/s", title_justify="left", title_style="bold")
    for title, right in (
        ("from", False),
        ("to", False),
        ("off-peak", True),
        ("peak", True),
        ("swing", True),
        ("tests", True),
        ("verdict", False),
    ):
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    for path in paths:
        verdict, style = ("steady", "green")
        if path["swing_ratio"] is None:
            verdict, style = ("not enough tests", "yellow")
        elif path["flagged"]:
            verdict, style = ("flagged", "bold red")
        table.add_row(
            path["src"],
            path["dst"],
            mbps(path["offpeak_bps"]),
            mbps(path["peak_bps"]),
            percent(path["swing_ratio"]),
            f"{path['tests_offpeak']} + {path['tests_peak']}",
            Text(verdict, style=style),
        )
    return table


def incident_lines(incidents: Sequence[Item]) -> list[str]:
    """One line an incident, the ones about oversubscription first."""
    ordered = sorted(incidents, key=lambda incident: (incident["rule"] != "oversubscription", incident["opened_time"]))
    return [
        f"{incident['severity']} {incident['rule']} at {incident['element']['kind']} {incident['element']['name']}: "
        f"{incident['summary']} ({'open' if incident['closed_time'] is None else 'closed'})"
        for incident in ordered
    ]


def metric_lines(text: str, most: int = 8) -> list[str]:
    """A few lines of ``/metrics`` that say the same as the table."""
    lines = text.splitlines()
    chosen: list[str] = []
    for name in SHOWN_METRICS:
        chosen += [line for line in lines if line.startswith(f"bandwitness_{name}{{")][: most // len(SHOWN_METRICS)]
    return chosen
