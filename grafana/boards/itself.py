"""Bandwitness itself: can the other dashboards be believed?"""

from grafana.layout import Row, dashboard
from grafana.panels import (
    BLUE,
    DASHED,
    GREEN,
    NOTHING,
    ORANGE,
    SKY,
    VERMILLION,
    Query,
    colours,
    override,
    stat,
    table,
    thresholds,
    timeseries,
)
from grafana.variables import AGENTS, NODE, PLACE, count

PREFIX = "bandwitness_collector_"
OURS = "and on (job, instance) last_over_time(bandwitness_collector_build_info[1d])"


def _rate(name: str, by: str = "") -> str:
    rate = f"rate({PREFIX}{name}[$__rate_interval])"
    return f"sum by ({by}) ({rate})" if by else f"sum({rate})"


NOW = [
    stat(
        1, "Scrape 抓取",
        "1 while Prometheus reaches the collector; a collector that it reached within the last day."
        " Prometheus 能否抓到 collector（一天内出现过的）。",
        [Query(f"min(up {OURS})")],
        width=4, height=4, unit="none", steps=thresholds((1, BLUE), base=VERMILLION),
        defaults={
            "mappings": [
                {
                    "type": "value",
                    "options": {"0": {"text": "down 失败", "index": 0}, "1": {"text": "up 正常", "index": 1}},
                }
            ]
        },
    ),
    stat(
        2, "Log 日志",
        "failing: nothing can be made durable, agents keep their records and send them again. /healthz says"
        " why. failing 表示无法落盘，agent 会保留并重发。",
        [Query(f"max({PREFIX}log_failing)")],
        width=4, height=4, unit="none", steps=thresholds((1, VERMILLION)),
        defaults={
            "mappings": [
                {
                    "type": "value",
                    "options": {"0": {"text": "ok 正常", "index": 0}, "1": {"text": "failing 故障", "index": 1}},
                }
            ]
        },
    ),
    stat(
        3, "Analysis behind by 分析滞后",
        "Age of the oldest entry of the log that analysis has not read."
        " 分析尚未读取的最旧日志条目的时长。",
        [Query(f"max({PREFIX}analysis_lag_seconds)")],
        width=4, height=4, unit="s", steps=thresholds((15, ORANGE), (60, VERMILLION)),
    ),
    stat(
        4, "Quarantined batches 隔离批次",
        "Batches kept that do not stand in their chain, over all time."
        " 保存但不在链上的批次总数。",
        [Query(f"sum({PREFIX}batches_quarantined_total) or 0 * max({PREFIX}build_info)")],
        width=4, height=4, unit="none", steps=thresholds((1, ORANGE)),
    ),
    stat(
        5, "Clocks not synchronised 时钟未同步",
        "Agents whose kernel does not call its clock synchronised."
        " 内核报告时钟未同步的 agent 数。",
        [Query(count(f"bandwitness_agent_clock_synchronised{{{AGENTS}}} == 0"))],
        width=4, height=4, unit="none", steps=thresholds((1, ORANGE)),
    ),
    stat(
        6, "Version 版本",
        "Version of the collector. collector 版本。",
        [Query(f"max by (version) ({PREFIX}build_info)", "{{version}}")],
        width=4, height=4, unit="none",
        overrides=[override("byType", "number", color=BLUE)],
    ),
]  # fmt: skip
NOW[-1]["options"]["textMode"] = "name"

