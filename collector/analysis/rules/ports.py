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


def pattern(ports: NDArray[np.int64], sent: Floats, lost: Floats) -> str:
    """``ports_pattern`` of ``describe``; ``none`` where nothing was lost, ``unclear`` of fewer than two ports."""
    return str(describe(ports, sent, lost).get("ports_pattern", "unclear")) if lost.any() else "none"


def describe_slow(ports: NDArray[np.int64], samples: Floats, slow: Floats, usual_ratio: float) -> dict[str, int | str]:
    """Which source ports are slow: more of their samples than chance leaves. Figures for an incident of delay; empty
    where fewer than two ports were probed, or none is slow by itself.

    ``ports_pattern`` is ``some`` or ``all``, as of ``describe``.

    Args:
        ports: source port of each path; 0 where it has none of its own.
        samples: [path] with a delay.
        slow: [path] of these slow.
        usual_ratio: share of samples that is slow anyway.
    """
    with_port = ports > 0
    names, of = np.unique(ports[with_port], return_inverse=True)
    total, bad = (np.bincount(of, values[with_port], len(names)) for values in (samples, slow))
    probed = total > 0
    names, total, bad = names[probed], total[probed], bad[probed]
    limit = P_VALUE / max(len(names), 1)  # the more ports are asked, the more chance would name one
    found = np.array(
        [statistics.binomial_tail(int(b), int(t), usual_ratio) < limit for b, t in zip(bad, total, strict=True)], bool
    )
    if len(names) < 2 or not found.any():
        return {}
    return {
        "ports_pattern": "all" if found.all() else "some",
        "ports_slow": int(found.sum()),
        "ports_probed": len(names),
        "slow_ports": " ".join(str(port) for port in names[found][:MAX_NAMED].tolist()),
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
