"""Between bursts and the store: what a step changed is written, and a new process takes up where it stands."""

from collector.analysis.attempts import Attempts
from collector.analysis.bursts.bursts import MEMORY_NS, Bursts, Stored, own_tests
from collector.analysis.counters import Nics
from collector.analysis.loading import Loading
from collector.config import Config
from collector.store import tables
from collector.store.bursts import burst_values, cluster_values, read_burst, read_cluster
from collector.store.rows import read_mark
from collector.store.writer import Transaction

THROUGH = "bursts_through_ns"


def load(tx: Transaction, config: Config, loading: Loading, attempts: Attempts, received_ns: int) -> Bursts:
    """As the last step left it, but for what is read again (``safe_position``)."""
    since = received_ns - MEMORY_NS
    bursts, clusters = tables.bursts.c, tables.cluster_bursts.c
    stored = Stored(
        watches=tx.all(tables.burst_watches),
        bursts=map(read_burst, tx.all(tables.bursts, (bursts.start_time_ns >= since) | bursts.end_time_ns.is_(None))),
        clusters=map(
            read_cluster,
            tx.all(tables.cluster_bursts, (clusters.start_time_ns >= since) | clusters.end_time_ns.is_(None)),
        ),
        marks=map(read_mark, tx.all(tables.marks, tables.marks.c.time_ns >= since)),
        through_ns=int(tx.meta().get(THROUGH, 0)),
    )
    return Bursts(config, own_tests(loading, attempts), stored)


def save(tx: Transaction, bursts: Bursts, nics: Nics, position: int, received_ns: int) -> dict[str, str]:
    """Writes what changed; gives back what ``meta`` is to hold."""
    changed = bursts.take_changed()
    tx.put(tables.bursts, [burst_values(burst) for burst in changed.bursts])
    tx.put(tables.cluster_bursts, [cluster_values(cluster) for cluster in changed.clusters])
    tx.remove(tables.bursts, "burst_id", changed.removed_bursts)
    tx.remove(tables.cluster_bursts, "burst_id", changed.removed_clusters)
    tx.put(tables.burst_watches, bursts.take_states(position, received_ns, nics.meter))
    return {THROUGH: str(bursts.through_ns)}