OF_AGENTS = [
    timeseries(
        11, "Agents connected 已连接的 agent",
        "Agents with an open stream, and all that are configured."
        " 有连接的 agent 与全部已配置的 agent。",
        [
            Query(f"sum(bandwitness_agent_connected{{{AGENTS}}})", "connected 已连接"),
            Query(f"count(bandwitness_agent_connected{{{AGENTS}}})", "configured 已配置"),
        ],
        axis="Agents 个数", width=8, unit="none", defaults={"decimals": 0},
        overrides=[
            *colours(**{"connected 已连接": BLUE, "configured 已配置": ORANGE}),
            override("byName", "configured 已配置", custom_lineStyle=DASHED),
        ],
    ),
    timeseries(
        12, "Time since an agent was heard 距上次收到",
        "By the collector's clock. Dashed: 30 s, where the rule agent silent"
        " raises. 以 collector 时钟计；虚线为 30 秒。",
        [Query(f"time() - bandwitness_agent_last_seen_timestamp_seconds{{{AGENTS}}}", "{{node}}")],
        axis="Silence 静默时长", width=8, unit="s", limits=thresholds((30, VERMILLION), base="transparent"),
    ),
    timeseries(
        13, "Clock error of agents 时钟误差上限",
        "Bound as the agent's kernel states it; absent where its source gives none."
        " agent 内核给出的误差上限。",
        [Query(f"bandwitness_agent_clock_error_seconds{{{AGENTS}}}", "{{node}}")],
        axis="Error bound 误差上限", width=8, unit="s",
    ),
    timeseries(
        14, "Spool of agents 待发送数据",
        "Bytes that wait for the collector. agent 上等待发送的字节。",
        [Query(f"bandwitness_agent_spool_bytes{{{AGENTS}}}", "{{node}}")],
        axis="Bytes 字节", width=8, unit="bytes",
    ),
    timeseries(
        15, "Records dropped by agents 丢弃的记录",
        "Dropped to stay inside the spool's limits; a recorded gap, not loss."
        " 为不超出 spool 限额而丢弃；记为缺口而非丢包。",
        [
            Query(
                f"increase(bandwitness_agent_records_dropped_total{{{AGENTS}}}[$__rate_interval])",
                "{{node}}",
            )
        ],
        axis="Records 记录数", width=8, unit="short", interval="1m",
    ),
    table(
        16, "What does not work 不工作的部分",
        "Parts of agents that do not work, with their state. 不工作的部分及状态。",
        [Query(f"max by (node, part, state) (bandwitness_agent_part_working{{{AGENTS}}}) == 0", table=True)],
        columns={"node": "Node 节点", "part": "Part 部分", "state": "State 状态"},
        width=8, unit="none", empty=NOTHING,
    ),
    timeseries(
        17, "Doubtful self-checks 存疑的自检",
        "Share of an agent's checks of itself in which it doubted its own delays, by reason: its timer late, its host"
        " starved or its CPU stolen. Such windows stay out of delay verdicts."
        " agent 自检认为自身时延不可信的比例及原因；这些窗口不参与时延判定。",
        [
            Query(
                f"rate(bandwitness_agent_doubtful_self_checks_total{{{AGENTS}}}[$__rate_interval])"
                f" / on (node, site, rack) group_left rate(bandwitness_agent_self_checks_total{{{AGENTS}}}"
                "[$__rate_interval])",
                "{{node}} {{reason}}",
            )
        ],
        axis="Share 比例", width=8, unit="percentunit", interval="1m",
    ),
    timeseries(
        18, "Agents against themselves 自测",
        "Median round trip over each agent's own loopback, and how late its probes' timer ran at worst, in its newest"
        " check; 1 where it doubts its delays. 环回时延中位数、定时器最大迟到，以及是否存疑。",
        [
            Query(f"bandwitness_agent_loopback_delay_seconds{{{AGENTS}}}", "{{node}} loopback 环回"),
            Query(f"bandwitness_agent_timer_lateness_seconds{{{AGENTS}}}", "{{node}} late 迟到"),
        ],
        axis="Time 时长", width=8, unit="s",
    ),
    table(
        19, "Doubts and gaps 存疑与缺口",
        "Agents whose newest check doubts their delays, and how many stretches each says it did not record."
        " 最近自检存疑的 agent，以及各 agent 自报的缺口数。",
        [
            Query(f"max by (node) (bandwitness_agent_delays_doubtful{{{AGENTS}}})", table=True),
            Query(f"max by (node) (bandwitness_agent_gaps_total{{{AGENTS}}})", table=True),
        ],
        columns={"node": "Node 节点", "#A": "Doubtful 存疑", "#B": "Gaps 缺口"},
        width=8, unit="none", empty=NOTHING,
    ),
    timeseries(
        20, "Certificates 证书剩余时间",
        "Time until each agent's newest known certificate ends. Agents renew after two thirds of its time."
        " 各 agent 最新证书的剩余有效期；过三分之二后自动续期。",
        [Query(f"bandwitness_agent_certificate_expiry_timestamp_seconds{{{AGENTS}}} - time()", "{{node}}")],
        axis="Left 剩余", width=8, unit="s",
    ),
    timeseries(
        61, "Enrolment 注册与冲突",
        "Certificates given out, requests refused by reason, and streams over which two agents of one name fight."
        " 签发、拒绝（按原因），以及同名 agent 互相顶替的流。",
        [
            Query(f"sum by (result) (increase({PREFIX}enrolments_total[$__rate_interval]))", "{{result}}"),
            Query(f"increase({PREFIX}stream_conflicts_total[$__rate_interval])", "conflict 冲突"),
        ],
        axis="Count 次数", width=8, unit="short", interval="1m", empty=NOTHING,
    ),
]  # fmt: skip

