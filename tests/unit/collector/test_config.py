"""collector.yaml: what is accepted, its defaults, and every fault at its line."""

import os
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from bandwitness.settings import SettingsError
from collector.config import (
    Config,
    Throughput,
    configuration_hash,
    load_config,
    parse_listen,
    parse_window,
    read_config,
)
from collector.config.measure_check import shown as shown_duration
from tests.fakes.certificates import NOW, Authority

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "config"
REFRESH = "BANDWITNESS_REFRESH_GOLDEN"  # set it to write the expected messages anew; review them as code

MINIMAL = """
sites: [{name: idc-a}]
nodes: [{name: a1, site: idc-a, rack: r1, endpoints: [{nic: eth0, address: 10.0.1.11}]}]
"""
SECOND = 1_000_000_000


def messages_of(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read_config(text, "collector.yaml")
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_wrong_file_gives_exactly_its_messages(path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read_config(path.read_text(), path.name)
    text = "\n".join(str(fault) for fault in caught.value.faults) + "\n"
    expected = path.with_suffix(".txt")
    if os.environ.get(REFRESH):
        expected.write_text(text)
    assert text == expected.read_text()


def test_there_are_wrong_files_and_none_is_without_its_messages() -> None:
    files = {path.stem for path in GOLDEN.glob("*.yaml")}
    assert len(files) >= 24
    assert files == {path.stem for path in GOLDEN.glob("*.txt")}


def test_a_message_names_file_line_column_and_key(tmp_path: Path) -> None:
    path = tmp_path / "collector.yaml"
    path.write_text(MINIMAL + "measure:\n  flush: 0s\n")
    with pytest.raises(SettingsError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: line 5:3 measure.flush: expected 100ms to 5s, found 0s"


def test_a_minimal_file_has_the_documented_defaults() -> None:
    config = read_config(MINIMAL, "collector.yaml")
    assert isinstance(config, Config)
    assert config.collector.grpc_listen == "127.0.0.1:7443"
    assert config.collector.http_listen == "127.0.0.1:7480"
    assert config.sites[0].windows.peak_ranges == ((68_400, 82_800),)
    assert config.sites[0].windows.offpeak_ranges == ((7_200, 21_600),)
    assert config.measure.throughput.hold_ns == 16 * SECOND
    assert config.measure.throughput.slot_ns == 17 * SECOND


def test_a_slot_of_exactly_what_a_test_holds_is_accepted() -> None:
    text = MINIMAL + "measure: {throughput: {duration: 1s, omit: 0s, margin: 400ms, slot: 1800ms}}"
    assert read_config(text, "x").measure.throughput.slot_ns == 1_800_000_000
    assert Throughput().slot is None


def test_addresses_have_one_spelling() -> None:
    text = MINIMAL.replace("10.0.1.11", '"2001:0DB8:0:0::0011"')
    assert read_config(text, "x").nodes[0].endpoints[0].address == "2001:db8::11"


def test_a_nic_may_have_an_address_of_each_family_and_link_local_ones_repeat() -> None:
    text = """
sites: [{name: idc-a}]
nodes:
  - {name: a1, site: idc-a, rack: r1, endpoints: [{nic: eth0, address: 10.0.1.11}, {nic: eth0, address: "2001:db8::1"}]}
  - {name: a2, site: idc-a, rack: r1, endpoints: [{nic: eth0, address: "fe80::1%eth0"}]}
  - {name: a3, site: idc-a, rack: r1, endpoints: [{nic: eth0, address: "fe80::1%eth0"}]}
"""
    assert len(read_config(text, "x").nodes) == 3


def test_listening_beyond_the_host_is_accepted_with_tls_and_on_an_inherited_socket() -> None:
    text = (
        "collector: {grpc_listen: '0.0.0.0:7443', http_listen: 'fd:3', tls: {ca: a, certificate: b, key: c}}\n"
        + MINIMAL
    )
    assert read_config(text, "x").collector.tls is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:7443", ("127.0.0.1", 7443)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:7443", ("::1", 7443)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_listen_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7443",
        ":7443",
        "::1:7443",
        "[127.0.0.1]:1",
        "127.0.0.1:",
        "h:1",
        "127.0.0.1:65536",
        "127.0.0.1:" + "9" * 5_000,
    ],
)
def test_what_is_no_listen_address(text: str) -> None:
    with pytest.raises(ValueError, match="expected ADDRESS:PORT"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("19:00-23:00", (68_400, 82_800)),
        ("22:00-02:00", (79_200, 7_200)),
        ("00:00-24:00", (0, 86_400)),
        ("20:00-24:00", (72_000, 86_400)),
        ("20:00-00:00", (72_000, 0)),
        ("12:30:05-12:31:45", (45_005, 45_105)),
        (" 19:00 - 23:00 ", (68_400, 82_800)),
    ],
)
def test_windows_of_the_day(text: str, expected: tuple[int, int]) -> None:
    assert parse_window(text) == expected


