"""Tables for the terminal from the API's items. Imports rich only here, because only these commands print."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

Item = Mapping[str, Any]
MAX_TARGETS = 6
MAX_PORTS = 4  # named one by one in a table


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    value: Callable[[Item], str]
    right: bool = False


def rate(bps: float | None) -> str:
    """``187.4 Mbit/s``; an en dash where there is none."""
    if bps is None:
        return "–"
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if abs(bps) >= size:
            return f"{bps / size:.1f} {unit}"
    return f"{bps:.0f} bit/s"


def delay(ns: int | None) -> str:
    """``96 µs``, ``6.0 ms``."""
    if ns is None:
        return "–"
    return f"{ns / 1e3:.0f} µs" if ns < 1_000_000 else f"{ns / 1e6:.1f} ms"


def percent(ratio: float | None, digits: int = 1) -> str:
    return "–" if ratio is None else f"{ratio * 100:.{digits}f} %"


def when(time: str | None) -> str:
    """The API's time to the second, UTC."""
    return "–" if time is None else time[:19].replace("T", " ") + "Z"


def size(count: int | None) -> str:
    if count is None:
        return "–"
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _given(one: Item) -> str:
    return f"{one['to']} {'stamped' if one['stamped'] else 'taken'} {when(one['time'])}"


def text(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)


def _throughput(name: str) -> Callable[[Item], Any]:
    return lambda item: (item["throughput"] or {}).get(name)


def _verdict(item: Item) -> str:
    throughput = item["throughput"]
    if throughput is None:
        return "loaded" if item["loaded"] else "doubtful" if item["doubtful"] else ""
    if throughput["swing_ratio"] is None:
        return "not enough tests"
    return "flagged" if throughput["flagged"] else "steady"


def _lossy_ports(item: Item) -> str:
    """``some: 61001 61004 of 16``: the pattern, and which."""
    if item["pattern"] == "none":
        return "none"
    lossy = [str(port["source_port"]) for port in item["ports"] if port["lost"]]
    named = " ".join(lossy) if len(lossy) <= MAX_PORTS else str(len(lossy))
    return f"{item['pattern']}: {named} of {len(item['ports'])}"


def _hops(item: Item) -> str:
    """``gw 7, dns 9|11``: routers that replies pass, by target."""
    shown = [f"{one['target']} {'|'.join(map(str, one['hop_counts']))}" for one in item["hops"][:MAX_TARGETS]]
    more = len(item["hops"]) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more else shown)


def _one_way(way: str) -> Callable[[Item], str]:
    """``96 µs ±12 µs``, or that it means nothing: never a delay without its bound."""

    def told(item: Item) -> str:
        found = item["one_way"]
        if found is None:
            return "–"
        bound = f"±{delay(found['clock_error_ns'])}"
        shown = f"{delay(found[f'{way}_delay_p50_ns'])} {bound}"
        return shown if found[f"{way}_known"] else f"{shown}: means nothing"

    return told


def _protocol(item: Item) -> str:
    port = item["source_port"]
    return str(item["protocol"]) if port is None else f"{item['protocol']} from port {port}"


def _during(item: Item) -> str:
    """``checkpoint 3f2a…``: where it began inside one, and which."""
    if not item["during"]:
        return ""
    return f"{item['during']} {(item['burst_id'] or '')[:12]}"


def seconds(ns: int | None) -> str:
    """``12.0 s``; shorter than a tenth in milliseconds."""
    if ns is None:
        return "–"
    return f"{ns / 1e9:.1f} s" if ns >= 100_000_000 or not ns else f"{ns / 1e6:.1f} ms"


def _lasted(item: Item) -> str:
    if item["end_time"] is None:
        return "on"
    start, end = (datetime.fromisoformat(item[name]) for name in ("start_time", "end_time"))
    return f"{(end - start).total_seconds():.1f} s"


def _highest(item: Item) -> str:
    return rate(max((member["peak_bps"] for member in item["members"]), default=None))


