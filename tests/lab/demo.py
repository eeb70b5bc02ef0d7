"""The demo: two racks, one oversold uplink, one virtual night and one virtual evening, and what the collector says.

Everything shown comes from the collector's HTTP interface. Only the last step, "is that what the seed said", knows
what the lab was built of.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from tests.lab import verdict
from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.demo_view import Display, Progress, incident_lines, metric_lines, path_table
from tests.lab.faults import CompetingTenant
from tests.lab.installation import Installation, InstallationError, PortInUseError
from tests.lab.lab import Lab, LabError, LabUnavailableError
from tests.lab.topology import Tenant, Topology, oversold_by_seed

RACKS = {"r1": 2, "r2": 2}
START_S = 10  # for collector and agents to start and to have their plan
BETWEEN_S = 6  # for the tenant to come
DECIDED_S = 30  # for the last records to arrive and be judged
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 the verdict is as the seed says, 1 it is not or the demo could not run, 2 wrong usage."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.json and not asked.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no directory {asked.json.absolute().parent}")
    if not 0 <= asked.port <= 65535:
        parser.error(f"--port: expected 0 to 65535, found {asked.port}")
    began = asked.began or time.time()
    console = Console(stderr=False)
    signal.signal(signal.SIGTERM, _leave)
    directory = Path(tempfile.mkdtemp(prefix="bandwitness-demo-"))
    try:
        status = _run(asked, console, directory, began)
    except KeyboardInterrupt:
        console.print("\nStopped.")
        status = INTERRUPTED
    except SystemExit as left:
        status = int(left.code or 0)
    except (LabUnavailableError, PortInUseError) as error:
        console.print(f"The demo cannot run here. {error}", markup=False, highlight=False, soft_wrap=True)
        status = 1
    except (LabError, InstallationError, TimeoutError, OSError) as error:
        console.print(f"The demo failed: {error}", markup=False, highlight=False, soft_wrap=True)
        status = 1
    if status == 1 and any(directory.iterdir()):
        console.print(f"Configuration, logs and state are kept in {directory}", highlight=False, soft_wrap=True)
    else:
        shutil.rmtree(directory)
    return status


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)  # so that every block is left, and the lab with them


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deploy/demo.sh",
        description="Measures two racks of network namespaces through a virtual night and a virtual evening "
        "(about 4 minutes), and shows what the collector says of them. Then the collector keeps serving until Ctrl-C.",
        epilog="exit codes: 0 the verdict is as built, 1 it is not or the demo could not run, 2 wrong usage",
    )
    parser.add_argument("--once", action="store_true", help="end after the verdict")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the final table and the incidents there")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="chooses the oversold rack (default: 1)")
    parser.add_argument("--port", type=int, default=7480, metavar="N", help="of the collector's HTTP interface")
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    return parser


def _run(asked: argparse.Namespace, console: Console, directory: Path, began: float) -> int:
    topology = Topology(RACKS, tenant=Tenant(oversold_by_seed(asked.seed, list(RACKS))))
    with Lab(topology) as lab:
        # 50 rounds of 2 s: 8 ordered pairs across the uplinks one by one, 4 inside the racks two by two, 5 times each.
        length_s = window_s(topology, measuring := Measuring())
        evening = Evening.starting_at(int(time.time()) + START_S, window_s=length_s, between_s=BETWEEN_S)
        with Installation(lab, directory, evening, measuring, port=asked.port) as installation:
            paths, incidents = _measure(installation, CompetingTenant(lab), console)
            document = verdict.document(paths, incidents, time.time() - began)
            if asked.json:
                asked.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
            _show_end(console, installation, document)
            faults = verdict.faults(document["paths"], incidents, topology)
            _show_check(console, topology, asked.seed, faults)
            if not asked.once:
                _serve(console, installation)
            return 1 if faults else 0


def _measure(
    installation: Installation, tenant: CompetingTenant, console: Console
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Night, evening, and what the API says after them: throughput paths and incidents."""
    evening = installation.evening
    with Display(console) as display:
        display.say(
            "2 racks of 2 hosts, 200 Mbit/s uplinks, one of them oversold: which one, the collector is not told."
        )
        installation.start_collector()
        display.say(f"Collector: {installation.url}")
        installation.start_agents()
        display.say(f"Agents connected: {', '.join(installation.connected())}")
        _phase(display, installation, "Starting", evening.night_start_s - START_S, evening.night_start_s)
        _phase(display, installation, "Night, off-peak", evening.night_start_s, evening.night_end_s)
        tenant.start()
        display.say("Evening comes, and with it the other tenants behind the oversold uplink.")
        _phase(display, installation, "Evening, peak", evening.evening_start_s, evening.evening_end_s)
        if not tenant.is_on():
            raise InstallationError("the competing tenant's load ended by itself")
        now = time.time()
        _phase(display, installation, "Last records", now, now + DECIDED_S, until_decided=True)
        tenant.stop()
    return installation.throughput_paths(), installation.incidents()


def _phase(
    display: Display,
    installation: Installation,
    name: str,
    start_s: float,
    end_s: float,
    *,
    until_decided: bool = False,
) -> None:
    """Shows progress until ``end_s``, or until no test is pending where that comes first and is asked for."""
    while (left := end_s - time.time()) > 0:
        installation.check_alive()
        slots = installation.timetable()
        ended = [slot for slot in slots if slot["category"] != "pending"]
        newest = sorted(ended, key=lambda slot: str(slot["start_time"]), reverse=True)
        display.show(Progress(name, left, end_s - start_s, len(ended), len(slots), newest))
        if until_decided and slots and len(ended) == len(slots):
            return
        time.sleep(min(left, 1.0))


def _show_end(console: Console, installation: Installation, document: dict[str, Any]) -> None:
    console.print(path_table(document["paths"]))
    console.print("Incidents:", style="bold")
    for line in incident_lines(document["incidents"]) or ["none"]:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"From {installation.url}/metrics:", style="bold")
    for line in metric_lines(installation.metrics()):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    rows = installation.accounting()
    sums = {name: sum(row[name] for row in rows) for name in ("planned", "ok", "failed", "skipped", "lost")}
    console.print(
        "Tests: {planned} planned = {ok} ok + {failed} failed + {skipped} skipped + {lost} lost.".format(**sums)
    )


def _show_check(console: Console, topology: Topology, seed: int, faults: list[str]) -> None:
    assert topology.tenant is not None
    if not faults:
        console.print(
            f"As built: seed {seed} had the uplink of rack {topology.tenant.rack} shared with a tenant in the evening. "
            "Every path across it is flagged, and none inside a rack.",
            highlight=False,
            soft_wrap=True,
        )
        return
    console.print(
        f"NOT as built (seed {seed}: the uplink of rack {topology.tenant.rack} is oversold):", style="bold red"
    )
    for fault in faults:
        console.print(f"  {fault}", markup=False, highlight=False, soft_wrap=True)


def _serve(console: Console, installation: Installation) -> None:
    console.print(
        f"The collector keeps serving at {installation.url} (/metrics, /healthz, /api/v1/paths, /api/v1/incidents); "
        "Ctrl-C ends it.",
        highlight=False,
        soft_wrap=True,
    )
    try:
        while True:
            installation.check_alive()
            time.sleep(0.5)
    except KeyboardInterrupt:
        console.print("\nStopped.")


if __name__ == "__main__":
    sys.exit(main())
