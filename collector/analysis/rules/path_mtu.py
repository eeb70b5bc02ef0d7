"""Path MTU: a path carries less than it did, or large packets vanish on it and nobody says so. Pure.

Less than before counts only where it is the network's: not where our own interface carries no more. What stays for a
week is the usual from then on. A black hole stays one.
"""

from dataclasses import dataclass

from bandwitness.v1.record_pb2 import MTU_OUTCOME_SILENT, MTU_OUTCOME_TOO_BIG
from collector.model import Element, Flag, Incident, PathMtuRow

RULE = "path_mtu"
VERSION = 1
ACCEPTED_NS = 7 * 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Flags, and what is usual from now on."""

    flags: tuple[Flag, ...]
    usual_bytes: int | None


def judge(element: Element, row: PathMtuRow, usual_bytes: int | None, opened: Incident | None) -> Verdict:
    """What one check says.

    Args:
        element: the path.
        row: the check.
        usual_bytes: largest MTU found before; None: there was no check.
        opened: the incident that is open on the path.
    """
    found = row.mtu_bytes
    if found is None:
        return Verdict((), usual_bytes)
    ours = row.interface_mtu_bytes is not None and row.interface_mtu_bytes <= found
    accepted = opened is not None and row.time_ns - opened.opened_time_ns >= ACCEPTED_NS and not row.black_hole
    usual = found if usual_bytes is None or ours or accepted else max(usual_bytes, found)
    if row.black_hole or found < usual:
        flag = Flag(
            rule=RULE,
            rule_version=VERSION,
            element=element,
            time_ns=row.time_ns,
            severity="critical" if row.black_hole else "warning",
            raised=True,
            values=_values(row, found, usual),
            children=[f"{row.path_id:016x}"],
            evidence=[row.source],
        )
        return Verdict((flag,), usual)
    if opened is None:
        return Verdict((), usual)
    values: dict[str, float | int | str] = {"clean_since_ns": row.time_ns}
    return Verdict((Flag(RULE, VERSION, element, row.time_ns, opened.severity, False, values),), usual)


def _values(row: PathMtuRow, found: int, usual: int) -> dict[str, float | int | str]:
    values: dict[str, float | int | str] = {"mtu_bytes": found, "black_hole": int(row.black_hole)}
    if usual > found:
        values["usual_mtu_bytes"] = usual
    if row.interface_mtu_bytes is not None:
        values["interface_mtu_bytes"] = row.interface_mtu_bytes
    silent = [trial for trial in row.trials if trial.fate == MTU_OUTCOME_SILENT]
    if row.black_hole and silent:
        smallest = min(trial.payload_bytes for trial in silent)
        values["smallest_lost_payload_bytes"] = smallest
        values["packets_lost"] = sum(trial.sent for trial in silent)
    said = [trial for trial in row.trials if trial.fate == MTU_OUTCOME_TOO_BIG and trial.reporter]
    if said:
        values["reporter"] = str(min(said, key=lambda trial: trial.payload_bytes).reporter)
    return values
