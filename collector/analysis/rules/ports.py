"""Do all source ports lose, or only a stable subset of them? Pure.

A switch sends a flow over the same one of several equal paths (ECMP) as long as its ports stay. Where one member is
bad, the ports that hash to it go on losing and the others do not; where something lies in the way of all, each port
loses in turn.

The time looked at is cut where half of the loss has passed. Ports that lost before the cut are the suspects; if loss
behind the cut falls on them far more often than their share of the packets, it is a stable subset. So the ports are
never chosen by the same packets that speak against them.
"""

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics

P_VALUE = 0.01
MAX_NAMED = 16  # ports in the text

Floats = NDArray[np.float64]


def describe(ports: NDArray[np.int64], sent: Floats, lost: Floats) -> dict[str, int | str]:
    """Figures for an incident; empty where fewer than two source ports were probed, or none lost.

    ``ports_pattern`` is ``some`` (a stable subset loses), ``all`` (each port loses, and no subset stands out) or
    ``unclear`` (too little lost to say).

    Args:
        ports: source port of each path; 0 where it has none of its own.
        sent: [path, step of time] packets in the loss ratio.
        lost: the same, lost.
    """
    with_port = ports > 0
    names, of = np.unique(ports[with_port], return_inverse=True)
    sent_by, lost_by = (_sum(values[with_port], of, len(names)) for values in (sent, lost))
    probed = sent_by.sum(axis=1) > 0
    names, sent_by, lost_by = names[probed], sent_by[probed], lost_by[probed]
    lossy = lost_by.sum(axis=1) > 0
    if len(names) < 2 or not lossy.any():
        return {}
    pattern = "some" if _is_stable(sent_by, lost_by) else "all" if lossy.all() else "unclear"
    return {
        "ports_pattern": pattern,
        "ports_lossy": int(lossy.sum()),
        "ports_probed": len(names),
        "lossy_ports": " ".join(str(port) for port in names[lossy][:MAX_NAMED].tolist()),
    }


def _sum(values: Floats, of: NDArray[np.intp], count: int) -> Floats:
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, of, values)
    return sums


def _is_stable(sent: Floats, lost: Floats) -> bool:
    passed = lost.sum(axis=0).cumsum()
    cut = int(np.searchsorted(passed, passed[-1] / 2)) + 1
    suspects = lost[:, :cut].sum(axis=1) > 0
    later_sent, later_lost = sent[:, cut:].sum(axis=1), lost[:, cut:].sum(axis=1)
    if suspects.all() or not later_lost.any():
        return False
    share = float(later_sent[suspects].sum() / later_sent.sum())
    on_suspects, total = int(later_lost[suspects].sum()), int(later_lost.sum())
    return statistics.binomial_tail(on_suspects, total, share) < P_VALUE