def _said_by(item: Item) -> str:
    if not item["marked"]:
        return "counters alone"
    step = f" step {item['step']}" if item["step"] is not None else ""
    return f"job {item['job']}{step}" if item["job"] else f"a mark{step}"


def _next_burst(item: Item) -> str:
    if item["next_start_time"] is None:
        return "–"
    return f"{when(item['next_start_time'])} ±{seconds(item['interval_spread_ns'])} ({item['intervals']} intervals)"


def burst_score(score: Item) -> str:
    """The line below the bursts: how well they agree with what trainers said."""
    if not score["events"] and not score["detections"]:
        return "against marks: nobody marked anything in this time"
    return (
        f"against marks: precision {percent(score['precision_ratio'], 0)}"
        f" ({score['detections_marked']} of {score['detections']} bursts),"
        f" recall {percent(score['recall_ratio'], 0)} ({score['events_detected']} of {score['events']} marked),"
        f" start error {seconds(score['start_error_median_ns'])} median, {seconds(score['start_error_p90_ns'])} p90"
    )


def _node_state(item: Item) -> str:
    if item["connected"]:
        return "connected"
    return "never seen" if item["last_received_time"] is None else "away"


def _clock(item: Item) -> str:
    if item["clock_synchronised"] is None:
        return "–"
    bound = item["clock_error_bound_ns"]
    state = "synchronised" if item["clock_synchronised"] else "not synchronised"
    return state if bound is None else f"{state}, ±{delay(bound)}"


def _doubt(item: Item) -> str:
    check = item["self_check"]
    if check is None:
        return "–"
    return f"doubtful: {', '.join(check['reasons'])}" if check["reasons"] else "ok"


def _left_out(item: Item) -> str:
    reasons = ["a test of ours"] if item["loaded_by"] else []
    return ", ".join([*reasons, f"delay: {item['doubtful']}"] if item["doubtful"] else reasons)


def _gaps(item: Item) -> str:
    return f"{item['gaps']}, last {when(item['last_gap_time'])}" if item["gaps"] else "0"


def _routers(item: Item) -> str:
    """``10.0.0.1 > * > 10.0.0.3``; ``direct`` only where the destination was reached without any."""
    hops: dict[int, list[str]] = {}
    for hop in item["hops"]:
        here = hops.setdefault(hop["hop_limit"], [])
        if hop["address"] and hop["address"] not in here and hop["answer"] != "replied":
            here.append(hop["address"])
    last = max((limit for limit, here in hops.items() if here), default=0)
    return " > ".join("|".join(hops.get(limit, [])) or "*" for limit in range(1, last + 1)) or (
        "direct" if item["reached"] else "–"
    )


def _mtu_verdict(item: Item) -> str:
    if item["mtu_bytes"] is None:
        return "unknown"
    if item["black_hole"]:
        return "larger packets vanish"
    said = [trial["reporter"] for trial in item["trials"] if trial["reporter"]]
    return f"limited by {said[-1]}" if said else "ok"


def _at_once(item: Item) -> str:
    """``1: 190.0 Mbit/s, 3: 188.1 Mbit/s``: goodput by number of hosts."""
    return ", ".join(f"{step['senders']}: {rate(step['goodput_bps'])}" for step in item["result"]["steps"])


def _uplink(item: Item) -> str:
    found = item["result"]
    return ("≥ " if found["at_least"] and found["uplink_link_bps"] is not None else "") + rate(found["uplink_link_bps"])


def _delivered(item: Item) -> str:
    """``33.1 % (32.0–34.2, 3 repeats)``."""
    found = item["result"]
    if found["delivered_low"] is None:
        return percent(found["delivered_ratio"])
    low, high = (f"{found[name] * 100:.1f}" for name in ("delivered_low", "delivered_high"))
    return f"{percent(found['delivered_ratio'])} ({low}–{high}, {found['repeats']} repeats)"


