"""agent.yaml: defaults, addresses, files, and every fault at its line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.config import Address, AgentConfig, IdentityFiles, MarkConfig, enrolled_files
from agent.config.apart import RefusedError, read_apart
from agent.config.file import FileFacts, key_fault, look, parse, parse_address, read
from bandwitness.settings import SettingsError

BASE = Path("/etc/bandwitness")
NAME = "up to 63 letters, digits, dots, hyphens, underscores, not beginning with a mark"
FULL = """\
agent:
  name: gpu-r1-01
  state_dir: state
  collectors: ["10.0.0.1:7443", "[2001:db8::1]:7443", "collector.example:7443"]
  identity: {ca: ca.pem, certificate: gpu-r1-01.pem, key: /keys/gpu-r1-01.key, server_name: collector}
  spool: {max_bytes: 64MiB, max_age: 2d}
  iperf3: opt/iperf3
  log_level: debug
  mark: {enabled: false, socket: mark.sock, expiry: 5m}
"""
LOOPBACK = """\
agent:
  name: a
  state_dir: /var/lib/bandwitness
  collectors: ["127.0.0.1:7443", "[::1]:7443", "localhost:7443"]
"""


def fine(path: Path) -> FileFacts:
    return FileFacts(mode=0o600, uid=1000)


def faults(text: str, **mode: int) -> list[str]:
    def facts(path: Path) -> FileFacts:
        if path.name == "node.pem" and "enrolled" not in mode:
            raise FileNotFoundError(2, "no such file")
        if path.parent.name == "identity":
            return FileFacts(mode["enrolled"], 1000)
        return FileFacts(mode.get(path.suffix[1:], 0o600), 1000)

    with pytest.raises(SettingsError) as caught:
        parse(text, "agent.yaml", BASE, look=facts)
    return [str(fault) for fault in caught.value.faults]


def test_everything_set() -> None:
    config = parse(FULL, "agent.yaml", BASE, look=fine)
    assert config == AgentConfig(
        name="gpu-r1-01",
        state_dir=BASE / "state",
        collectors=(Address("10.0.0.1", 7443), Address("2001:db8::1", 7443), Address("collector.example", 7443)),
        identity=IdentityFiles(BASE / "ca.pem", BASE / "gpu-r1-01.pem", Path("/keys/gpu-r1-01.key"), "collector"),
        spool_max_bytes=64 * 2**20,
        spool_max_age_ns=2 * 86_400 * 10**9,
        iperf3="/etc/bandwitness/opt/iperf3",
        log_level="debug",
        sha256=config.sha256,
        mark=MarkConfig(enabled=False, socket=BASE / "mark.sock", expiry_ns=300 * 10**9),
    )
    assert len(config.sha256) == 32


def test_defaults() -> None:
    config = parse(LOOPBACK, "agent.yaml", BASE)
    assert config.identity is None
    assert (config.spool_max_bytes, config.spool_max_age_ns) == (2**30, 14 * 86_400 * 10**9)
    assert (config.iperf3, config.log_level) == ("iperf3", "info")
    assert config.mark == MarkConfig(enabled=True, socket=None, expiry_ns=1_800 * 10**9)
    assert [str(address) for address in config.collectors] == ["127.0.0.1:7443", "[::1]:7443", "localhost:7443"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:7443", Address("10.0.0.1", 7443)),
        ("[::1]:1", Address("::1", 1)),
        ("[fe80::1%ens1f0]:65535", Address("fe80::1%ens1f0", 65535)),
        ("collector-1.example:7443", Address("collector-1.example", 7443)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


def test_grpc_is_given_a_zone_as_its_uris_have_it() -> None:
    """It takes ``%ab0`` for an encoded byte."""
    assert parse_address("[fe80::1%ab0]:7443").channel_target == "[fe80::1%25ab0]:7443"


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", ":7443", "host:", "host:0", "host:65536", "host:x", "::1:7443", "[::1]", "[host]:1", "a b:1"),
        *("x/y:1", "host:" + "9" * 5_000, "[" + "9" * 5_000 + "]:1", "9" * 5_000 + ":" + "9" * 5_000),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected HOST:PORT|IPv6") as caught:
        parse_address(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("state_dir: state", r'state_dir: "a\0b"', "state_dir"),
        ("ca: ca.pem", r'ca: "a\0b"', "identity.ca"),
        ("key: /keys/gpu-r1-01.key", r'key: "a\0b"', "identity.key"),
        ("iperf3: opt/iperf3", r'iperf3: "a\0b"', "iperf3"),
    ],
)
def test_a_file_name_that_no_file_can_have_is_a_fault_at_its_key(old: str, new: str, key: str) -> None:
    (fault,) = faults(FULL.replace(old, new))
    assert f"agent.{key}: the character U+0000 is not allowed in text" in fault


def test_a_name_with_a_line_end_is_none() -> None:
    (fault,) = faults(FULL.replace("name: gpu-r1-01", r'name: "gpu\n"', 1))
    assert fault.startswith("line 2:3 agent.name: expected up to 63 letters")


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.9.9.9:1", True), ("[::1]:1", True), ("localhost:1", True), ("10.0.0.1:1", False), ("localhost.x:1", False)],
)
def test_what_stays_inside_the_host(address: str, loopback: bool) -> None:
    assert parse_address(address).loopback is loopback


def test_every_fault_is_named_at_its_line() -> None:
    text = """\
