"""Checkpoint bursts: when they ran, what they did to other traffic, how each node wrote, when the next one comes."""

from grafana.layout import Row, dashboard
from grafana.panels import DASHED, ORANGE, VERMILLION, Query, override, stat, table, thresholds, timeseries
from grafana.variables import NIC, NICS, NODE, PLACE, count

CONTENTION = 'bandwitness_incident_active{rule="burst_contention"}'
INSIDE = 'bandwitness_incident_active{during!=""}'

SEEN = [
    timeseries(
        5, "Cluster bursts 集群突发",
        "Cluster bursts that are on; marked: a trainer said so. 正在进行的集群突发；marked 表示训练程序有通报。",
        [Query("sum by (site, scope, lane, kind, marked) (bandwitness_cluster_burst_active)",
               "{{site}} {{scope}} {{lane}} {{kind}} marked={{marked}}")],
        axis="Bursts 突发", width=8, height=8, unit="short", style="dots",
    ),
    timeseries(
        6, "Rate of cluster bursts 集群突发速率",
        "All nodes together, from the start of the burst. 全部节点合计，自突发开始起的平均速率。",
        [Query("8 * sum by (site, lane, kind) (bandwitness_cluster_burst_bytes_per_second)",
               "{{site}} {{lane}} {{kind}}")],
        axis="Rate 速率", width=8, height=8, unit="bps", style="dots",
    ),
    timeseries(
        7, "NICs in a burst 突发中的网卡",
        "Number of NICs by lane and kind. 按通道与类型统计的网卡数。",
        [Query("count by (lane, kind) (bandwitness_burst_active)", "{{lane}} {{kind}}")],
        axis="NICs 网卡", width=8, height=8, unit="short", style="dots",
    ),
    timeseries(
        8, "Bursts that ended 已结束的突发",
        "In the last hour: cluster bursts, and bursts of single NICs (dashed)."
        " 最近一小时：集群突发与单网卡突发（虚线）。",
        [
            Query("sum by (lane, kind) (increase(bandwitness_cluster_bursts_total[1h]))", "{{lane}} {{kind}}"),
            Query("sum by (lane, kind) (increase(bandwitness_bursts_total[1h]))", "{{lane}} {{kind}} NICs 网卡"),
        ],
        axis="Bursts 突发", width=8, height=8, unit="short",
        overrides=[override("byFrameRefID", "B", custom_lineStyle=DASHED)],
    ),
    timeseries(
        9, "Volume of bursts 突发数据量",
        "Bytes of NIC bursts that ended in the last hour. 最近一小时内结束的网卡突发字节数。",
        [Query("sum by (lane, kind) (increase(bandwitness_burst_bytes_total[1h]))", "{{lane}} {{kind}}")],
        axis="Volume 数据量", width=8, height=8, unit="decbytes",
    ),
    timeseries(
        10, "Bursts against marks 突发与通报对照",
        "Over the last day, where trainers mark checkpoints. 最近一天，限于训练程序有通报的节点。",
        [
            Query("bandwitness_burst_precision_ratio", "precision 精确率"),
            Query("bandwitness_burst_recall_ratio", "recall 召回率"),
        ],
        axis="Ratio 比率", width=8, height=8, unit="percentunit", most=1,
    ),
    timeseries(
        13, "Start error 起始误差",
        "Distance of a burst's start from what trainers said, over the last day. 突发起始与通报时间之差，最近一天。",
        [Query("bandwitness_burst_start_error_seconds", "quantile {{quantile}}")],
        axis="Error 误差", width=8, height=8, unit="s",
    ),
    timeseries(
        14, "Until the next burst 距下一次突发",
        "Where starts are periodic; below zero: overdue. 起始有周期时给出；小于零表示已逾期。",
        [Query("bandwitness_cluster_burst_next_start_timestamp_seconds - time()", "{{site}} {{lane}} {{kind}}")],
        axis="Time 时间", width=8, height=8, unit="s", least=None,
    ),
    timeseries(
        15, "Reads judged too early 提前判定的读数",
        "Counter reads judged though it was not known yet whether a test of ours ran."
        " 尚不知自身测试是否运行时即判定的读数。",
        [Query("rate(bandwitness_collector_burst_reads_waited_out_total[$__rate_interval])", "reads 读数")],
        axis="Reads 读数", width=8, height=8, unit="cps",
    ),
]  # fmt: skip

HARM = [
    stat(
        20, "Bursts that hurt others now 正在影响其他流量的突发",
        "Open incidents of burst contention. 未关闭的突发争用事件数。",
        [Query(count(CONTENTION))], steps=thresholds((1, ORANGE), (5, VERMILLION)), width=6, height=8, unit="short",
    ),
    table(
        21, "Where it hurts 受影响之处",
        "Open incidents that began inside a burst; during: checkpoint was marked by a trainer, burst is inferred. Which"
        " burst, job and nodes: bandwitness-collector incidents."
        " 突发期间开始且未关闭的事件；checkpoint 为训练程序标记，burst 为推断。",
        [Query(f"max by (rule, severity, kind, element, during) ({INSIDE})", table=True)],
        columns={"rule": "Rule 规则", "severity": "Severity 级别", "kind": "Kind 类型", "element": "Where 位置",
                 "during": "During 期间"},
        width=18, height=8, unit="short",
    ),
    timeseries(
        22, "Contention over time 争用随时间变化",
        "Open incidents that began inside a burst, by rule. 突发期间开始的未关闭事件数，按规则。",
        [Query(f"sum by (rule, during) ({INSIDE})", "{{rule}} {{during}}")],
        axis="Incidents 事件", width=12, height=8, unit="short", style="dots",
    ),
    timeseries(
        23, "Transmit rate by node 各节点发送速率",
        "Each NIC's mean rate, the twenty highest: in a checkpoint the lowest of the writers makes all others wait."
        " 各网卡平均速率，最高的二十个；写检查点时最慢的节点决定整体时长。",
        [Query(f"topk(20, 8 * rate(bandwitness_nic_transmit_bytes_total{{{NICS}}}[$__rate_interval]))",
               "{{node}} {{nic}}")],
        axis="Rate 速率", width=12, height=8, unit="bps",
    ),
]  # fmt: skip

DASHBOARD = dashboard(
    "bandwitness-bursts",
    "Bandwitness: Checkpoint bursts 检查点突发",
    "When bursts ran, what they did to other traffic, how each node wrote, when the next one comes."
    " 突发何时发生、影响了什么、各节点写入速率、下一次何时到来。",
    [*PLACE, NODE, NIC],
    [Row(101, "Harm 影响", HARM), Row(102, "Bursts 突发", SEEN)],
    links=[("Bursts 突发", "/api/v1/bursts"), ("Lanes 网络平面", "/api/v1/lanes"), ("Marks 标记", "/api/v1/marks")],
    marks=True,
)
