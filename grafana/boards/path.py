"""Path: all about one pair of nodes, or a node and a target, path by path."""

from grafana.layout import Row, dashboard
from grafana.panels import (
    BLUE,
    DASHED,
    GREEN,
    GREY,
    NOTHING,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    Query,
    colours,
    heatmap,
    override,
    stat,
    table,
    thresholds,
    timeseries,
)
from grafana.variables import DST_OF_SRC, LANE, ONE_PAIR, ONE_PATH, PATH, PLACE, SRC, fresh

LIMITS = thresholds((0.005, ORANGE), (0.05, VERMILLION), base="transparent")
IDLE = f"and on (path) bandwitness_path_loaded{{{ONE_PATH}}} == 0"
LOADED = f"and on (path) bandwitness_path_loaded{{{ONE_PATH}}} == 1"
LABELS = "dst, lane, protocol, path"
OF_ALL_SENT = f"sum by ({LABELS}) (increase(bandwitness_probe_packets_sent_total{{{ONE_PATH}}}[$__range]))"
OF_ALL_LOST = f"sum by ({LABELS}) (increase(bandwitness_probe_packets_lost_total{{{ONE_PATH}}}[$__range]))"
OF_PATH = "{{dst}} {{lane}} {{protocol}} {{path}}"
DASHES = override("byFrameRefID", "B", custom_lineStyle=DASHED, custom_lineWidth=2)
# From the rack of the chosen source: histograms are kept by pair of racks.
BUCKETS = """rate(bandwitness_round_trip_delay_seconds_bucket{lane=~"$lane"}[$__rate_interval])
    and on (src_rack) label_replace(bandwitness_agent_connected{node=~"$src"}, "src_rack", "$1", "rack", "(.*)")"""

NOW = [
    stat(
        1, "Loss in the chosen time 所选时段丢包率",
        "Lost, unreachable or corrupt packets of all sent, over the whole time chosen; counters begin with the"
        " collector's process. 所选时段内丢失、不可达或损坏报文的比例。",
        [
            Query(
                f"sum(increase(bandwitness_probe_packets_lost_total{{{ONE_PATH}}}[$__range]))"
                f" / sum(increase(bandwitness_probe_packets_sent_total{{{ONE_PATH}}}[$__range]))",
                instant=True,
            )
        ],
        width=6, height=4, unit="percentunit", steps=thresholds((0.005, ORANGE), (0.05, VERMILLION)),
        defaults={"decimals": 3},
    ),
    stat(
        2, "Packets sent 已发送报文",
        "Probe packets in the chosen time. 所选时段的探测报文数。",
        [Query(f"sum(increase(bandwitness_probe_packets_sent_total{{{ONE_PATH}}}[$__range]))", instant=True)],
        width=6, height=4, unit="short",
    ),
    stat(
        3, "Worst delay now, 99th percentile 当前最差时延 P99",
        "Of the chosen paths, in the newest closed 10 s window. 所选路径最近 10 秒窗口的最大值。",
        [Query(f'max(bandwitness_path_delay_seconds{{{ONE_PATH}, quantile="0.99"}})')],
        width=6, height=4, unit="s",
    ),
    stat(
        4, "Loaded by a test, or doubtful, now 正被测试加载或存疑",
        "Paths that shared a link with a throughput test of ours in the newest closed window: such windows enter no"
        " verdict. Paths whose hosts doubted their own delays: those enter no verdict on delay."
        " 与我方吞吐测试共享链路的路径数（不参与判定）；主机自疑时延的路径数（不参与时延判定）。",
        [
            Query(f"sum(bandwitness_path_loaded{{{ONE_PATH}}})", "loaded 加载"),
            Query(f"sum(bandwitness_path_doubtful{{{ONE_PATH}}})", "doubtful 存疑"),
        ],
        width=6, height=4, unit="none", steps=thresholds((1, ORANGE)),
    ),
]  # fmt: skip

