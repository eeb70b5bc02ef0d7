"""Grafana's files keep the rules that no Grafana is needed to check: places, ids, units, names, links, colours."""

import itertools
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from fastapi.routing import APIRoute

from collector.export.http import Sources, create_app
from collector.vocabulary import METRICS
from grafana import layout, make_dashboards, panels
from grafana.panels import Json

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}
UIDS = {"fleet", "path", "oversubscription", "bursts", "nics", "itself"}  # others link to these: they stay
OF_PROMETHEUS = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
BUILT_IN = re.compile(r"__\w+|\d+")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
COLOURS = {
    panels.BLUE, panels.SKY, panels.GREEN, panels.YELLOW, panels.ORANGE, panels.VERMILLION, panels.PURPLE,
    panels.GREY, "transparent",
}  # fmt: skip
each_dashboard = pytest.mark.parametrize("name", DASHBOARDS)


def everything(dashboard: Json) -> Iterator[Json]:
    """All panels, those in closed rows and the rows themselves too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def figures(dashboard: Json) -> Iterator[Json]:
    return (panel for panel in everything(dashboard) if panel["type"] != "row")


def strings(value: object) -> Iterator[str]:
    """Every string in it, keys of objects left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from strings(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from strings(entry)


def values_of(value: object, key: str) -> Iterator[Any]:
    """Every value under ``key``, at any depth."""
    if isinstance(value, Mapping):
        if key in value:
            yield value[key]
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from values_of(entry, key)


def variables_in(value: object) -> set[str]:
    found = {name for text in strings(value) for name in re.findall(r"\$\{?(\w+)", text)}
    return {name for name in found if not BUILT_IN.fullmatch(name)}


def expressions(dashboard: Json) -> list[str]:
    queries = [str(entry["query"]["query"]) for entry in dashboard["templating"]["list"] if entry["type"] == "query"]
    return queries + list(values_of(dashboard, "expr"))


def test_the_files_are_made_from_their_definitions() -> None:
    committed = {path.name: path.read_text() for path in (GRAFANA / "dashboards").iterdir()}
    assert committed == make_dashboards.files(), "run python -m grafana.make_dashboards and commit what it writes"


def test_uids_stay() -> None:
    assert {dashboard["uid"] for dashboard in DASHBOARDS.values()} == {f"bandwitness-{name}" for name in UIDS}


@each_dashboard
def test_a_file_belongs_to_no_grafana(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["id"] is None
    assert "${DS_" not in json.dumps(dashboard)
    assert "__inputs" not in dashboard


@each_dashboard
def test_ids_are_unique(name: str) -> None:
    ids = Counter(panel["id"] for panel in everything(DASHBOARDS[name]))
    assert [number for number, times in ids.items() if times > 1] == []
    for panel in figures(DASHBOARDS[name]):
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), panel["title"]


def overlap(one: Json, other: Json) -> bool:
    a, b = one["gridPos"], other["gridPos"]
    return bool(
        a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]
    )


@each_dashboard
def test_nothing_overlaps_on_the_grid(name: str) -> None:
    top = DASHBOARDS[name]["panels"]
    for group in [top, *(row["panels"] for row in top if row["type"] == "row")]:
        for panel in group:
            place = panel["gridPos"]
            assert 0 <= place["x"] < place["x"] + place["w"] <= layout.COLUMNS, panel["title"]
            assert min(place["y"], place["h"] - 1) >= 0, panel["title"]
        assert [(a["title"], b["title"]) for a, b in itertools.combinations(group, 2) if overlap(a, b)] == []


@each_dashboard
def test_titles_and_descriptions_are_readable_in_both_languages(name: str) -> None:
    dashboard = DASHBOARDS[name]
    texts = [dashboard["title"], dashboard["description"]]
    for panel in figures(dashboard):
        texts += [panel["title"], panel["description"], panel["fieldConfig"]["defaults"]["noValue"]]
    assert [text for text in texts if not (CHINESE.search(text) and re.search(r"[A-Za-z]{2}", text))] == []
    titles = Counter(panel["title"] for panel in figures(dashboard))
    assert titles.most_common(1)[0][1] == 1


