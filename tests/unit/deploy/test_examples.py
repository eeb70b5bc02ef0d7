"""The example configurations are accepted as they stand, and what they call the default is the default."""

import re
from pathlib import Path

import msgspec

from agent.config.file import AgentSection, FileFacts, SpoolSection, parse
from collector.config import read_config

EXAMPLES = Path(__file__).resolve().parents[3] / "deploy" / "examples"
MINIMAL = """
sites: [{name: idc-a}]
nodes: [{name: a1, site: idc-a, rack: r1, endpoints: [{nic: eth0, address: 10.0.1.11}]}]
"""


def keys(struct: type) -> set[str]:
    """All keys of a configuration, those of its parts included."""
    found: set[str] = set()
    for field in msgspec.structs.fields(struct):
        found.add(field.name)
        kinds = [field.type, *getattr(field.type, "__args__", ())]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                found |= keys(kind)
    return found


def shown_keys(name: str) -> set[str]:
    return set(re.findall(r"([a-z_0-9]+):(?:\s|$)", (EXAMPLES / name).read_text(), re.MULTILINE))


def test_the_collectors_example_is_accepted_and_its_defaults_are_the_defaults() -> None:
    example = read_config((EXAMPLES / "collector.yaml").read_text(), "collector.yaml")
    defaults = read_config(MINIMAL, "collector.yaml")
    assert example.rules == defaults.rules
    assert example.sites[1].windows == defaults.sites[0].windows
    assert example.sites[0].time_zone == example.sites[1].time_zone == defaults.sites[0].time_zone
    throughput = msgspec.structs.replace(example.measure.throughput, slot=None, processes=None)
    assert msgspec.structs.replace(example.measure, throughput=throughput) == defaults.measure
    assert example.measure.throughput.slot == defaults.measure.throughput.slot_ns
    assert example.measure.throughput.processes == defaults.measure.throughput.ports_each
    assert example.collector.http_listen == defaults.collector.http_listen


def test_the_collectors_example_shows_every_key() -> None:
    example = read_config((EXAMPLES / "collector.yaml").read_text(), "collector.yaml")
    assert keys(type(example)) - shown_keys("collector.yaml") == set()


def test_the_agents_example_is_accepted_and_its_defaults_are_the_defaults() -> None:
    text = (EXAMPLES / "agent.yaml").read_text()
    config = parse(text, "agent.yaml", Path("/etc/bandwitness"), look=lambda _: FileFacts(0o600, 0))
    assert (config.name, str(config.collectors[0])) == ("gpu-r1-01", "10.0.0.1:7443")
    assert (config.spool_max_bytes, config.spool_max_age_ns) == (SpoolSection().max_bytes, SpoolSection().max_age)
    defaults = {field.name: field.default for field in msgspec.structs.fields(AgentSection)}
    assert (config.iperf3, config.log_level) == (defaults["iperf3"], defaults["log_level"])
    assert keys(AgentSection) - shown_keys("agent.yaml") == set()


def test_the_example_agent_is_a_node_of_the_example_collector() -> None:
    nodes = {node.name for node in read_config((EXAMPLES / "collector.yaml").read_text(), "collector.yaml").nodes}
    text = (EXAMPLES / "agent.yaml").read_text()
    assert parse(text, "agent.yaml", Path("/etc"), look=lambda _: FileFacts(0o600, 0)).name in nodes