ROUND_TRIPS = [
    timeseries(
        11, "Delay 往返时延",
        "Quantiles of each closed 10 s window: solid while idle, dashed while a throughput test of"
        " ours loaded the path. 每个 10 秒窗口的分位数；实线为空闲，虚线为被我方测试加载。",
        [
            Query(f"bandwitness_path_delay_seconds{{{ONE_PATH}}} {IDLE}", f"{OF_PATH} q{{{{quantile}}}} idle 空闲"),
            Query(f"bandwitness_path_delay_seconds{{{ONE_PATH}}} {LOADED}", f"{OF_PATH} q{{{{quantile}}}} loaded 加载"),
        ],
        axis="Round trip 往返时延", width=12, height=10, unit="s", overrides=[DASHES],
    ),
    timeseries(
        12, "Loss 丢包率",
        "Of each closed 10 s window. Lines at 0.5 % (warning over 60 s) and 5 % (critical over 10 s)."
        " 每个 10 秒窗口；虚线为 0.5 % 和 5 %。",
        [
            Query(f"bandwitness_path_loss_ratio{{{ONE_PATH}}} {IDLE}", f"{OF_PATH} idle 空闲"),
            Query(f"bandwitness_path_loss_ratio{{{ONE_PATH}}} {LOADED}", f"{OF_PATH} loaded 加载"),
        ],
        axis="Loss 丢包率", width=12, height=10, unit="percentunit", limits=LIMITS, overrides=[DASHES],
    ),
    heatmap(
        13, "Delays from the source's rack 源机柜的时延分布",
        "All round trips from the rack of the chosen source, on the chosen lanes, loaded ones included."
        " 源节点所在机柜、所选网络平面的全部往返时延。",
        f"sum by (le) ({BUCKETS})", unit="s", width=12, height=9, interval="1m",
    ),
    timeseries(
        14, "Delay by rack 各目的机柜时延",
        "Quantiles from the histograms of rack pairs: all packets between two racks."
        " 由机柜对直方图计算的分位数。",
        [
            Query(f"histogram_quantile(0.5, sum by (le, dst_rack, lane) ({BUCKETS}))", "{{dst_rack}} {{lane}} q0.5"),
            Query(f"histogram_quantile(0.99, sum by (le, dst_rack, lane) ({BUCKETS}))", "{{dst_rack}} {{lane}} q0.99"),
        ],
        axis="Round trip 往返时延", width=12, height=9, unit="s", interval="1m", overrides=[DASHES],
    ),
    timeseries(
        15, "Probe packets of the source, by outcome 源节点探测报文结果",
        "unresolved, send_failed and skipped are our own faults and no loss."
        " unresolved、send_failed、skipped 是自身问题，不计入丢包。",
        [
            Query(
                'sum by (outcome) (rate(bandwitness_probe_outcomes_total{src=~"$src"}[$__rate_interval]))',
                "{{outcome}}",
            )
        ],
        axis="Packets per second 每秒报文", width=12, height=8, unit="pps",
        overrides=colours(
            replied=BLUE, lost=VERMILLION, unreachable=ORANGE, corrupt=PURPLE, unresolved=GREY, send_failed=YELLOW,
            skipped=SKY,
        ),
    ),
    timeseries(
        16,
        "Loss there and back 去程与回程丢包",
        "Packets lost on the way there (forward) or back (reverse), where a STAMP reflector's count tells; other probes"
        " cannot tell. STAMP 反射端的计数能区分去程（forward）与回程（reverse）丢包，其他探测无法区分。",
        [
            Query(
                "sum by (direction)"
                f" (rate(bandwitness_one_way_packets_lost_total{{{ONE_PATH}}}[$__rate_interval]))",
                "{{direction}}",
            )
        ],
        axis="Packets per second 每秒报文", width=12, height=8, unit="pps",
        overrides=colours(forward=VERMILLION, reverse=BLUE),
    ),
    table(
        17,
        "Loss by path 各路径丢包率",
        "Over the whole time chosen. STAMP has a path for each source port: a few that lose while the others do not are"
        " one member of a group of links. 所选时段；STAMP 每个源端口一条路径，只有少数丢包说明链路组中某个成员有问题。",
        [
            Query(OF_ALL_SENT, table=True),
            Query(OF_ALL_LOST, table=True),
            Query(f"{OF_ALL_LOST} / {OF_ALL_SENT}", table=True),
        ],
        columns={
            "dst": "To 目的", "lane": "Lane 网络平面", "protocol": "Protocol 协议", "path": "Path 路径",
            "#A": "Sent 已发送", "#B": "Lost 丢失", "#C": "Loss 丢包率",
        },
        sort="Loss 丢包率", width=24, height=9, unit="short",
        overrides=[
            override(
                "byName", "Loss 丢包率", unit="percentunit", decimals=3,
                thresholds=thresholds((0.005, ORANGE), (0.05, VERMILLION), base="transparent"),
                custom_cellOptions={"type": "color-background", "mode": "basic"},
            )
        ],
    ),
    timeseries(
        18, "Routers on the way back 回程路由器跳数",
        "By the TTL or hop limit that replies come with. A step says that the way back is another:"
        " bandwitness-collector routes has it with its time. 由应答报文的 TTL 推算；台阶表示回程路由变化。",
        [Query(f"bandwitness_path_hops{{{ONE_PATH}}}", OF_PATH)],
        axis="Routers 路由器数", width=12, height=8, unit="none", defaults={"decimals": 0},
    ),
    timeseries(
        19, "Path MTU 路径 MTU",
        "Largest IP packet that gets there whole, checked about once an hour."
        " 能完整到达的最大 IP 报文，约每小时检查一次。",
        [Query(f"bandwitness_path_mtu_bytes{{{ONE_PATH}}}", OF_PATH)],
        axis="Path MTU 路径 MTU", width=12, height=8, unit="bytes", defaults={"decimals": 0},
    ),
]  # fmt: skip