@each_dashboard
def test_every_axis_has_a_unit_and_a_name(name: str) -> None:
    for panel in figures(DASHBOARDS[name]):
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        axis = {
            "timeseries": lambda p: p["fieldConfig"]["defaults"]["custom"]["axisLabel"],
            "barchart": lambda p: p["fieldConfig"]["defaults"]["custom"]["axisLabel"],
            "heatmap": lambda p: p["options"]["yAxis"]["axisLabel"],
        }.get(panel["type"])
        assert axis is None or axis(panel), panel["title"]


@each_dashboard
def test_bytes_are_shown_as_the_unit_says(name: str) -> None:
    """Networks are spoken of in bits: what is shown in bit/s is multiplied by 8, and nothing else is."""
    for panel in figures(DASHBOARDS[name]):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            expr = target["expr"]
            is_rate = "bytes_per_second" in expr or ("nic" in expr and "bytes_total" in expr)
            shown_as_ratio = "/" in expr
            if is_rate and not shown_as_ratio:
                assert (unit == "bps") == ("8 * " in expr), (panel["title"], expr)


@each_dashboard
def test_series_have_readable_names(name: str) -> None:
    for panel in figures(DASHBOARDS[name]):
        for target in panel["targets"]:
            several = panel["type"] == "timeseries" or (panel["type"] == "stat" and len(panel["targets"]) > 1)
            assert not several or target["legendFormat"] != "__auto", panel["title"]


