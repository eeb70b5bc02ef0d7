"""deploy/compose.yaml and deploy/Dockerfile, without Docker: shape, files, and that the parts name each other."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy/compose.yaml"
DOCKERFILE = ROOT / "deploy/Dockerfile"
Duration = Annotated[str, msgspec.Meta(pattern=r"^([0-9]+(h|m|s|ms))+$")]


class Build(msgspec.Struct, forbid_unknown_fields=True):
    context: str
    dockerfile: str
    target: str


class Healthcheck(msgspec.Struct, forbid_unknown_fields=True):
    test: Annotated[list[str], msgspec.Meta(min_length=2)]
    interval: Duration
    timeout: Duration
    retries: int
    start_period: Duration = "0s"


class DependsOn(msgspec.Struct, forbid_unknown_fields=True):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Service(msgspec.Struct, forbid_unknown_fields=True):
    """What of the Compose specification is in use here."""

    image: Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+|bandwitness-[a-z]+)$")]
    network_mode: Literal["host"]
    restart: Literal["unless-stopped"]
    volumes: list[Annotated[str, msgspec.Meta(pattern=r"^[^ ]+:/[^ :]+(:ro)?$")]]
    healthcheck: Healthcheck
    build: Build | None = None
    command: list[str] = []
    environment: dict[str, str] = {}
    depends_on: dict[str, DependsOn] = {}
    stop_grace_period: Duration = "10s"
    ulimits: dict[str, int] = {}


class Compose(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    services: dict[str, Service]
    volumes: dict[str, None]


def compose() -> Compose:
    return msgspec.convert(yaml.safe_load(COMPOSE.read_text()), Compose)


def mounts(service: Service) -> dict[str, str]:
    """Where in the container -> what, without the mode."""
    found = {}
    for volume in service.volumes:
        source, _, target = volume.removesuffix(":ro").rpartition(":")
        found[target] = source
    return found


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_it_has_the_four_services_and_each_says_how_it_is() -> None:
    found = compose()
    assert set(found.services) == {"collector", "prometheus", "alertmanager", "grafana"}
    for service in found.services.values():
        assert service.healthcheck.test[0] == "CMD"
        assert "127.0.0.1" in service.healthcheck.test[-1]
        assert set(service.depends_on) <= set(found.services)


def test_what_is_mounted_is_there_and_read_only_and_named_volumes_are_declared() -> None:
    found = compose()
    named = set()
    for name, service in found.services.items():
        for volume in service.volumes:
            source = volume.removesuffix(":ro").rpartition(":")[0]
            if source.startswith("."):
                assert (COMPOSE.parent / source).exists(), (name, source)
                assert volume.endswith(":ro")
            elif source.startswith("${"):
                assert re.fullmatch(r"\$\{[A-Z_]+:-/[a-z/]+\}", source)
            else:
                named.add(source)
    assert named == set(found.volumes)


def test_addresses_and_paths_are_those_that_the_samples_name() -> None:
    services = compose().services
    prometheus = read("deploy/prometheus/prometheus.yaml")
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == ["127.0.0.1:7480"]
    (alertmanagers,) = prometheus["alerting"]["alertmanagers"]
    listen = f"--web.listen-address={alertmanagers['static_configs'][0]['targets'][0]}"
    assert listen in services["alertmanager"].command
    (source,) = read("grafana/provisioning/datasources/bandwitness.yaml")["datasources"]
    assert f"--web.listen-address={source['url'].removeprefix('http://')}" in services["prometheus"].command
    (provider,) = read("grafana/provisioning/dashboards/bandwitness.yaml")["providers"]
    assert mounts(services["grafana"])[provider["options"]["path"]] == "../grafana/dashboards"
    for name, key in (("prometheus", "rule_files"), ("alertmanager", "templates")):
        (option,) = [word for word in services[name].command if word.startswith("--config.file=")]
        file = option.partition("=")[2]
        assert mounts(services[name])[file] == f"./prometheus/{name}.yaml"
        (pattern,) = read(f"deploy/prometheus/{name}.yaml")[key]
        folder = f"{Path(file).parent}/{Path(pattern).parent}"
        assert list((COMPOSE.parent / mounts(services[name])[folder]).glob(Path(pattern).name))


@pytest.mark.parametrize(
    ("name", "program"), [("prometheus", "prometheus"), ("alertmanager", "prometheus-alertmanager")]
)
def test_the_options_are_known_to_the_programs(name: str, program: str) -> None:
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    known = done.stdout + done.stderr
    for word in compose().services[name].command:
        assert re.search(rf"{re.escape(word.partition('=')[0])}\b", known), word


def test_the_dockerfile_has_the_stages_and_sources_that_are_named() -> None:
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text()).splitlines()
    words = [shlex.split(line) for line in lines if line and not line.startswith("#")]
    stages: set[str] = set()
    for line in words:
        if line[0] == "FROM":
            assert line[1] in stages or ":" in line[1]
            stages.add(line[3])
        elif line[0] == "COPY":
            for source in line[1:-1]:
                assert (ROOT / source).exists(), source
    assert {"agent", "collector"} <= stages
    build = compose().services["collector"].build
    assert build is not None
    assert build.target in stages
    assert (COMPOSE.parent / build.context / build.dockerfile).resolve() == DOCKERFILE
    for program in re.findall(r'ENTRYPOINT \["([a-z-]+)"\]', DOCKERFILE.read_text()):
        assert f"\n{program} = " in (ROOT / "pyproject.toml").read_text()


def test_the_build_context_lets_in_what_is_copied() -> None:
    let_in = {line[1:] for line in (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = {
        source
        for line in DOCKERFILE.read_text().splitlines()
        if line.startswith("COPY ")
        for source in line.split()[1:-1]
    }
    assert copied == let_in
