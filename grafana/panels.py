"""What a dashboard shows: queries, and the kinds of panels that draw them.

Ids of panels are written down, not counted: links to a panel must survive a new neighbour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Json = dict[str, Any]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
DATASOURCE_UID = "bandwitness-prometheus"

# Okabe and Ito: told apart by every kind of colour vision. Figures stand beside colours everywhere.
BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PURPLE, GREY = "#E69F00", "#D55E00", "#CC79A7", "#8C8C8C"

NOTHING = "none · 无"
NO_DATA = "no data · 无数据"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression. ``legend`` is Grafana's format; a ``table`` or an ``instant`` one reads only the end."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False
    heatmap: bool = False

    def json(self, ref: str) -> Json:
        instant = self.instant or self.table
        return {
            "refId": ref,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": " ".join(self.expr.split()),
            "format": "table" if self.table else "heatmap" if self.heatmap else "time_series",
            "instant": instant,
            "range": not instant,
            "legendFormat": self.legend or "__auto",
        }


def thresholds(*steps: tuple[float, str], base: str = BLUE) -> Json:
    """Absolute thresholds: ``base`` below the first, then each colour from its value on."""
    return {
        "mode": "absolute",
        "steps": [{"value": None, "color": base}, *({"value": value, "color": color} for value, color in steps)],
    }


def override(matcher: str, argument: str, **properties: object) -> Json:
    """``override("byName", "ok", color=BLUE)``; ``_`` in a property's name stands for the dot of ``custom.``."""
    made = []
    for name, value in properties.items():
        shown = {"mode": "fixed", "fixedColor": value} if name == "color" and isinstance(value, str) else value
        made.append({"id": name.replace("custom_", "custom."), "value": shown})
    return {"matcher": {"id": matcher, "options": argument}, "properties": made}


def colours(**of_name: str) -> list[Json]:
    """One fixed colour for each series that is called so."""
    return [override("byName", name, color=colour) for name, colour in of_name.items()]


DASHED: Json = {"fill": "dash", "dash": [8, 6]}


def panel(
    number: int,
    kind: str,
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    width: int,
    height: int = 8,
    unit: str,
    options: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    overrides: Sequence[Json] = (),
    transformations: Sequence[Json] = (),
    interval: str = "",
    empty: str = NO_DATA,
) -> Json:
    """Any panel. ``title`` and ``about`` hold English and Chinese; ``empty`` is shown where there is nothing."""
    made: Json = {
        "id": number,
        "type": kind,
        "title": title,
        "description": about,
        "datasource": DATASOURCE,
        "gridPos": {"w": width, "h": height},
        "targets": [query.json(chr(ord("A") + index)) for index, query in enumerate(queries)],
        "fieldConfig": {
            "defaults": {"unit": unit, "noValue": empty, **(defaults or {})},
            "overrides": list(overrides),
        },
        "options": dict(options),
        "transformations": list(transformations),
    }
    if interval:
        made["interval"] = interval
    return made


def stat(
    number: int, title: str, about: str, queries: Sequence[Query], *, steps: Json | None = None, **rest: Any
) -> Json:
    """Figures of this moment in large type, coloured by thresholds. Never the last one known: that may be hours old."""
    queries = [replace(query, instant=True) for query in queries]
    several = len(queries) > 1
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background" if steps else "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value_and_name" if several else "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    defaults = {
        "color": {"mode": "thresholds"},
        "thresholds": steps or thresholds(),
        **rest.pop("defaults", {}),
    }
    return panel(number, "stat", title, about, queries, options=options, defaults=defaults, **rest)


