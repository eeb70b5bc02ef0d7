"""Rules, their promtool tests, the sample configurations and their README hold together, and with what is exported."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bandwitness.v1.record_pb2 import RunOutcome
from collector.analysis.accounting import category
from collector.analysis.rules import agent_silent, burst_contention, delay, link_degraded, loss, oversubscription
from collector.export.prometheus import PARTS
from collector.store.counting import outcome_name
from collector.vocabulary import METRICS

FOLDER = Path(__file__).parents[2] / "deploy/prometheus"
README = (FOLDER / "README.md").read_text()
RULE_FILES = sorted((FOLDER / "rules").glob("*.yaml"))
TEST_FILES = sorted((FOLDER / "tests").glob("*.yaml"))
ANNOTATIONS = {"runbook", "summary", "summary_zh", "description", "description_zh"}
OF_SCRAPING = {"job", "instance"}
BY_NAME = {metric.full_name: metric for metric in METRICS}


def rules(kind: str) -> Iterator[dict[str, Any]]:
    for path in RULE_FILES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from (rule for rule in group["rules"] if kind in rule)


ALERTS = {rule["alert"]: rule for rule in rules("alert")}
RECORDS = {rule["record"]: rule for rule in rules("record")}


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_sample_configuration_and_all_rules() -> None:
    shown = run("promtool", "check", "config", "--lint=all", "--lint-fatal", "prometheus.yaml")
    assert f"{len(RULE_FILES)} rule files found" in shown


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.name)
def test_rules_fire_and_end_as_their_promtool_tests_say(path: Path) -> None:
    run("promtool", "test", "rules", path)


def test_amtool_accepts_the_sample_configuration() -> None:
    assert "SUCCESS" in run("amtool", "check-config", "alertmanager.yaml")


@pytest.mark.parametrize(
    ("severity", "during", "receiver"),
    [
        ("critical", "", "page"),
        ("warning", "", "mail"),
        ("critical", "checkpoint", "page"),
        ("warning", "checkpoint", "training"),
        ("warning", "burst", "mail"),
    ],
)
def test_severity_decides_who_is_told_and_checkpoints_go_to_those_who_train(
    severity: str, during: str, receiver: str
) -> None:
    labels = (f"severity={severity}", *([f"during={during}"] if during else []))
    command = ("amtool", "config", "routes", "test", "--config.file=alertmanager.yaml", *labels)
    assert run(*command).split() == [receiver]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_severity_texts_in_both_languages_and_a_section_of_the_readme(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "{{ $labels.severity }}"}
    assert set(rule["annotations"]) == ANNOTATIONS
    assert rule["annotations"]["runbook"] == f"deploy/prometheus/README.md#{name.lower()}"
    for key in ("summary", "description"):
        assert re.search("[\u4e00-\u9fff]", rule["annotations"][f"{key}_zh"])
        assert not re.search("[\u4e00-\u9fff]", rule["annotations"][key])


def test_the_readme_lists_each_rule_and_no_other() -> None:
    assert set(re.findall(r"^### (Bandwitness\w+)$", README, re.MULTILINE)) == set(ALERTS)
    assert set(re.findall(r"Bandwitness[A-Z]\w+", README)) == set(ALERTS)
    assert set(re.findall(r"`(bandwitness:[\w:]+)`", README)) == set(RECORDS)


def test_the_readme_says_the_severity_and_the_time_of_each_alert() -> None:
    table = dict(re.findall(r"^\| \[(\w+)\]\(#\w+\) \| (.+?) \|", README, re.MULTILINE))
    expected = {
        name: f"{rule['labels']['severity'].replace('{{ $labels.severity }}', 'as the incident')} | "
        f"{rule.get('for', 'at once')}"
        for name, rule in ALERTS.items()
    }
    found = dict(re.findall(r"^\| \[(\w+)\]\(#\w+\) \| ([^|]+ \| [^|]+?) \|", README, re.MULTILINE))
    assert set(table) == set(ALERTS)
    assert found == expected


@pytest.mark.parametrize("path", sorted(path for path in FOLDER.rglob("*.*") if path.is_file()), ids=lambda p: p.name)
def test_only_exported_names_are_used(path: Path) -> None:
    for name in set(re.findall(r"\bbandwitness_[a-z_0-9]+", path.read_text())) - _group_names():
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in BY_NAME or BY_NAME[plain].kind in ("histogram", "summary")


def _group_names() -> set[str]:
    return {group["name"] for path in RULE_FILES for group in yaml.safe_load(path.read_text())["groups"]}


def test_recorded_names_that_are_used_are_recorded() -> None:
    texts = "".join(path.read_text() for path in (*RULE_FILES, *TEST_FILES))
    assert set(re.findall(r"bandwitness:[\w:]+\w", texts)) == set(RECORDS)


def _test_series() -> Iterator[tuple[str, Mapping[str, str]]]:
    for path in TEST_FILES:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for entry in test["input_series"]:
                name, _, labels = entry["series"].partition("{")
                yield name, dict(re.findall(r'(\w+)="([^"]*)"', labels))


def test_series_of_the_promtool_tests_look_like_exported_ones() -> None:
    """A rule that groups by a label which is not exported would pass tests on series that have it."""
    for name, labels in _test_series():
        if name == "up":
            continue
        metric = BY_NAME[name.removesuffix("_bucket")]
        expected = {*metric.labels, *OF_SCRAPING, *({"le"} if metric.kind == "histogram" else ())}
        assert set(labels) == expected, name


def test_each_alert_is_seen_firing_with_its_texts_by_promtool() -> None:
    texts = yaml.safe_load((FOLDER / "tests/texts.yaml").read_text())["tests"]
    told = {check["alertname"] for test in texts for check in test["alert_rule_test"] if check["exp_alerts"]}
    lives = "".join(path.read_text() for path in TEST_FILES if path.name != "texts.yaml")
    assert told == set(ALERTS)
    assert set(re.findall(r'alertname="(\w+)"', lives)) == set(ALERTS)


def test_incidents_of_each_rule_of_the_collector_raise_an_alert() -> None:
    named = set()
    for rule in ALERTS.values():
        for pattern in re.findall(r'^bandwitness:incident_active\{rule=~?"([^"]+)"', rule["expr"], re.MULTILINE):
            named.update(pattern.split("|"))
    modules = (agent_silent, burst_contention, delay, link_degraded, loss, oversubscription)
    assert named == {*(module.RULE for module in modules), oversubscription.BLOCK_RULE}


def test_outcomes_fall_into_the_categories_of_the_accounting() -> None:
    """By the same patterns as the recording rules."""
    patterns = {}
    for rule in rules("record"):
        if rule["record"] == "bandwitness:throughput_tests:count":
            found = re.search(r"outcome(=|=~|!~)\"([^\"]+)\"", rule["expr"])
            if found is not None:
                patterns[rule["labels"]["category"]] = (found[1], found[2])
    assert set(patterns) == {"ok", "failed", "skipped", "lost"}
    for outcome in RunOutcome.values():
        if outcome:
            name = outcome_name(outcome)
            fitting = [
                kind for kind, (sign, text) in patterns.items() if bool(re.fullmatch(text, name)) != (sign == "!~")
            ]
            assert fitting == [category(outcome)], name


def test_parts_of_a_scrape_that_rules_name_exist() -> None:
    named = set(re.findall(r'scrape_errors\{part="(\w+)"', "".join(path.read_text() for path in RULE_FILES)))
    assert named == {"incidents"}
    assert named <= {part.__name__ for part in PARTS}


def test_inhibition_names_alerts_and_labels_that_exist() -> None:
    configuration = yaml.safe_load((FOLDER / "alertmanager.yaml").read_text())
    labels = {label for metric in METRICS for label in metric.labels} | OF_SCRAPING
    for rule in configuration["inhibit_rules"]:
        assert set(rule["equal"]) >= OF_SCRAPING  # never across collectors
        assert set(rule["equal"]) <= labels
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            found = re.fullmatch(r'alertname(=~|=|!=)"(.+)"', matcher)
            if found is not None:
                for pattern in found[2].split("|"):
                    assert [name for name in ALERTS if re.fullmatch(pattern, name)], pattern


def test_templates_render() -> None:
    for name in ("subject", "text"):
        shown = run(
            "amtool", "template", "render", "--template.glob=templates/*.tmpl",
            f'--template.text={{{{ template "bandwitness.{name}" . }}}}',
        )  # fmt: skip
        assert "恢复" in shown
