"""NICs: how much of each link is in use, on average and in its busiest second."""

from grafana.layout import Row, dashboard
from grafana.panels import BLUE, DASHED, GREY, ORANGE, VERMILLION, Query, override, table, thresholds, timeseries
from grafana.variables import NIC, NICS, NODE, PLACE

USE = thresholds((0.7, ORANGE), (0.9, VERMILLION))
LIMIT = thresholds((0.9, VERMILLION), base="transparent")
SPEED = f"bandwitness_nic_speed_bytes_per_second{{{NICS}}}"
RECEIVE_PEAK = f"bandwitness_nic_receive_peak_bytes_per_second{{{NICS}}}"
TRANSMIT_PEAK = f"bandwitness_nic_transmit_peak_bytes_per_second{{{NICS}}}"


def _rate(direction: str) -> str:
    return f"rate(bandwitness_nic_{direction}_bytes_total{{{NICS}}}[$__rate_interval])"


def _by_nic(expr: str) -> Query:
    return Query(f"max by (node, nic) ({expr})", table=True)


def _direction(number: int, title: str, direction: str) -> dict[str, object]:
    peak = RECEIVE_PEAK if direction == "receive" else TRANSMIT_PEAK
    return timeseries(
        number, title, "Mean rate, the highest second of each 10 s (dashed), and the link's speed (grey; absent where"
        " the kernel does not know it). 平均速率、每 10 秒内最高一秒（虚线）与链路速率（灰色）。",
        [
            Query(f"8 * {_rate(direction)}", "{{nic}} mean 平均"),
            Query(f"8 * {peak}", "{{nic}} highest second 最高一秒"),
            Query(f"8 * {SPEED}", "{{nic}} speed 链路速率"),
        ],
        axis="Rate 速率", width=12, height=9, unit="bps",
        overrides=[
            override("byFrameRefID", "B", custom_lineStyle=DASHED),
            override("byFrameRefID", "C", color=GREY, custom_lineWidth=2),
        ],
    )  # fmt: skip


ALL_NICS = [
    table(
        1, "NICs by use 各网卡使用率",
        "Use: the highest second of the newest 10 s, in the busier direction, of the link's"
        " speed. Rates are means. 使用率：较忙方向最近 10 秒内最高一秒与链路速率之比。",
        [
            _by_nic(f"8 * {_rate('receive')}"),
            _by_nic(f"8 * {_rate('transmit')}"),
            _by_nic(f"8 * {RECEIVE_PEAK}"),
            _by_nic(f"8 * {TRANSMIT_PEAK}"),
            _by_nic(f"8 * {SPEED}"),
            _by_nic(f"({RECEIVE_PEAK} > {TRANSMIT_PEAK} or {TRANSMIT_PEAK}) / {SPEED}"),
        ],
        columns={
            "node": "Node 节点", "nic": "NIC 网卡", "#A": "Receive 接收", "#B": "Transmit 发送",
            "#C": "Receive peak 接收峰值", "#D": "Transmit peak 发送峰值", "#E": "Speed 链路速率", "#F": "Use 使用率",
        },
        sort="Use 使用率", width=24, height=10, unit="bps",
        overrides=[
            override(
                "byName", "Use 使用率", unit="percentunit", decimals=1, thresholds=USE, max=1, min=0,
                custom_cellOptions={"type": "color-background", "mode": "basic"},
            )
        ],
    ),
    timeseries(
        2, "Busiest receivers 接收最忙",
        "Highest second against speed, the ten busiest at each moment. Dashed: 90 %."
        " 最高一秒与链路速率之比，每一时刻最忙的十个；虚线为 90 %。",
        [Query(f"topk(10, {RECEIVE_PEAK} / {SPEED})", "{{node}} {{nic}}")],
        axis="Use 使用率", width=12, height=8, unit="percentunit", limits=LIMIT, most=1, style="dots",
        defaults={"color": {"mode": "fixed", "fixedColor": BLUE}},
    ),
    timeseries(
        3, "Busiest senders 发送最忙",
        "Highest second against speed, the ten busiest at each moment. Dashed: 90 %."
        " 最高一秒与链路速率之比，每一时刻最忙的十个；虚线为 90 %。",
        [Query(f"topk(10, {TRANSMIT_PEAK} / {SPEED})", "{{node}} {{nic}}")],
        axis="Use 使用率", width=12, height=8, unit="percentunit", limits=LIMIT, most=1, style="dots",
        defaults={"color": {"mode": "fixed", "fixedColor": BLUE}},
    ),
    timeseries(
        4, "Errors and drops 错误与丢弃",
        "Packets a second by the kernel's counter, the ten highest at each moment; counters that stand still are left"
        " out. 按内核计数器统计的每秒包数，每一时刻最高的十个；不变的计数器不显示。",
        [Query(f"topk(10, rate(bandwitness_nic_errors_total{{{NICS}}}[$__rate_interval]) > 0)",
               "{{node}} {{nic}} {{counter}}")],
        axis="Packets 包数", width=24, height=8, unit="pps", style="dots",
        defaults={"color": {"mode": "fixed", "fixedColor": VERMILLION}},
    ),
    timeseries(
        16, "Paused 流控暂停",
        "Share of time in which flow control stopped the port, the ten longest; only where drivers count it. Receive:"
        " it was not allowed to send; transmit: it stopped its neighbour."
        " 流控使端口停止的时间占比，最长的十个；仅限驱动统计时长的网卡。"
        "receive 为本端不得发送，transmit 为本端令对端停止。",
        [Query(f"topk(10, bandwitness_nic_pause_ratio{{{NICS}}} > 0)", "{{node}} {{nic}} {{direction}}")],
        axis="Share 占比", width=12, height=8, unit="percentunit", most=1, style="dots",
    ),
    timeseries(
        17, "Kinds and blind spots 类型与盲区",
        "NICs by what they are and by what their counters do not see. 按类型与计数盲区统计的网卡数。",
        [Query(f"count by (kind, coverage) (bandwitness_nic_info{{{NICS}}})", "{{kind}} {{coverage}}")],
        axis="NICs 网卡", width=12, height=8, unit="short",
    ),
]  # fmt: skip

BURSTS = [
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

ONE_NODE = [
    _direction(11, "$node: receive 接收", "receive"),
    _direction(12, "$node: transmit 发送", "transmit"),
]

DASHBOARD = dashboard(
    "bandwitness-nics",
    "Bandwitness: NICs 网卡",
    "Rates and peaks against link speed; each node has a row that opens. 速率、峰值与链路速率；点开每个节点一行。",
    [*PLACE, NODE, NIC],
    [
        Row(101, "All NICs 全部网卡", ALL_NICS),
        Row(103, "Bursts 突发", BURSTS),
        Row(102, "$node", ONE_NODE, repeat="node"),
    ],
    links=[("Nodes 节点", "/api/v1/nodes")],
)