def timeseries(
    number: int,
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    axis: str,
    style: str = "line",
    stacked: bool = False,
    limits: Json | None = None,
    least: float | None = 0,
    most: float | None = None,
    **rest: Any,
) -> Json:
    """Lines, bars or dots over time. ``limits`` are drawn as dashed lines; ``axis`` names what the axis shows."""
    custom = {
        "axisLabel": axis,
        "drawStyle": {"line": "line", "bars": "bars", "dots": "points"}[style],
        "lineWidth": 1,
        "fillOpacity": 80 if style == "bars" else 0,
        "pointSize": 7 if style == "dots" else 4,
        "showPoints": "always" if style == "dots" else "auto",
        "spanNulls": False,  # a gap is a gap
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
    }
    defaults: Json = {
        "custom": custom,
        "color": {"mode": "palette-classic"},
        "thresholds": limits or thresholds(),
        **rest.pop("defaults", {}),
    }
    if least is not None:
        defaults["min"] = least
    if most is not None:
        defaults["max"] = most
    options = {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull", "max"],
            "sortBy": "Max",
            "sortDesc": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel(number, "timeseries", title, about, queries, options=options, defaults=defaults, **rest)


def table(
    number: int,
    title: str,
    about: str,
    queries: Sequence[Query],
    *,
    columns: Mapping[str, str],
    sort: str = "",
    **rest: Any,
) -> Json:
    """Instant figures as rows; queries with equal labels become one row with a column for each.

    Args:
        columns: in order, a label or ``#A`` for the figure of query A, and the heading.
        sort: heading to sort by, largest first.
    """
    renamed: dict[str, str] = {}
    for name, heading in columns.items():
        renamed[f"Value {name}" if name.startswith("#") else name] = heading
        if name == "#A":
            renamed["Value"] = heading  # what Grafana calls it where only one query answered
    hidden = dict.fromkeys(["Time"] if "#A" in columns else ["Time", "Value", "Value #A"], True)
    organize = {
        "id": "organize",
        "options": {
            "excludeByName": hidden,
            "indexByName": {name: index for index, name in enumerate(renamed)},
            "renameByName": renamed,
        },
    }
    merge: list[Json] = [{"id": "merge", "options": {}}] if len(queries) > 1 else []
    options: Json = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [{"displayName": sort, "desc": True}] if sort else [],
    }
    defaults = {
        "custom": {"align": "auto", "filterable": True, "cellOptions": {"type": "auto"}, "inspect": False},
        "color": {"mode": "thresholds"},
        "thresholds": thresholds(),
        **rest.pop("defaults", {}),
    }
    return panel(
        number, "table", title, about, queries,
        options=options, defaults=defaults, transformations=[*merge, organize], **rest,
    )  # fmt: skip


def _sorted_by(field: str) -> Json:
    return {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": field, "desc": False}]}}


def matrix(
    number: int,
    title: str,
    about: str,
    expr: str,
    *,
    row: str,
    column: str,
    steps: Json | None = None,
    links: Sequence[Json] = (),
    **rest: Any,
) -> Json:
    """A table of one label against another, each cell coloured: by ``steps``, or by its size among the others."""
    options: Json = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [],
    }
    defaults = {
        "custom": {"align": "center", "cellOptions": {"type": "color-background", "mode": "basic"}, "inspect": False},
        "color": {"mode": "thresholds" if steps else "continuous-blues"},
        "thresholds": steps or thresholds(),
        "links": list(links),
        "decimals": 1,
    }
    corner = f"{row}\\{column}"
    plain = {"type": "auto"}
    return panel(
        number, "table", title, about, [Query(expr, table=True)],
        options=options, defaults=defaults,
        overrides=[override("byName", corner, custom_cellOptions=plain, custom_align="left", links=[])],
        transformations=[
            _sorted_by(column),  # Prometheus answers in no order, and columns come as they are met
            {
                "id": "groupingToMatrix",
                "options": {"rowField": row, "columnField": column, "valueField": "Value", "emptyValue": "null"},
            },
            _sorted_by(corner),
        ],
        **rest,
    )  # fmt: skip


def heatmap(number: int, title: str, about: str, expr: str, *, unit: str, **rest: Any) -> Json:
    """A classic histogram's buckets over time."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Viridis", "steps": 64, "exponent": 0.5, "reverse": True, "fill": BLUE},
        "exemplars": {"color": VERMILLION},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
        "yAxis": {"axisPlacement": "left", "unit": unit, "axisLabel": "Delay 时延"},
    }
    query = Query(expr, "{{le}}", heatmap=True)
    return panel(number, "heatmap", title, about, [query], unit=unit, options=options, **rest)
