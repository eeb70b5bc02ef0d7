"""Commands of bandwitness-collector: exit codes, and what they print for people and for programs."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collector.__main__ import main
from tests.fakes.certificates import Authority

EXAMPLE = Path(__file__).parents[3] / "deploy/examples/collector.yaml"
TIGHT = """
collector: {state_dir: /tmp/x}
sites: [{name: s, windows: {peak: ["19:00-19:01"], offpeak: ["02:00-06:00"]}}]
nodes:
  - {name: a, site: s, rack: r1, endpoints: [{nic: eth0, address: 10.0.0.1}]}
  - {name: b, site: s, rack: r2, endpoints: [{nic: eth0, address: 10.0.0.2}]}
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example with the files it names beside it."""
    Authority(tmp_path).issue("collector")
    file = tmp_path / "collector.yaml"
    file.write_text(EXAMPLE.read_text().replace("pki/", ""))
    return file


def test_a_good_file_passes_and_says_what_it_holds(example: Path) -> None:
    done = invoke("check", "--config", str(example))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2 sites, 3 racks, 4 nodes, 3 targets" in done.output
    assert json.loads(invoke("check", "--config", str(example), "--json").output)["counts"]["nodes"] == 4


def test_tls_files_that_cannot_be_used_are_faults_for_check_and_serve(example: Path) -> None:
    key = example.parent / "collector.key"
    key.chmod(0o644)
    (example.parent / "ca.pem").write_text("")
    for command in ("check", "serve"):
        done = invoke(command, "--config", str(example))
        assert done.exit_code == 2
        ca, mode = done.stderr.splitlines()
        assert f"{example}: line 14:5 collector.tls.ca: {example.parent}/ca.pem holds no certificate in PEM" in ca
        assert (
            mode == f"{example}: line 16:5 collector.tls.key: {key} can be read by others (mode 0644): chmod 600 {key}"
        )


def test_an_expired_certificate_is_a_fault_for_check(example: Path) -> None:
    Authority(example.parent).issue("collector", start=timedelta(days=-40))
    done = invoke("check", "--config", str(example))
    assert done.exit_code == 2
    assert "collector.tls.certificate: " in done.stderr
    assert "collector.pem has expired on " in done.stderr


def test_every_fault_is_listed_and_the_exit_code_is_2(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text("sites: [{name: s, zone: x}]\nnodes: []\nnodes: []\n")
    for command in ("check", "serve"):
        done = invoke(command, "--config", str(file))
        assert done.exit_code == 2
        assert f"{file}: line 1:19 sites[0].zone: unknown key; did you mean time_zone?" in done.stderr.splitlines()
        assert any("line 3:1 nodes: this key stands here twice" in line for line in done.stderr.splitlines())


def test_a_fleet_that_does_not_fit_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(TIGHT)
    done = invoke("check", "--config", str(file))
    assert done.exit_code == 2
    assert "60" in done.stderr


def test_a_missing_file_is_a_plain_message(tmp_path: Path) -> None:
    done = invoke("check", "--config", str(tmp_path / "none.yaml"))
    assert done.exit_code == 2
    assert "none.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["nodes", "paths", "incidents", "timetable", "accounting"])
def test_without_a_collector_the_tables_say_so(command: str) -> None:
    done = invoke(command, "--url", "http://127.0.0.1:1")
    assert done.exit_code == 1
    assert "no collector answers at http://127.0.0.1:1" in done.stderr


def test_wrong_use_exits_2() -> None:
    assert invoke("nothing").exit_code == 2
    assert invoke("incidents", "--url").exit_code == 2


def test_a_dry_run_says_what_the_coming_day_costs(example: Path) -> None:
    done = invoke("plan", "--dry-run", "--config", str(example))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "min of sending, at 10.0 Gbit/s where endpoints" in done.output
    assert "uplink:idc-a/r1" in done.output
    assert done.output.rstrip().endswith("Nothing was sent.")
    answer = json.loads(invoke("plan", "--dry-run", "--config", str(example), "--rate", "1G", "--json").output)
    assert answer["assumed_bps"] == 10**9
    assert answer["bytes"] == answer["tests"] * 1_500_000_000 > 0
    assert "nic:gpu-r1-01/ens1f0" in {link["token"] for link in answer["links"]}


def test_a_dry_run_of_a_fleet_that_does_not_fit_gives_the_arithmetic(tmp_path: Path) -> None:
    (tmp_path / "tight.yaml").write_text(TIGHT)
    done = invoke("plan", "--dry-run", "--config", str(tmp_path / "tight.yaml"))
    assert done.exit_code == 2
    assert "do not fit into the peak window" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--dry-run", "--rate", "much"]])
def test_plan_without_dry_run_or_with_a_rate_that_is_none_is_wrong_use(example: Path, arguments: list[str]) -> None:
    assert invoke("plan", "--config", str(example), *arguments).exit_code == 2


def test_samples_say_what_a_path_looks_like() -> None:
    result = CliRunner().invoke(main, ["samples", "--path", "1"])
    assert result.exit_code == 2
    assert "16 hex digits, the last column of 'paths'" in result.output
