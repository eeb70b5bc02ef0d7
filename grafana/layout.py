"""Where panels stand, and what is around them: rows on Grafana's grid of 24 columns, links, variables.

Panels are given in rows from left to right; places follow from widths and heights, so nothing overlaps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana.panels import BLUE, DATASOURCE, VERMILLION, Json

COLUMNS = 24
SCHEMA_VERSION = 39  # Grafana 10.4; newer ones migrate when they load

INCIDENTS: Json = {
    "name": "Incidents · 事件",
    "datasource": DATASOURCE,
    "enable": True,
    "hide": False,
    "iconColor": VERMILLION,
    "expr": "max by (rule, severity, kind, element, during) (bandwitness_incident_active)",
    "step": "60s",
    "titleFormat": "{{rule}} ({{severity}})",
    "textFormat": "{{kind}} {{element}} {{during}}",
    "tagKeys": "rule,severity,during",
}

MARKED: Json = {
    **INCIDENTS,
    "name": "Marked checkpoints · 检查点标记",
    "iconColor": BLUE,
    "expr": 'max by (site, lane, kind) (bandwitness_cluster_burst_active{marked="yes"} > 0)',
    "titleFormat": "{{kind}} on {{lane}}",
    "textFormat": "{{site}}",
    "tagKeys": "kind,lane",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A titled part of a dashboard; ``repeat``: once for each value of a variable, closed until somebody opens it."""

    number: int
    title: str
    panels: Sequence[Json]
    repeat: str = ""


def _placed(panels: Sequence[Json], top: int) -> tuple[list[Json], int]:
    """Panels from left to right, wrapped at the grid's edge, and the first line below them."""
    made, left, height = [], 0, 0
    for each in panels:
        place = each["gridPos"]
        if left + place["w"] > COLUMNS:
            top, left, height = top + height, 0, 0
        made.append({**each, "gridPos": {"x": left, "y": top, **place}})
        left, height = left + place["w"], max(height, place["h"])
    return made, top + height


def lay_out(rows: Sequence[Row]) -> list[Json]:
    """Rows and their panels, each at its place."""
    made: list[Json] = []
    top = 0
    for row in rows:
        placed, below = _placed(row.panels, top + 1)
        header: Json = {
            "id": row.number,
            "type": "row",
            "title": row.title,
            "collapsed": bool(row.repeat),
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            "panels": placed if row.repeat else [],
        }
        if row.repeat:
            header["repeat"] = row.repeat
            made.append(header)
            top += 1
        else:
            made += [header, *placed]
            top = below
    return made


def dashboard(
    uid: str,
    title: str,
    about: str,
    variables: Sequence[Json],
    rows: Sequence[Row],
    *,
    links: Sequence[tuple[str, str]],
    since: str = "now-6h",
    refresh: str = "30s",
    marks: bool = False,
) -> Json:
    """A whole dashboard. ``links``: title and path at the collector's API. ``marks``: annotate marked checkpoints."""
    siblings = {
        "type": "dashboards",
        "title": "Bandwitness",
        "icon": "external link",
        "tooltip": "",
        "tags": ["bandwitness"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "url": "",
    }
    api = [
        {
            "type": "link",
            "title": text,
            "icon": "doc",
            "tooltip": "JSON of the collector · 收集器的 JSON 接口",
            "tags": [],
            "asDropdown": False,
            "includeVars": False,
            "keepTime": False,
            "targetBlank": True,
            "url": "${collector}" + path,
        }
        for text, path in links
    ]
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "description": about,
        "tags": ["bandwitness"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": since, "to": "now"},
        "refresh": refresh,
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "links": [siblings, *api],
        "annotations": {"list": [INCIDENTS, *([MARKED] if marks else [])]},
        "templating": {"list": list(variables)},
        "panels": lay_out(rows),
    }
