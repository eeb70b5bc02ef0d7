"""Oversubscription: peak against off-peak, and whether the tests that say so took place."""

from grafana.layout import Row, dashboard
from grafana.panels import (
    BLUE,
    GREEN,
    NOTHING,
    ORANGE,
    VERMILLION,
    Query,
    colours,
    matrix,
    override,
    panel,
    stat,
    table,
    thresholds,
    timeseries,
)
from grafana.variables import DST, LANE, NODE, PAIRS, PLACE, count, fresh, to_path

LABELS = "src, dst, lane, path"
LINE = thresholds((0.30, VERMILLION), base="transparent")
SWING = thresholds((0.25, ORANGE), (0.30, VERMILLION))
TESTS = "bandwitness_throughput_tests_total"
FAILED = 'outcome!~"ok|lost|skipped_.*"'


def _tests(matcher: str = "") -> str:
    chosen = f"{PAIRS}, {matcher}" if matcher else PAIRS
    return f"sum({TESTS}{{{chosen}}}) or 0 * sum({TESTS}{{{PAIRS}}})"


def _new_without_result() -> str:
    """Counts that grew since the step before. Not ``increase``: it passes over the first of each outcome, whose series
    begins with it. A pair that was not known a step before has no past to compare with."""
    tests = f'{TESTS}{{{PAIRS}, outcome!="ok"}}'
    grown = f"{tests} - ({tests} offset $__interval or 0 * {tests})"
    return f"sum by (outcome) (({grown}) and on (src, dst, lane) {TESTS}{{{PAIRS}}} offset $__interval) > 0"


def _by_pair(expr: str) -> str:
    return f'max by (pair) (label_join({expr}, "pair", " ", "src", "dst", "lane"))'


NOW = [
    stat(
        1, "Incidents 超卖事件",
        "Open incidents of the rule oversubscription, in the whole fleet. An alert, not yet a"
        " claim. 全部未关闭的超卖事件；这是告警，尚不是索赔依据。",
        [Query(count('bandwitness_incident_active{rule="oversubscription"}'))],
        width=4, height=5, unit="none", steps=thresholds((1, VERMILLION)),
    ),
    stat(
        2, "Worst swing 最大波动率",
        "1 - peak / off-peak throughput of the worst path; the line is at 30 %."
        " 最差路径的 1 - 高峰/非高峰；界线为 30 %。",
        [Query(f"max(bandwitness_swing_ratio{{{PAIRS}}})")],
        width=4, height=5, unit="percentunit", steps=SWING, defaults={"decimals": 1},
    ),
    stat(
        3, "Tests: planned = ok + failed + skipped + lost 测试：计划 = 成功 + 失败 + 跳过 + 丢失",
        "All tests that were due since the log began. Lost: no record of it came. 日志开始以来所有到期的测试。",
        [
            Query(_tests(), "planned 计划"),
            Query(_tests('outcome="ok"'), "ok 成功"),
            Query(_tests(FAILED), "failed 失败"),
            Query(_tests('outcome=~"skipped_.*"'), "skipped 跳过"),
            Query(_tests('outcome="lost"'), "lost 丢失"),
        ],
        width=12, height=5, unit="none",
    ),
    stat(
        4, "Oldest newest result 最久未更新的结果",
        "The longest time since a path's newest valid result. 距各路径最近有效结果的最长时间。",
        [Query(f"max(time() - bandwitness_throughput_result_timestamp_seconds{{{PAIRS}}})")],
        width=4, height=5, unit="s", steps=thresholds((86400, ORANGE), (172800, VERMILLION)),
    ),
]  # fmt: skip

