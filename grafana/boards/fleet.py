"""Fleet: what is wrong now, between whom, and which agents."""

from grafana.layout import Row, dashboard
from grafana.panels import (
    BLUE,
    NOTHING,
    ORANGE,
    SKY,
    VERMILLION,
    Query,
    matrix,
    override,
    stat,
    table,
    thresholds,
    timeseries,
)
from grafana.variables import AGENTS, LANE, MESH, NODE, PLACE, by_rack, count, to_path

BAD_FROM_ONE = thresholds((1, VERMILLION))
WARN_FROM_ONE = thresholds((1, ORANGE))
CELL = [to_path("${__data.fields[0]}", "${__field.name}")]
LOSS = thresholds((0.000001, SKY), (0.005, ORANGE), (0.05, VERMILLION), base="transparent")
SWING = thresholds((0.15, SKY), (0.25, ORANGE), (0.30, VERMILLION), base="transparent")

NOW = [
    stat(
        1, "Critical incidents 严重事件",
        "Open incidents of severity critical, in the whole fleet. Empty: the collector is not scraped."
        " 全部未关闭的严重事件；为空表示没有抓到 collector。",
        [Query(count('bandwitness_incident_active{severity="critical"}'))],
        width=4, height=4, unit="none", steps=BAD_FROM_ONE,
    ),
    stat(
        2, "Warnings 警告事件",
        "Open incidents of severity warning, in the whole fleet. 全部未关闭的警告事件。",
        [Query(count('bandwitness_incident_active{severity="warning"}'))],
        width=4, height=4, unit="none", steps=WARN_FROM_ONE,
    ),
    stat(
        3, "Agents not connected 未连接的 agent",
        "Configured nodes chosen above whose agent has no open stream. 上方所选节点中没有连接的 agent。",
        [Query(count(f"bandwitness_agent_connected{{{AGENTS}}} == 0"))],
        width=4, height=4, unit="none", steps=BAD_FROM_ONE,
    ),
    stat(
        4, "Paths with loss 有丢包的路径",
        "Paths from the chosen nodes that lost a packet in the newest closed 10 s window, loaded ones included."
        " 最近 10 秒窗口内有丢包的路径（含被测试加载的）。",
        [Query(count(f"bandwitness_path_loss_ratio{{{MESH}}} > 0"))],
        width=4, height=4, unit="none", steps=WARN_FROM_ONE,
    ),
    stat(
        5, "Paths that swing by over 30 % 波动超过 30 % 的路径",
        "Peak throughput more than 30 % below off-peak, over the trailing days. An alert, not yet a claim."
        " 高峰吞吐比非高峰低 30 % 以上；这是告警，尚不是索赔依据。",
        [Query(count(f"bandwitness_swing_ratio{{{MESH}}} > 0.30"))],
        width=4, height=4, unit="none", steps=BAD_FROM_ONE,
    ),
    stat(
        6, "Age of these figures 数据时效",
        "Time since the collector made the picture that Prometheus scraped. collector 生成所抓取快照以来的时间。",
        [Query("max(bandwitness_collector_snapshot_age_seconds)")],
        width=4, height=4, unit="s", steps=thresholds((15, ORANGE), (60, VERMILLION)),
    ),
    table(
        7, "Open incidents 未关闭的事件",
        "Every open incident, at the smallest part of the network that explains it. Since when and with which figures:"
        " the link Incidents above. 每个事件定位到能解释它的最小网络部分；起始时间和数值见上方 Incidents 链接。",
        [Query("max by (severity, rule, kind, element) (bandwitness_incident_active)", table=True)],
        columns={"severity": "Severity 级别", "rule": "Rule 规则", "kind": "Kind 类型", "element": "Where 位置"},
        width=12, height=8, unit="none", empty=NOTHING,
        overrides=[
            override(
                "byName", "Severity 级别",
                custom_cellOptions={"type": "color-background", "mode": "basic"},
                mappings=[
                    {
                        "type": "value",
                        "options": {
                            "critical": {"text": "critical 严重", "color": VERMILLION, "index": 0},
                            "warning": {"text": "warning 警告", "color": ORANGE, "index": 1},
                        },
                    }
                ],
            )
        ],
    ),
    timeseries(
        8, "Open incidents by rule 各规则的未关闭事件",
        "How many were open, by rule and severity. 按规则和级别统计。",
        [Query("count by (rule, severity) (bandwitness_incident_active)", "{{rule}} {{severity}}")],
        axis="Incidents 事件数", width=12, height=8, unit="none", stacked=True, style="bars", empty=NOTHING,
        interval="1m", defaults={"decimals": 0},
    ),
]  # fmt: skip