INTAKE = [
    timeseries(
        21, "Batches received 收到的批次",
        "duplicate: sent again after a lost acknowledgement, and kept once."
        " duplicate 为确认丢失后的重发，只保存一次。",
        [Query(_rate("received_batches_total", "result"), "{{result}}")],
        axis="Batches per second 每秒批次", width=8, unit="cps",
        overrides=colours(new=BLUE, duplicate=ORANGE, quarantined=VERMILLION),
    ),
    timeseries(
        22, "Batches in the log 日志中的批次",
        "Growth by class: evidence, telemetry, control. 各类批次的增长。",
        [Query(_rate("batches_total", "class"), "{{class}}")],
        axis="Batches per second 每秒批次", width=8, unit="cps",
        overrides=colours(evidence=BLUE, telemetry=SKY, control=GREEN),
    ),
    timeseries(
        23, "Refused and quarantined 拒绝与隔离",
        "Streams ended by the collector, by gRPC status; batches quarantined, by"
        " reason. collector 结束的流与隔离的批次。",
        [
            Query(
                f"sum by (status) (increase({PREFIX}refused_streams_total[$__rate_interval]))",
                "refused 拒绝 {{status}}",
            ),
            Query(
                f"sum by (reason) (increase({PREFIX}batches_quarantined_total[$__rate_interval]))",
                "quarantined 隔离 {{reason}}",
            ),
        ],
        axis="Count 次数", width=8, unit="short", interval="1m", empty=NOTHING,
    ),
    timeseries(
        24, "Log written 日志写入",
        "Bytes appended. 追加的字节。", [Query(_rate("log_bytes_total"), "written 写入")],
        axis="Bytes per second 每秒字节", width=8, unit="Bps",
        defaults={"color": {"mode": "fixed", "fixedColor": BLUE}},
    ),
    timeseries(
        25, "Time to make a group durable 落盘耗时",
        "Mean time of a commit: until then no batch is acknowledged."
        " 每次提交的平均耗时，在此之前不确认任何批次。",
        [Query(f"{_rate('log_commit_seconds_total')} / {_rate('log_commits_total')}", "mean 平均")],
        axis="Seconds per commit 每次耗时", width=8, unit="s",
        defaults={"color": {"mode": "fixed", "fixedColor": BLUE}},
    ),
    timeseries(
        26, "Faults of the log 日志故障",
        "Groups not made durable; entries damaged or gone; records that could not be"
        " decoded. 落盘失败、损坏条目、无法解码的记录。",
        [
            Query(f"sum(increase({PREFIX}log_failures_total[$__rate_interval]))", "not durable 落盘失败"),
            Query(f"sum(increase({PREFIX}log_unreadable_total[$__rate_interval]))", "damaged 损坏"),
            Query(f"sum(increase({PREFIX}records_unreadable_total[$__rate_interval]))", "not decoded 无法解码"),
        ],
        axis="Count 次数", width=8, unit="short", interval="1m",
        overrides=colours(**{"not durable 落盘失败": VERMILLION, "damaged 损坏": ORANGE, "not decoded 无法解码": SKY}),
    ),
]  # fmt: skip

