"""A cluster burst with one member, as rows."""

from collector.model import Burst, BurstScore, ClusterBurst

SECOND = 1_000_000_000
T0 = 1_796_083_200 * SECOND  # 2026-12-01T00:00:00Z

BURST = Burst(
    burst_id="b" * 32,
    node="a",
    nic="eth0",
    lane="storage",
    kind="save",
    start_time_ns=T0 + 600 * SECOND,
    end_time_ns=None,
    opened_time_ns=T0 + 602 * SECOND,
    last_time_ns=T0 + 610 * SECOND,
    error_ns=SECOND + 2_000_000,
    clock_error_ns=2_000_000,
    bytes=10**9,
    other_bytes=10**7,
    peak_bps=9e8,
    mean_bps=8e8,
    usual_bps=1e6,
    threshold_bps=2e8,
    confirmed=True,
    cluster_id="c" * 32,
)
CLUSTER = ClusterBurst(
    burst_id="c" * 32,
    scope="job",
    name="llm",
    site="s",
    lane="storage",
    kind="save",
    start_time_ns=BURST.start_time_ns,
    end_time_ns=None,
    opened_time_ns=BURST.opened_time_ns,
    last_time_ns=BURST.last_time_ns,
    error_ns=BURST.error_ns,
    start_spread_ns=300_000_000,
    end_spread_ns=None,
    bytes=10**9,
    achieved_bps=8e8,
    nodes=("a", "b", "c"),
    members=(BURST.burst_id,),
    slowest_node="a",
    slowest_bps=8e8,
    marked=True,
    job="llm",
    step=500,
    labels={"slurm_job_id": "77"},
    mark_time_ns=T0 + 599 * SECOND,
    next_start_time_ns=T0 + 1200 * SECOND,
    interval_ns=600 * SECOND,
    interval_spread_ns=4 * SECOND,
    intervals=5,
)
SCORE = BurstScore(10, 9, 12, 9, 0.9, 0.75, 500_000_000, 900_000_000, 200_000_000)
