"""Variables at the top of the dashboards. Equal names mean the same everywhere: links between them carry values on."""

from grafana.panels import DATASOURCE, DATASOURCE_UID, Json

ALL = {"selected": True, "text": ["All"], "value": ["$__all"]}


def _query(name: str, label: str, metric: str, of: str, *, several: bool = True, narrow: bool = False) -> Json:
    """Values of a label. ``narrow``: All means the values listed, which the variables before have narrowed down."""
    expr = f"label_values({metric}, {of})"
    made: Json = {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"qryType": 1, "query": expr, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,  # when the time range changes
        "sort": 7,  # natural order, without regard to case
        "regex": "",
        "hide": 0,
        "multi": several,
        "includeAll": several,
        "options": [],
        "skipUrlSync": False,
    }
    if several:
        made["current"] = ALL
        if not narrow:
            made["allValue"] = ".*"
    return made


DATASOURCE_VARIABLE: Json = {
    "type": "datasource",
    "name": "datasource",
    "label": "Prometheus",
    "query": "prometheus",
    "regex": "",
    "current": {"selected": True, "text": "Bandwitness Prometheus", "value": DATASOURCE_UID},
    "refresh": 1,
    "hide": 0,
    "multi": False,
    "includeAll": False,
    "options": [],
    "skipUrlSync": False,
}
_HERE = "http://127.0.0.1:7480"
COLLECTOR: Json = {
    "type": "textbox",
    "name": "collector",
    "label": "Collector 收集器",
    "description": "Address of the collector as your browser reaches it; for the links at the top.",
    "query": _HERE,
    "current": {"selected": True, "text": _HERE, "value": _HERE},
    "options": [{"selected": True, "text": _HERE, "value": _HERE}],
    "hide": 0,
    "skipUrlSync": False,
}
AGENT = "bandwitness_agent_connected"
SENT = "bandwitness_probe_packets_sent_total"

SITE = _query("site", "Site 机房", AGENT, "site")
RACK = _query("rack", "Rack 机柜", AGENT + '{site=~"$site"}', "rack")
NODE = _query("node", "Node 节点", AGENT + '{site=~"$site", rack=~"$rack"}', "node", narrow=True)
SRC = _query("src", "From 源", AGENT + '{site=~"$site", rack=~"$rack"}', "node", several=False)
DST = _query("dst", "To 目的", SENT + '{src=~"$node"}', "dst")
DST_OF_SRC = _query("dst", "To 目的", SENT + '{src=~"$src"}', "dst")
LANE = _query("lane", "Lane 网络平面", SENT, "lane")
PATH = _query("path", "Path 路径", SENT + '{src=~"$src", dst=~"$dst", lane=~"$lane"}', "path", narrow=True)
NIC = _query("nic", "NIC 网卡", 'bandwitness_nic_receive_bytes_total{node=~"$node"}', "nic")

PLACE = (DATASOURCE_VARIABLE, COLLECTOR, SITE, RACK)

# What variables choose, as matchers. Series of remote write say the same again with the time of measuring: left out.
AGENTS = 'site=~"$site", rack=~"$rack", node=~"$node"'
MESH = 'src=~"$node", lane=~"$lane", origin=""'
PAIRS = 'src=~"$node", dst=~"$dst", lane=~"$lane", origin=""'
ONE_PAIR = 'src=~"$src", dst=~"$dst", lane=~"$lane", origin=""'
ONE_PATH = ONE_PAIR + ', path=~"$path"'
NICS = 'node=~"$node", nic=~"$nic", origin=""'

# 0 while the collector is scraped, nothing otherwise: "no incident" must not be read where nobody looked.
ZERO = "0 * max(bandwitness_collector_build_info)"


def count(expr: str) -> str:
    """How many series; 0 only where the collector is scraped."""
    return f"count({expr}) or {ZERO}"


def fresh(matchers: str) -> str:
    """Throughput results in bit/s, each only at the first step that sees it: one dot a result and no line between.

    The hour: a result that comes back after a gap in scraping is not new.
    """
    stamp = f"bandwitness_throughput_result_timestamp_seconds{{{matchers}}}"
    before = f"last_over_time({stamp}[1h] offset $__interval)"
    return f"""8 * bandwitness_throughput_bytes_per_second{{{matchers}}}
        and on (path) ({stamp} > {before} or {stamp} unless {before})"""


def by_rack(expr: str) -> str:
    """The sum over the nodes of each pair of racks. Targets stand in no rack and are left out."""

    def rack_of(end: str) -> str:
        named = f'label_replace(bandwitness_agent_connected, "{end}", "$1", "node", "(.*)")'
        racked = f'label_replace({named}, "{end}_rack", "$1", "rack", "(.*)")'
        return f"on ({end}) group_left ({end}_rack) (max by ({end}, {end}_rack) ({racked}) >= bool 0)"

    return f"sum by (src_rack, dst_rack) ({expr} * {rack_of('src')} * {rack_of('dst')})"


def to_path(src: str, dst: str) -> Json:
    """A link to the Path dashboard for the pair that these two templates name."""
    return {
        "title": "Path · 路径",
        "url": f"/d/bandwitness-path?var-src={src}&var-dst={dst}"
        "&${datasource:queryparam}&${collector:queryparam}&${__url_time_range}",
    }