CARRIERS = [
    table(
        40, "Carriers 运营商线路",
        "All targets of a carrier as a site's nodes reach them, over the last minute judged: targets that answered, of"
        " how many, loss, and delay. 各机房到各运营商全部目标：可达数、目标数、丢包率与时延。",
        [
            Query("max by (site, carrier, protocol) (bandwitness_carrier_targets_reachable)", table=True),
            Query("max by (site, carrier, protocol) (bandwitness_carrier_targets)", table=True),
            Query("max by (site, carrier, protocol) (bandwitness_carrier_loss_ratio)", table=True),
            Query(
                'max by (site, carrier, protocol) (bandwitness_carrier_delay_seconds{quantile="0.5"})', table=True
            ),
            Query(
                'max by (site, carrier, protocol) (bandwitness_carrier_delay_seconds{quantile="0.99"})', table=True
            ),
        ],
        columns={
            "site": "Site 机房", "carrier": "Carrier 运营商", "protocol": "Protocol 协议", "#A": "Reached 可达",
            "#B": "Targets 目标数", "#C": "Loss 丢包率", "#D": "Delay p50 时延", "#E": "Delay p99 时延",
        },
        width=24, height=6, unit="none", empty=NOTHING,
        overrides=[
            override("byName", "Loss 丢包率", unit="percentunit"),
            override("byName", "Delay p50 时延", unit="s"),
            override("byName", "Delay p99 时延", unit="s"),
        ],
    ),
]  # fmt: skip

RACKS = [
    matrix(
        15,
        "Loss between racks 机柜间丢包率",
        "Of all packets of the last 5 minutes, loaded ones included; for fleets too large for the matrices below."
        " 最近 5 分钟全部报文；适合节点很多的情形。",
        by_rack(f"increase(bandwitness_probe_packets_lost_total{{{MESH}}}[5m])")
        + " / "
        + by_rack(f"increase(bandwitness_probe_packets_sent_total{{{MESH}}}[5m])"),
        row="src_rack", column="dst_rack", steps=LOSS, width=12, height=8, unit="percentunit",
    ),
    matrix(
        16,
        "Delay between racks, 99th percentile 机柜间时延 P99",
        "Of all round trips of the last 5 minutes, loaded ones included; columns also hold targets."
        " 最近 5 分钟全部往返；列中包括探测目标。",
        "histogram_quantile(0.99, sum by (le, src_rack, dst_rack)"
        ' (rate(bandwitness_round_trip_delay_seconds_bucket{src_rack=~"$rack", lane=~"$lane"}[5m])))',
        row="src_rack", column="dst_rack", width=12, height=8, unit="s",
    ),
]  # fmt: skip