THROUGHPUT = [
    timeseries(
        21, "Throughput 吞吐",
        "Each dot is one valid result; lines are the medians of the peak and the off-peak window over the trailing"
        " days. 每个点是一次有效结果，线为高峰与非高峰时段的中位数。",
        [
            Query(fresh(ONE_PAIR), "{{dst}} {{lane}} result 结果"),
            Query(
                f"8 * bandwitness_offpeak_throughput_bytes_per_second{{{ONE_PAIR}}}",
                "{{dst}} {{lane}} off-peak median 非高峰中位数",
            ),
            Query(
                f"8 * bandwitness_peak_throughput_bytes_per_second{{{ONE_PAIR}}}",
                "{{dst}} {{lane}} peak median 高峰中位数",
            ),
        ],
        axis="Throughput 吞吐", width=16, height=10, unit="bps", interval="1m",
        overrides=[
            override("byFrameRefID", "A", custom_drawStyle="points", custom_pointSize=7, custom_showPoints="always"),
            override("byFrameRefID", "C", custom_lineStyle=DASHED, custom_lineWidth=2),
        ],
    ),
    timeseries(
        22, "Tests by outcome 测试结果",
        "Tests that were due in each hour. 每小时到期的测试。",
        [
            Query(
                f"sum by (outcome) (increase(bandwitness_throughput_tests_total{{{ONE_PAIR}}}[1h]))",
                "{{outcome}}",
            ),
            Query(
                "sum by (outcome, corrected)"
                f" (increase(bandwitness_throughput_tests_corrected_total{{{ONE_PAIR}}}[1h])) > 0",
                "{{outcome}} corrected to {{corrected}} 更正",
            ),
        ],
        axis="Tests per hour 每小时测试数", width=8, height=10, unit="none", style="bars", stacked=True, interval="1h",
        empty=NOTHING, overrides=colours(ok=BLUE, lost=VERMILLION, refused=ORANGE, busy=GREEN),
        defaults={"decimals": 0},
    ),
]  # fmt: skip

DASHBOARD = dashboard(
    "bandwitness-path",
    "Bandwitness: Path 路径",
    "Round trips and throughput of one pair, path by path, idle and loaded. 一对节点之间的时延、丢包和吞吐。",
    [*PLACE, SRC, DST_OF_SRC, LANE, PATH],
    [
        Row(101, "Summary 概要", NOW),
        Row(102, "Round trips 往返探测", ROUND_TRIPS),
        Row(103, "Throughput 吞吐", THROUGHPUT),
    ],
    links=[
        ("Paths 路径", "/api/v1/paths"),
        ("Loss by direction 按方向丢包", "/api/v1/pairs"),
        ("Timetable 测试计划", "/api/v1/timetable"),
    ],
)
