"""NICs: how much of each link is in use, on average and in its busiest second."""

from grafana.layout import Row, dashboard
from grafana.panels import BLUE, DASHED, GREY, ORANGE, VERMILLION, Query, override, table, thresholds, timeseries
from grafana.variables import NIC, NICS, NODE, PLACE

USE = thresholds((0.7, ORANGE), (0.9, VERMILLION))
LIMIT = thresholds((0.9, VERMILLION), base="transparent")
SPEED = f"bandwitness_nic_speed_bytes_per_second{{{NICS}}}"
DISCARDS = f'{NICS}, counter=~".*discards|out_of_buffer|.*_dropped|.*_missed_errors"'
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
        18, "Discards 丢弃",
        "Packets that found no buffer, a second, the ten highest: congestion or a slow host, not the cable."
        " 因缓冲不足每秒丢弃的包数，最高的十个：由拥塞或主机过慢造成，与线缆无关。",
        [Query(f"topk(10, rate(bandwitness_nic_errors_total{{{DISCARDS}}}[$__rate_interval]) > 0)",
               "{{node}} {{nic}} {{counter}}")],
        axis="Packets 包数", width=12, height=8, unit="pps", style="dots",
    ),
    timeseries(
        19, "ECN and CNP 拥塞通知",
        "RDMA's congestion control, events a second, the ten highest. Marks and notifications without pauses: it works."
        " Pauses without them: ECN is not set up, or a host is slow. RDMA 拥塞控制事件每秒次数，最高的十个；"
        "只有通知而无暂停说明正常，只有暂停而无通知说明 ECN 未配好或主机过慢。",
        [Query(f"topk(10, rate(bandwitness_nic_congestion_total{{{NICS}}}[$__rate_interval]) > 0)",
               "{{node}} {{nic}} {{counter}}")],
        axis="Events 次数", width=12, height=8, unit="cps", style="dots",
    ),
    timeseries(
        17, "Kinds and blind spots 类型与盲区",
        "NICs by what they are and by what their counters do not see. 按类型与计数盲区统计的网卡数。",
        [Query(f"count by (kind, coverage) (bandwitness_nic_info{{{NICS}}})", "{{kind}} {{coverage}}")],
        axis="NICs 网卡", width=12, height=8, unit="short",
    ),
]  # fmt: skip

ONE_NODE = [
    _direction(11, "$node: receive 接收", "receive"),
    _direction(12, "$node: transmit 发送", "transmit"),
]

DASHBOARD = dashboard(
    "bandwitness-nics",
    "Bandwitness: NIC and RDMA 网卡与 RDMA",
    "Rates and peaks against link speed, errors, discards, pauses, congestion marks, blind spots; a row for each node."
    " 速率与峰值、错误、丢弃、暂停、拥塞标记与盲区；点开每个节点一行。",
    [*PLACE, NODE, NIC],
    [
        Row(101, "All NICs 全部网卡", ALL_NICS),
        Row(102, "$node", ONE_NODE, repeat="node"),
    ],
    links=[("Nodes 节点", "/api/v1/nodes")],
)