def test_a_file_that_cannot_be_read_is_a_plain_message(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.yaml: .*cannot be read: No such file or directory; --config"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load_config(tmp_path)


def test_files_are_taken_relative_to_the_file(tmp_path: Path) -> None:
    Authority(tmp_path).issue("c")
    certificate = (tmp_path / "c.pem").rename(tmp_path.parent / f"{tmp_path.name}.pem")
    path = tmp_path / "collector.yaml"
    path.write_text(f"collector: {{tls: {{ca: ca.pem, certificate: {certificate}, key: c.key}}}}\n" + MINIMAL)
    collector = load_config(path).collector
    assert collector.state_dir == str(tmp_path / "state")
    assert collector.tls is not None
    assert (collector.tls.ca, collector.tls.certificate) == (str(tmp_path / "ca.pem"), str(certificate))


def test_faults_of_tls_files_stand_at_their_keys_beside_all_others(tmp_path: Path) -> None:
    Authority(tmp_path).issue("c", start=timedelta(days=2), mode=0o644)
    path = tmp_path / "collector.yaml"
    path.write_text('collector: {tls: {ca: "a\\0", certificate: c.pem, key: c.key}, name: -x}\n' + MINIMAL)
    with pytest.raises(SettingsError) as caught:
        load_config(path, now=NOW)
    key, certificate = tmp_path / "c.key", tmp_path / "c.pem"
    shown = [str(fault) for fault in caught.value.faults]
    assert shown[0] == "line 1:19 collector.tls.ca: the character U+0000 is not allowed in text"
    assert shown[1].startswith(f"line 1:30 collector.tls.certificate: {certificate} is not valid before ")
    assert shown[2] == f"line 1:50 collector.tls.key: {key} can be read by others (mode 0644): chmod 600 {key}"
    assert shown[3].startswith("line 1:63 collector.name: ")
    assert len(shown) == 4


def test_text_that_is_not_utf8_is_named_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "collector.yaml"
    path.write_bytes(b"sites: []\nnodes: \xff\n")
    with pytest.raises(SettingsError, match=r"line 2:8 not UTF-8 text"):
        load_config(path)


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "collector.yaml"
    path.write_text(MINIMAL)
    assert configuration_hash(path) == sha256(MINIMAL.encode()).digest()
    with pytest.raises(SettingsError):
        configuration_hash(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("duration_ns", "expected"),
    [
        (0, "0s"),
        (90 * SECOND, "90s"),
        (60 * SECOND, "1m"),
        (86_400 * SECOND, "1d"),
        (1_800_000_000, "1800ms"),
        (7, "7ns"),
    ],
)
def test_durations_are_shown_without_fractions(duration_ns: int, expected: str) -> None:
    assert shown_duration(duration_ns) == expected


def test_shape_and_meaning_are_reported_together() -> None:
    text = MINIMAL.replace("site: idc-a", "site: idc-b") + "quux: red\n"
    assert messages_of(text) == [
        "line 3:20 nodes[0].site: unknown site 'idc-b'; did you mean idc-a?",
        "line 4:1 quux: unknown key; allowed here: "
        + ", ".join(("collector", "sites", "nodes", "targets", "units", "permissions", "measure", "rules")),
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("http_listen", "fd:" + "9" * 5_000, "expected fd:N with the number (3 or more) of an inherited"),
        ("http_listen", "fd:2", "expected fd:N"),
        ("http_listen", "fd:٣", "expected fd:N"),
        ("grpc_listen", "127.0.0.1:" + "9" * 5_000, "expected ADDRESS:PORT"),
        ("state_dir", r'"a\0b"', "the character U+0000 is not allowed in text"),
        ("name", "!!timestamp foo", "tags (!!timestamp) are not supported here"),
    ],
)
def test_values_that_no_start_could_use_are_faults_at_their_key(key: str, value: str, message: str) -> None:
    (fault,) = messages_of(f"collector:\n  {key}: {value}\n{MINIMAL}")
    assert fault.startswith(f"line 2:3 collector.{key}: ")
    assert message in fault
    assert len(fault) < 200


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("targets: [{name: NODE, address: 10.9.9.9}]", "is a node"),
        ('targets: [{name: x, address: 10.9.9.9, carrier: "a\\x9b31m"}]', "printable characters"),
        ('targets: [{name: x, address: 10.9.9.9, carrier: "a\\u202eb"}]', "printable characters"),
    ],
)
def test_names_that_would_mislead_are_refused(more: str, message: str) -> None:
    node = read_config(MINIMAL, "x").nodes[0].name
    with pytest.raises(SettingsError, match=message):
        read_config(f"{MINIMAL}\n{more.replace('NODE', node)}\n", "x")
    assert read_config(f"{MINIMAL}\ntargets: [{{name: x, address: 10.9.9.9, carrier: 中国电信}}]\n", "x").targets


@pytest.mark.parametrize(
    ("speed", "good"), [("0", False), ("1", False), ("999999", False), ("1M", True), ("10G", True)]
)
def test_a_speed_that_nothing_could_stay_below_is_refused(speed: str, good: bool) -> None:
    text = MINIMAL.replace("{nic: eth0,", f"{{nic: eth0, speed: {speed},", 1)
    assert text != MINIMAL
    if good:
        assert read_config(text, "x").nodes[0].endpoints[0].speed
    else:
        with pytest.raises(SettingsError, match="speed: expected at least 1M"):
            read_config(text, "x")