MATRICES = [
    matrix(
        11, "Loss, from row to column 丢包率（行→列）",
        "Worst lane, newest closed 10 s window. Orange from 0.5 %, red from 5 %. Choose racks above in a large fleet."
        " 最差网络平面，最近 10 秒窗口；橙色 ≥ 0.5 %，红色 ≥ 5 %。规模较大时请先选择机柜。",
        f"max by (src, dst) (bandwitness_path_loss_ratio{{{MESH}}})",
        row="src", column="dst", steps=LOSS, links=CELL, width=12, height=10, unit="percentunit",
    ),
    matrix(
        12, "Delay, 99th percentile, from row to column 时延 P99（行→列）",
        "Round trip on the slowest lane, newest closed 10 s window; the darker, the longer."
        " 最慢网络平面的往返时延，颜色越深越长。",
        f'max by (src, dst) (bandwitness_path_delay_seconds{{{MESH}, quantile="0.99"}})',
        row="src", column="dst", links=CELL, width=12, height=10, unit="s",
    ),
    matrix(
        13, "Throughput, from row to column 吞吐（行→列）",
        "Newest valid result of the slowest lane, as the receiver counted it; the darker, the more. A failed test is"
        " not 0: it leaves the result before it. 最慢网络平面最近一次有效结果；失败的测试不记为 0。",
        f"8 * min by (src, dst) (bandwitness_throughput_bytes_per_second{{{MESH}}})",
        row="src", column="dst", links=CELL, width=12, height=10, unit="bps",
    ),
    matrix(
        14, "Swing, from row to column 波动率（行→列）",
        "1 - peak / off-peak throughput of the worst lane. Empty until both windows have enough valid tests."
        " 1 - 高峰/非高峰吞吐，最差网络平面；两个时段的有效测试足够后才有值。",
        f"max by (src, dst) (bandwitness_swing_ratio{{{MESH}}})",
        row="src", column="dst", steps=SWING, links=CELL, width=12, height=10, unit="percentunit",
    ),
]  # fmt: skip

AGENT_TABLES = [
    table(
        21, "Agents 节点 agent",
        "One row for each configured node. 每个已配置节点一行。",
        [
            Query(f"max by (site, rack, node) (bandwitness_agent_connected{{{AGENTS}}})", table=True),
            Query(
                f"time() - max by (site, rack, node) (bandwitness_agent_last_seen_timestamp_seconds{{{AGENTS}}})",
                table=True,
            ),
            Query(f"max by (site, rack, node) (bandwitness_agent_clock_error_seconds{{{AGENTS}}})", table=True),
            Query(f"max by (site, rack, node) (bandwitness_agent_spool_bytes{{{AGENTS}}})", table=True),
        ],
        columns={
            "site": "Site 机房", "rack": "Rack 机柜", "node": "Node 节点", "#A": "Connected 已连接",
            "#B": "Last seen 上次收到", "#C": "Clock error 时钟误差上限", "#D": "Spool 待发送",
        },
        sort="Last seen 上次收到", width=16, height=10, unit="none",
        overrides=[
            override(
                "byName", "Connected 已连接",
                custom_cellOptions={"type": "color-text"},
                mappings=[
                    {
                        "type": "value",
                        "options": {
                            "0": {"text": "no 否", "color": VERMILLION, "index": 0},
                            "1": {"text": "yes 是", "color": BLUE, "index": 1},
                        },
                    }
                ],
            ),
            override(
                "byName", "Last seen 上次收到", unit="s", custom_cellOptions={"type": "color-text"},
                thresholds=thresholds((30, VERMILLION)),
            ),
            override("byName", "Clock error 时钟误差上限", unit="s"),
            override("byName", "Spool 待发送", unit="bytes"),
        ],
    ),
    table(
        22, "What does not work on agents agent 上不工作的部分",
        "Parts of agents that do not work, with their state; `bandwitness-agent check` on the node says how to cure it."
        " 不工作的部分及其状态；在节点上运行 bandwitness-agent check 查看解决办法。",
        [Query(f"max by (node, part, state) (bandwitness_agent_part_working{{{AGENTS}}}) == 0", table=True)],
        columns={"node": "Node 节点", "part": "Part 部分", "state": "State 状态"},
        width=8, height=10, unit="none", empty=NOTHING,
    ),
]  # fmt: skip

DASHBOARD = dashboard(
    "bandwitness-fleet",
    "Bandwitness: Fleet 全局",
    "What is wrong now, between which nodes, and which agents. 当前异常、节点间矩阵、agent 状态。",
    [*PLACE, NODE, LANE],
    [
        Row(101, "What is wrong now 当前异常", NOW),
        Row(105, "Carriers 运营商", CARRIERS),
        Row(104, "Between racks 机柜间", RACKS),
        Row(102, "Between nodes 节点间", MATRICES),
        Row(103, "Agents 节点 agent", AGENT_TABLES),
    ],
    links=[("Incidents 事件", "/api/v1/incidents?active=true"), ("Nodes 节点", "/api/v1/nodes")],
)