PEAK = [
    table(
        11, "Peak against off-peak 高峰与非高峰",
        "Medians of valid results over the trailing days; swing stays empty until both windows have enough of them."
        " 有效结果的中位数；两个时段的测试足够后才有波动率。",
        [
            Query(f"8 * max by ({LABELS}) (bandwitness_offpeak_throughput_bytes_per_second{{{PAIRS}}})", table=True),
            Query(f"8 * max by ({LABELS}) (bandwitness_peak_throughput_bytes_per_second{{{PAIRS}}})", table=True),
            Query(f"max by ({LABELS}) (bandwitness_swing_ratio{{{PAIRS}}})", table=True),
            Query(f"8 * max by ({LABELS}) (bandwitness_throughput_bytes_per_second{{{PAIRS}}})", table=True),
        ],
        columns={
            "src": "From 源", "dst": "To 目的", "lane": "Lane 网络平面", "path": "Path 路径", "#A": "Off-peak 非高峰",
            "#B": "Peak 高峰", "#C": "Swing 波动率", "#D": "Newest 最近结果",
        },
        sort="Swing 波动率", width=24, height=9, unit="bps",
        overrides=[
            override(
                "byName", "Swing 波动率", unit="percentunit", decimals=1, thresholds=SWING,
                custom_cellOptions={"type": "color-background", "mode": "basic"},
            ),
            override("byName", "To 目的", links=[to_path("${__data.fields.src}", "${__data.fields.dst}")]),
        ],
    ),
    panel(
        12, "barchart",
        "Peak beside off-peak 高峰与非高峰对比", "The same medians, pair by pair. 各节点对的中位数。",
        [
            Query(_by_pair(f"8 * bandwitness_offpeak_throughput_bytes_per_second{{{PAIRS}}}"), table=True),
            Query(_by_pair(f"8 * bandwitness_peak_throughput_bytes_per_second{{{PAIRS}}}"), table=True),
        ],
        width=12, height=10, unit="bps",
        options={
            "xField": "pair",
            "orientation": "auto",
            "stacking": "none",
            "showValue": "auto",
            "xTickLabelRotation": -45,
            "xTickLabelSpacing": 100,
            "xTickLabelMaxLength": 32,
            "barWidth": 0.9,
            "groupWidth": 0.7,
            "barRadius": 0,
            "fullHighlight": False,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "none"},
        },
        defaults={
            "custom": {"axisLabel": "Throughput 吞吐", "fillOpacity": 85, "lineWidth": 1},
            "min": 0,
            "color": {"mode": "palette-classic"},
        },
        overrides=colours(**{"Off-peak 非高峰": BLUE, "Peak 高峰": ORANGE}),
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": {"pair": 0, "Value #A": 1, "Value #B": 2},
                    "renameByName": {"Value #A": "Off-peak 非高峰", "Value #B": "Peak 高峰"},
                },
            },
        ],
    ),
    matrix(
        14, "Hour of the day 一天中各小时",
        "Median of valid results between two racks in each hour of the local day, over the trailing days. Darker is"
        " faster; hours without tests are empty."
        " 两机架之间在当地各小时的有效结果中位数；颜色越深越快，无测试的小时为空。",
        'sum by (pair, hour) (label_join(8 * bandwitness_hourly_throughput_bytes_per_second{lane=~"$lane"},'
        ' "pair", " ", "src_rack", "dst_rack", "lane"))',
        row="pair", column="hour", width=24, height=9, unit="bps",
    ),
    timeseries(
        13, "Swing 波动率",
        "1 - peak / off-peak throughput over the trailing days. Dashed: 30 %, where the rule raises."
        " Below 0: peak was faster. 虚线为规则触发的 30 %；负值表示高峰更快。",
        [Query(f"bandwitness_swing_ratio{{{PAIRS}}}", "{{src}} → {{dst}} {{lane}}")],
        axis="Swing 波动率", width=12, height=10, unit="percentunit", limits=LINE, least=None, most=1, interval="5m",
    ),
]  # fmt: skip

RESULTS = [
    timeseries(
        21, "Results 测试结果",
        "Each dot is one valid result, where it arrived. Tests of which no result was valid have no"
        " dot: see their outcomes below. 每个点是一次有效结果；失败的测试没有点，见下方。",
        [Query(fresh(PAIRS), "{{src}} → {{dst}} {{lane}}")],
        axis="Throughput 吞吐", style="dots", width=24, height=10, unit="bps", interval="1m",
    ),
    timeseries(
        22, "Tests by outcome 测试按结果统计",
        "Tests that were due in each hour. 每小时到期的测试。",
        [Query(f"sum by (outcome) (increase({TESTS}{{{PAIRS}}}[1h]))", "{{outcome}}")],
        axis="Tests per hour 每小时测试数", style="bars", stacked=True, width=12, height=9, unit="none", interval="1h",
        empty=NOTHING, overrides=colours(ok=BLUE, lost=VERMILLION, refused=ORANGE, busy=GREEN),
        defaults={"decimals": 0},
    ),
    timeseries(
        24, "Tests without a result 没有结果的测试",
        "Each dot is a test that was due and gave no result, by outcome; failed ones are never 0 bit/s."
        " 每个点是一次到期但没有结果的测试，按结果分类；失败从不记为 0 bit/s。",
        [Query(_new_without_result(), "{{outcome}}")],
        axis="Tests 测试数", style="dots", width=24, height=7, unit="none", interval="1m", empty=NOTHING,
        defaults={"decimals": 0},
    ),
    matrix(
        23, "Accounting: tests of each pair by outcome 台账：各节点对的测试结果",
        "All tests that were due since the log began. 日志开始以来所有到期的测试。",
        f'sum by (pair, outcome) (label_join({TESTS}{{{PAIRS}}}, "pair", " ", "src", "dst", "lane"))',
        row="pair", column="outcome", width=12, height=9, unit="none",
    ),
]  # fmt: skip

DASHBOARD = dashboard(
    "bandwitness-oversubscription",
    "Bandwitness: Oversubscription 超卖",
    "Peak against off-peak throughput, and the tests it stands on. 高峰与非高峰吞吐对比，以及所依据的测试。",
    [*PLACE, NODE, DST, LANE],
    [
        Row(101, "Summary 概要", NOW),
        Row(102, "Peak against off-peak 高峰与非高峰", PEAK),
        Row(103, "Tests 测试", RESULTS),
    ],
    links=[
        ("Incidents 事件", "/api/v1/incidents?active=true"),
        ("Timetable 测试计划", "/api/v1/timetable"),
        ("Accounting 台账", "/api/v1/accounting"),
    ],
    since="now-7d",
    refresh="5m",
)