ANALYSIS = [
    timeseries(
        31, "Lag and age 滞后与时效",
        "Analysis behind the log, and age of the figures that Prometheus scraped."
        " 分析相对日志的滞后，以及所抓取数据的时效。",
        [
            Query(f"max({PREFIX}analysis_lag_seconds)", "analysis lag 分析滞后"),
            Query(f"max({PREFIX}snapshot_age_seconds)", "snapshot age 快照时效"),
        ],
        axis="Seconds 秒", width=8, unit="s",
        overrides=colours(**{"analysis lag 分析滞后": BLUE, "snapshot age 快照时效": ORANGE}),
    ),
    timeseries(
        32, "Errors 错误",
        "Steps of analysis that failed and were tried again; rules that raised an error; parts left out"
        " of a scrape. 失败后重试的分析步骤、出错的规则、抓取中缺失的部分。",
        [
            Query(f"sum(increase({PREFIX}analysis_errors_total[$__rate_interval]))", "analysis 分析"),
            Query(f"sum by (rule) (increase({PREFIX}rule_errors_total[$__rate_interval]))", "rule 规则 {{rule}}"),
            Query(f"sum by (part) ({PREFIX}scrape_errors)", "scrape 抓取 {{part}}"),
        ],
        axis="Count 次数", width=8, unit="short", interval="1m",
    ),
    timeseries(
        33, "Scrape 抓取耗时",
        "Time to render a scrape, and until Prometheus had it whole. 生成与完整抓取的耗时。",
        [
            Query(f"{PREFIX}scrape_duration_seconds", "rendered 生成 {{instance}}"),
            Query(f"scrape_duration_seconds {OURS}", "scraped 抓取 {{instance}}"),
        ],
        axis="Seconds 秒", width=8, unit="s",
    ),
    timeseries(
        34, "Series 序列数",
        "Samples in one scrape. 每次抓取的样本数。",
        [Query(f"scrape_samples_scraped {OURS}", "{{instance}}")],
        axis="Samples 样本数", width=8, unit="short",
    ),
]  # fmt: skip

REMOTE_WRITE = [
    timeseries(
        41, "Remote write: samples 远程写入样本",
        "What receivers took; what they refuse for good; what was measured too long ago to be sent; entries that"
        " gave way because too many waited. 已接收、被拒绝、过期的样本，以及因积压过多而丢弃的条目。",
        [
            Query(_rate("remote_write_samples_total", "remote, result"), "{{remote}} {{result}}"),
            Query(_rate("remote_write_entries_dropped_total", "remote"), "{{remote}} entries dropped 丢弃条目"),
        ],
        axis="Per second 每秒", width=8, unit="short",
    ),
    timeseries(
        42, "Remote write: waiting 待发送",
        "Entries on disk; one is a window of 10 s of one node, or a test. 磁盘上待发送的条目。",
        [Query(f"max by (remote) ({PREFIX}remote_write_entries_waiting)", "{{remote}}")],
        axis="Entries 条目数", width=8, unit="short",
    ),
    timeseries(
        43, "Remote write: last success 距上次成功",
        "Time since a receiver took samples, and whether the newest request failed; /healthz says why."
        " 距上次成功写入的时间，以及最近一次请求是否失败，原因见 /healthz。",
        [
            Query(
                f"time() - max by (remote) ({PREFIX}remote_write_last_success_timestamp_seconds)",
                "{{remote}} since 距上次",
            ),
            Query(f"max by (remote) ({PREFIX}remote_write_working) == 0", "{{remote}} not working 故障"),
        ],
        axis="Seconds 秒", width=8, unit="s",
    ),
    timeseries(
        44, "Remote write: retries 重试",
        "Requests that did not go through and are tried again. 未成功并将重试的请求。",
        [
            Query(
                f"sum by (remote) (increase({PREFIX}remote_write_failures_total[$__rate_interval]))", "{{remote}}"
            )
        ],
        axis="Requests 请求数", width=8, unit="short", interval="1m",
    ),
]  # fmt: skip

DASHBOARD = dashboard(
    "bandwitness-itself",
    "Bandwitness: Itself 自身",
    "Agents, spool, clocks, log, analysis and scrape. agent、时钟、日志、分析与抓取。",
    [*PLACE, NODE],
    [
        Row(101, "Now 当前", NOW),
        Row(102, "Agents 节点 agent", OF_AGENTS),
        Row(103, "Collector: intake and log 接收与日志", INTAKE),
        Row(104, "Collector: analysis and scrape 分析与抓取", ANALYSIS),
        Row(105, "Collector: remote write 远程写入", REMOTE_WRITE),
    ],
    links=[("Health 健康", "/healthz"), ("Nodes 节点", "/api/v1/nodes")],
)