@each_dashboard
def test_the_data_source_is_a_variable(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert {json.dumps(source, sort_keys=True) for source in values_of(dashboard, "datasource")} == {
        json.dumps(panels.DATASOURCE, sort_keys=True)
    }
    for panel in figures(dashboard):
        assert all("datasource" in target for target in panel["targets"])
    (variable,) = [entry for entry in dashboard["templating"]["list"] if entry["type"] == "datasource"]
    provisioned = yaml.safe_load((GRAFANA / "provisioning/datasources/bandwitness.yaml").read_text())["datasources"]
    assert variable["current"]["value"] == panels.DATASOURCE_UID == provisioned[0]["uid"]
    assert variable["query"] == provisioned[0]["type"]


@each_dashboard
def test_only_exported_names_are_used(name: str) -> None:
    exported = {metric.full_name for metric in METRICS if metric.kind != "histogram"} | OF_PROMETHEUS
    for metric in METRICS:
        if metric.kind == "histogram":
            exported |= {f"{metric.full_name}_{part}" for part in ("bucket", "sum", "count")}
    words = {word for expr in expressions(DASHBOARDS[name]) for word in re.findall(r"\b\w*_\w+\b|\bup\b", expr)}
    named = {word for word in words if word.startswith(("bandwitness_", "scrape_")) or word == "up"}
    assert named - exported == set()
    assert named


def test_every_metric_is_on_a_dashboard() -> None:
    text = "\n".join(expr for dashboard in DASHBOARDS.values() for expr in expressions(dashboard))
    assert [metric.full_name for metric in METRICS if not re.search(rf"\b{metric.full_name}(_bucket)?\b", text)] == []


@each_dashboard
def test_every_variable_is_used_and_every_used_one_defined(name: str) -> None:
    dashboard = DASHBOARDS[name]
    defined = {entry["name"] for entry in dashboard["templating"]["list"]}
    links = [re.sub(r"var-\w+=[^&]*", "", url) for url in values_of(dashboard, "url")]
    used = variables_in([dashboard["panels"], dashboard["annotations"], links])
    assert used <= defined
    for entry in dashboard["templating"]["list"]:  # by others, as a chain or in a repeated row
        others = [other for other in dashboard["templating"]["list"] if other is not entry]
        repeated = {panel.get("repeat") for panel in everything(dashboard)}
        assert entry["name"] in used | variables_in(others) | repeated, entry["name"]
        before = {other["name"] for other in others}
        assert variables_in(entry.get("query", "")) <= before


@each_dashboard
def test_links_lead_somewhere(name: str) -> None:
    routes = {route.path for route in create_app(cast(Sources, _NoSources())).routes if isinstance(route, APIRoute)}
    siblings = {dashboard["uid"]: dashboard for dashboard in DASHBOARDS.values()}
    urls = [url for url in values_of(DASHBOARDS[name], "url") if url]
    assert any(url.startswith("${collector}/") for url in urls)
    for url in urls:
        if url.startswith("${collector}"):
            assert url.removeprefix("${collector}").partition("?")[0] in routes
        else:
            match = re.fullmatch(r"/d/([\w-]+)\?(.*)", url)
            assert match, url
            known = {entry["name"] for entry in siblings[match[1]]["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", match[2])) <= known


class _NoSources:
    reader = None
    ask_trace = None
    evidence = None
    say_pause = None
    order_contention = None
    topology = None


@each_dashboard
def test_colours_are_told_apart_by_everybody(name: str) -> None:
    """Fixed colours come from Okabe and Ito's eight; scales run in lightness; thresholds rise."""
    dashboard = DASHBOARDS[name]
    fixed = set(itertools.chain.from_iterable(values_of(dashboard, key) for key in ("fixedColor", "iconColor")))
    for threshold in values_of(dashboard, "thresholds"):
        values = [step["value"] for step in threshold["steps"]]
        assert values[0] is None
        assert values[1:] == sorted(values[1:])
        fixed |= {step["color"] for step in threshold["steps"]}
    assert fixed <= COLOURS
    modes = {color["mode"] for color in values_of(dashboard, "color") if isinstance(color, Mapping)}
    assert modes <= {"fixed", "thresholds", "palette-classic", "continuous-blues", "scheme"}


@each_dashboard
def test_what_is_shown_as_now_is_asked_for_now(name: str) -> None:
    """The last figure known of a collector that is gone would be shown as the state of things."""
    for panel in figures(DASHBOARDS[name]):
        if panel["type"] in ("stat", "table", "barchart"):
            assert all(target["instant"] and not target["range"] for target in panel["targets"]), panel["title"]


def test_a_file_provider_reads_the_dashboards() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/bandwitness.yaml").read_text())["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    assert Path(provider["options"]["path"]).is_absolute()
    assert provider["options"]["path"] in (GRAFANA / "README.md").read_text()


def test_the_readme_lists_the_dashboards() -> None:
    text = (GRAFANA / "README.md").read_text()
    listed = re.findall(r"^\| \[([^]]+)\]\(dashboards/(\w+)\.json\) \| `([\w-]+)` \|", text, re.MULTILINE)
    assert [(title, name, uid) for title, name, uid in listed] == [
        (dashboard["title"], dashboard["uid"].removeprefix("bandwitness-"), dashboard["uid"])
        for dashboard in make_dashboards.DASHBOARDS
    ]
    assert "none of this was loaded into a Grafana server" in " ".join(text.split())


def test_the_readme_names_only_metrics_that_exist() -> None:
    names = {metric.full_name for metric in METRICS}
    named = set(re.findall(r"\bbandwitness_[a-z_]+[a-z]", (GRAFANA / "README.md").read_text()))
    assert named <= names


def types_say(directory: Path, name: str, dashboard: Json) -> str:
    """What Grafana's types find wrong with it."""
    text = json.dumps(dashboard, indent=2, ensure_ascii=False)
    file = directory / f"{name}.ts"
    file.write_text(f"import type {{ Checked }} from './dashboard';\nexport const dashboard: Checked = {text};\n")
    command = ["node_modules/.bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", file.name]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stdout), done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(300)
def test_grafanas_own_types_fit(tmp_path: Path) -> None:
    """Fetches @grafana/schema and typescript by npm, versions and hashes as in grafana/schema."""
    directory = tmp_path / "schema"
    shutil.copytree(GRAFANA / "schema", directory)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=directory, check=True)
    for name, dashboard in DASHBOARDS.items():
        assert types_say(directory, name, dashboard) == ""

    # The check itself: it sees a word that Grafana does not know, at any depth.
    wrong = json.loads(json.dumps(DASHBOARDS["itself"]))
    graph = next(panel for panel in wrong["panels"] if panel["type"] == "timeseries")
    graph["fieldConfig"]["defaults"]["custom"]["drawStyle"] = "dots"
    assert "dots" in types_say(directory, "wrong_value", wrong)
    wrong = json.loads(json.dumps(DASHBOARDS["itself"]))
    wrong["panels"][1]["options"]["graphmode"] = "none"
    assert "graphmode" in types_say(directory, "wrong_name", wrong)