agent:
  name: -x
  state_dir: ''
  colectors: []
  spool: {max_bytes: big}
"""
    assert faults(text) == [
        "line 1:1 agent: the key collectors is missing",
        f"line 2:3 agent.name: expected {NAME}, found '-x'",
        "line 3:3 agent.state_dir: expected str of length >= 1, found ''",
        "line 4:3 agent.colectors: unknown key; did you mean collectors?",
        "line 5:11 agent.spool.max_bytes: expected a size such as 64MiB, 10GB, found 'big'",
    ]


def test_only_loopback_without_an_identity() -> None:
    text = LOOPBACK.replace("localhost:7443", "10.0.0.1:7443")
    (fault,) = faults(text)
    assert fault.startswith("line 4:48 agent.collectors[2]: 10.0.0.1:7443 is not on this host: without identity")


def test_an_enrolment_is_the_identity_where_none_is_named() -> None:
    text = LOOPBACK.replace("localhost:7443", "10.0.0.1:7443")
    found = parse(text, "f", Path("/etc/b"), look=lambda _: FileFacts(0o600, 1000))
    assert found.identity == enrolled_files(Path("/var/lib/bandwitness"))
    assert found.enrolled
    named = text + '  identity: {server_name: "c"}\n'
    assert parse(named, "f", Path("/etc/b"), look=lambda _: FileFacts(0o600, 1000)).identity == enrolled_files(
        Path("/var/lib/bandwitness"), "c"
    )
    (fault,) = faults(text, enrolled=0o640)
    assert "node.pem can be read by others (mode 0640)" in fault
    halves = faults(text + "  identity: {ca: ca.pem}\n")
    assert sum("ca, certificate and key go together" in fault for fault in halves) == 2


def test_faults_of_collectors_and_files_come_together() -> None:
    text = FULL.replace("collector.example:7443", "10.0.0.1:7443").replace("[2001:db8::1]", "2001:db8::1")
    text = text.replace("64MiB", "1kB").replace("log_level: debug", "log_level: loud")
    key = "/keys/gpu-r1-01.key"
    assert faults(text, key=0o644) == [
        "line 4:33 agent.collectors[1]: an IPv6 address stands in brackets: [2001:db8::1]:7443",
        "line 4:53 agent.collectors[2]: 10.0.0.1:7443 stands here twice",
        f"line 5:54 agent.identity.key: {key} can be read by others (mode 0644): chmod 600 {key}",
        "line 6:11 agent.spool.max_bytes: expected 1MiB or more",
        "line 8:3 agent.log_level: expected debug or info or warning or error, found 'loud'",
    ]


def test_marks_that_never_end_must_expire_and_a_socket_has_a_short_path() -> None:
    text = FULL.replace("expiry: 5m", "expiry: 0s").replace("socket: mark.sock", f"socket: {'d' * 100}")
    assert faults(text) == [
        "line 9:26 agent.mark.socket: expected a path of at most 107 bytes (unix(7))",
        f"line 9:{26 + 8 + 100 + 2} agent.mark.expiry: expected 1s to 1d",
    ]


@pytest.mark.parametrize(
    "text",
    ["agent:", "agent: []", "agent: {collectors: x}", "agent: {collectors: [1]}", "agent: {identity: {ca: 1}}", "{}"],
)
def test_what_is_left_out_hides_no_other_fault(text: str) -> None:
    assert faults(text)


def test_a_file_that_is_missing_is_a_fault_where_it_is_named() -> None:
    def missing(path: Path) -> FileFacts:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(SettingsError) as caught:
        parse(FULL, "agent.yaml", BASE, look=missing)
    assert [fault.key for fault in caught.value.faults] == [
        "agent.identity.ca",
        "agent.identity.certificate",
        "agent.identity.key",
    ]
    assert "/etc/bandwitness/ca.pem cannot be read: No such file" in str(caught.value.faults[0])


@pytest.mark.parametrize("collectors", ["[]", "[" + ", ".join(f'"127.0.0.1:{port}"' for port in range(1, 18)) + "]"])
def test_one_to_sixteen_collectors(collectors: str) -> None:
    text = LOOPBACK.replace('["127.0.0.1:7443", "[::1]:7443", "localhost:7443"]', collectors)
    assert "expected 1 to 16 collectors" in faults(text)[0]


@pytest.mark.parametrize(
    ("mode", "uid", "refused"),
    [
        (0o600, 1000, False),
        (0o400, 1000, False),
        (0o640, 1000, True),
        (0o640, 0, False),  # root's, and our group may read it
        (0o660, 0, True),
        (0o604, 0, True),
        (0o644, 0, True),
    ],
)
def test_who_may_read_a_key(mode: int, uid: int, refused: bool) -> None:
    assert bool(key_fault(FileFacts(mode, uid), Path("k"))) is refused


def test_looking_at_a_real_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o640)
    assert look(key) == FileFacts(0o640, os.getuid())
    with pytest.raises(FileNotFoundError):
        look(tmp_path / "none")


def test_names_are_relative_to_the_file_that_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.yaml").write_text(LOOPBACK.replace("/var/lib/bandwitness", "state"))
    assert read(Path("agent.yaml")).state_dir == tmp_path / "state"


def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"agent: {name: caf\xe9}")
    with pytest.raises(SettingsError, match="not UTF-8"):
        read(tmp_path / "latin.yaml")


def test_read_apart_gives_what_read_gives(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(LOOPBACK)
    assert read_apart(path) == read(path)


def test_read_apart_lists_every_fault_as_read_does(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(LOOPBACK.replace("name: a", "name: [a]").replace("state_dir", "stat_dir"))
    with pytest.raises(SettingsError) as here:
        read(path)
    with pytest.raises(RefusedError) as apart:
        read_apart(path)
    assert str(apart.value) == str(here.value)
    assert len(str(apart.value).splitlines()) == 3


def test_what_is_read_apart_brings_nothing_of_the_reader_along(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(LOOPBACK)
    code = (
        "import sys; from pathlib import Path; from agent.config.apart import read_apart; "
        "read_apart(Path(sys.argv[1])); import agent.app.run; "
        "print(*[name for name in ('msgspec', 'yaml', 'bandwitness.settings') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "agent.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