COLUMNS: Mapping[str, Sequence[Column]] = {
    "nodes": (
        Column("node", lambda item: item["name"]),
        Column("site", lambda item: item["site"]),
        Column("rack", lambda item: item["rack"]),
        Column("agent", _node_state),
        Column("last batch", lambda item: when(item["last_received_time"])),
        Column("clock", _clock),
        Column("spool", lambda item: size(item["spool_bytes"]), right=True),
        Column("dropped", lambda item: text(item["records_dropped"]), right=True),
        Column("gaps", _gaps, right=True),
        Column("own delays", _doubt),
        Column("certificate until", lambda item: when(item["certificate_expiry_time"])),
        Column("quarantined", lambda item: str(item["quarantined"]), right=True),
        Column("version", lambda item: text(item["software_version"])),
        Column("not working", lambda item: "; ".join(f"{part['part']}: {part['state']}" for part in item["parts"])),
    ),
    "paths": (
        Column("from", lambda item: item["src"]),
        Column("to", lambda item: item["dst"]),
        Column("lane", lambda item: item["lane"]),
        Column("protocol", _protocol),
        Column("sent", lambda item: text(item["sent"]), right=True),
        Column("loss", lambda item: percent(item["loss_ratio"], 2), right=True),
        Column("delay p50", lambda item: delay(item["delay_p50_ns"]), right=True),
        Column("delay p99", lambda item: delay(item["delay_p99_ns"]), right=True),
        Column("hops", lambda item: text(item["hop_count"]), right=True),
        Column("MTU", lambda item: text(item["path_mtu_bytes"]), right=True),
        Column("off-peak", lambda item: rate(_throughput("offpeak_bps")(item)), right=True),
        Column("peak", lambda item: rate(_throughput("peak_bps")(item)), right=True),
        Column("swing", lambda item: percent(_throughput("swing_ratio")(item)), right=True),
        Column("verdict", _verdict),
        Column("path", lambda item: item["path_id"]),
    ),
    "pairs": (
        Column("from", lambda item: item["src"]),
        Column("to", lambda item: item["dst"]),
        Column("lane", lambda item: item["lane"]),
        Column("sent", lambda item: text(item["sent"]), right=True),
        Column("loss", lambda item: percent(item["loss_ratio"], 2), right=True),
        Column("lost there", lambda item: text(item["forward_lost"]), right=True),
        Column("lost back", lambda item: text(item["reverse_lost"]), right=True),
        Column("not told", lambda item: text(item["either_lost"]), right=True),
        Column("ports that lose", _lossy_ports),
        Column("delay there p50", _one_way("forward"), right=True),
        Column("delay back p50", _one_way("reverse"), right=True),
    ),
    "carriers": (
        Column("site", lambda item: item["site"]),
        Column("carrier", lambda item: item["carrier"]),
        Column("protocol", lambda item: item["protocol"]),
        Column("targets reached", lambda item: f"{item['targets_reachable']} of {item['targets']}", right=True),
        Column("sent", lambda item: str(item["sent"]), right=True),
        Column("loss", lambda item: percent(item["loss_ratio"], 2), right=True),
        Column("delay p50", lambda item: delay(item["delay_p50_ns"]), right=True),
        Column("delay p99", lambda item: delay(item["delay_p99_ns"]), right=True),
        Column("hops", _hops),
        Column("not reached", lambda item: ", ".join(item["unreachable_targets"])),
    ),
    "samples": (
        Column("start", lambda item: when(item["start_time"])),
        *(
            Column(name.replace("_", " "), lambda item, name=name: str(item[name]), right=True)  # type: ignore[misc]
            for name in ("sent", "lost", "unreachable", "corrupt", "duplicates", "late", "unresolved", "send_failed")
        ),
        *(
            Column(f"delay {name}", lambda item, name=name: delay(item[f"delay_{name}_ns"]), right=True)  # type: ignore[misc]
            for name in ("min", "p50", "p99", "max")
        ),
        Column("left out of verdicts", _left_out),
    ),
    "gaps": (
        Column("node", lambda item: item["node"]),
        Column("class", lambda item: item["batch_class"]),
        Column("from", lambda item: when(item["from_time"])),
        Column("to", lambda item: when(item["to_time"])),
        Column("why", lambda item: item["reason"]),
        Column("records", lambda item: text(item["records"]), right=True),
        Column("what", lambda item: item["detail"]),
    ),
    "incidents": (
        Column("incident", lambda item: item["incident_id"][:12]),
        Column("rule", lambda item: item["rule"]),
        Column("severity", lambda item: item["severity"]),
        Column("where", lambda item: f"{item['element']['kind']} {item['element']['name']}"),
        Column("opened", lambda item: when(item["opened_time"])),
        Column("closed", lambda item: when(item["closed_time"]) if item["closed_time"] else "open"),
        Column("during", _during),
        Column("what", lambda item: item["summary"]),
    ),
    "bursts": (
        Column("start", lambda item: when(item["start_time"])),
        Column("lasted", _lasted, right=True),
        Column("what", lambda item: item["kind"]),
        Column("who", lambda item: f"{item['scope']} {item['name']}"),
        Column("lane", lambda item: item["lane"]),
        Column("nodes", lambda item: str(len(item["nodes"])), right=True),
        Column("volume", lambda item: size(item["bytes"]), right=True),
        Column("rate", lambda item: rate(item["achieved_bps"]), right=True),
        Column("peak of a NIC", _highest, right=True),
        Column("slowest", lambda item: f"{item['slowest_node']} {rate(item['slowest_bps'])}"),
        Column("start spread", lambda item: seconds(item["start_spread_ns"]), right=True),
        Column("±", lambda item: seconds(item["error_ns"]), right=True),
        Column("said by", _said_by),
        Column("next", _next_burst),
    ),
    "contention": (
        Column("start", lambda item: when(item["start_time"])),
        Column("rack", lambda item: f"{item['site']}/{item['rack']}"),
        Column("runs ok", lambda item: f"{item['ok']} of {item['runs']}", right=True),
        Column("hosts alone, sum", lambda item: rate(item["result"]["solo_sum_bps"]), right=True),
        Column("at once", _at_once),
        Column("knee", lambda item: text(item["result"]["knee_senders"]), right=True),
        Column("uplink (octets)", _uplink, right=True),
        Column("delivered", _delivered, right=True),
        Column("one flow loses", lambda item: percent(item["result"]["collision_loss_ratio"]), right=True),
        Column("in the rack", lambda item: item["result"]["control"]),
        Column("verdict", lambda item: item["called_off"] or item["result"]["verdict"]),
        Column("doubts", lambda item: ", ".join(item["doubts"])),
    ),
    "pauses": (
        Column("site", lambda item: item["site"] or "all"),
        Column("from", lambda item: when(item["start_time"])),
        Column("until", lambda item: when(item["until_time"]) if item["until_time"] else "resumed"),
        Column("ended", lambda item: when(item["end_time"])),
        Column("why", lambda item: item["reason"]),
    ),
    "heads": (
        Column("day", lambda item: item["day"]),
        Column("headers", lambda item: str(item["tree_size"]), right=True),
        Column("signed", lambda item: when(item["signed_time"])),
        Column("given to", lambda item: ", ".join(_given(one) for one in item.get("given", ())) or "nobody"),
        Column("root (RFC 9162, SHA-256)", lambda item: item["root"]),
    ),
    "lanes": (
        Column("site", lambda item: item["site"]),
        Column("bursts on", lambda item: item["lane"]),
        Column("against", lambda item: item["other_lane"]),
        Column("verdict", lambda item: item["verdict"]),
        Column("bursts", lambda item: str(item["bursts"]), right=True),
        Column("hurt", lambda item: str(item["hurting"]), right=True),
        Column("last", lambda item: when(item["last_time"])),
        Column("answer", lambda item: item["answer"]),
    ),
    "traces": (
        Column("time", lambda item: when(item["time"])),
        Column("from", lambda item: item["src"]),
        Column("to", lambda item: item["dst"]),
        Column("lane", lambda item: item["lane"]),
        Column("why", lambda item: item["trace_reason"]),
        Column("reached", lambda item: "yes" if item["reached"] else "no"),
        Column("routers", _routers),
        Column("vendor edge", lambda item: text(item["vendor_edge"])),
        Column("path", lambda item: item["path_id"]),
    ),
    "path-mtus": (
        Column("time", lambda item: when(item["time"])),
        Column("from", lambda item: item["src"]),
        Column("to", lambda item: item["dst"]),
        Column("lane", lambda item: item["lane"]),
        Column("path MTU", lambda item: text(item["mtu_bytes"]), right=True),
        Column("own interface", lambda item: text(item["interface_mtu_bytes"]), right=True),
        Column("verdict", _mtu_verdict),
        Column("path", lambda item: item["path_id"]),
    ),
    "route-changes": (
        Column("time", lambda item: when(item["time"])),
        Column("from", lambda item: item["src"]),
        Column("to", lambda item: item["dst"]),
        Column("lane", lambda item: item["lane"]),
        Column("what", lambda item: item["change"]),
        Column("before", lambda item: item["before"]),
        Column("after", lambda item: item["after"]),
        Column("path", lambda item: item["path_id"]),
    ),
    "marks": (
        Column("time", lambda item: when(item["time"])),
        Column("node", lambda item: item["node"]),
        Column("what", lambda item: f"{item['kind']} {item['phase']}"),
        Column("job", lambda item: text(item["job"])),
        Column("step", lambda item: text(item["step"]), right=True),
        Column("rank", lambda item: text(item["rank"]), right=True),
        Column("bytes", lambda item: size(item["bytes"]), right=True),
        Column("user", lambda item: str(item["user_id"]), right=True),
        Column("labels", lambda item: ", ".join(f"{name}={value}" for name, value in item["labels"].items())),
    ),
    "timetable": (
        Column("start", lambda item: when(item["start_time"])),
        Column("from", lambda item: item["server" if item["reverse"] else "client"]["node"]),
        Column("to", lambda item: item["client" if item["reverse"] else "server"]["node"]),
        Column("lane", lambda item: item["client"]["lane"]),
        Column("window", lambda item: item["window"]),
        Column("outcome", lambda item: "pending" if item["category"] == "pending" else item["outcome"]),
        Column("result", lambda item: rate((item["client_run"] or {}).get("throughput_bps")), right=True),
        Column("left out of verdicts", lambda item: item["left_out"] or item["advice"]),
        Column("why", lambda item: item["reason"]),
    ),
    "accounting": (
        Column("from", lambda item: item["source"]),
        Column("to", lambda item: item["destination"]),
        Column("lane", lambda item: item["lane"]),
        Column("window", lambda item: item["window"]),
        *(
            Column(name, lambda item, name=name: str(item[name]), right=True)  # type: ignore[misc]
            for name in ("planned", "ok", "failed", "skipped", "lost", "pending")
        ),
        Column("outcomes", lambda item: ", ".join(f"{name} {count}" for name, count in item["outcomes"].items())),
    ),
}


def _harmless(shown: str) -> str:
    """Words come from agents and from their peers' programs: what steers a terminal is not let through."""
    if shown.isprintable():
        return shown
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)


def build(resource: str, items: Sequence[Item]) -> Table:
    """The table of one resource."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = COLUMNS[resource]
    if resource == "paths":  # the API's order is that of the ids, which says nothing to people
        items = sorted(items, key=lambda item: (item["src"], item["dst"], item["lane"], item["protocol"]))
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for item in items:
        table.add_row(*(Text(_harmless(column.value(item))) for column in columns))
    return table


def show(resource: str, items: Sequence[Item]) -> None:
    """Prints the table; wide enough for scripts when the output is no terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=240)
    if items:
        console.print(build(resource, items))
    else:
        console.print(f"no {resource.replace('-', ' ')}")
