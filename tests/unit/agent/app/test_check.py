"""``check``: each finding with its cure, on hosts that lack one thing each."""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from agent.app import check
from agent.app.check import Finding
from agent.config import Address, AgentConfig, IdentityFiles

NOW = datetime(2026, 6, 1, tzinfo=UTC)


class Authority:
    """A certificate authority and what it issues, valid through 2026."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = Ed25519PrivateKey.generate()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        self._write("ca.pem", self._builder(self.name, self.key, datetime(2026, 12, 31, tzinfo=UTC)))

    def _builder(self, subject: x509.Name, key: Ed25519PrivateKey, ends: datetime) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        return builder.serial_number(1).not_valid_before(datetime(2026, 1, 1, tzinfo=UTC)).not_valid_after(ends)

    def _write(self, name: str, builder: x509.CertificateBuilder) -> None:
        (self.directory / name).write_bytes(builder.sign(self.key, None).public_bytes(Encoding.PEM))

    def issue(self, node: str | None, *, ends: datetime = datetime(2026, 12, 31, tzinfo=UTC)) -> IdentityFiles:
        key = Ed25519PrivateKey.generate()
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")]), key, ends)
        if node is not None:
            names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"bandwitness://node/{node}")])
            builder = builder.add_extension(names, critical=False)
        self._write("node.pem", builder)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.directory / "node.key").write_bytes(pem)
        return IdentityFiles(self.directory / "ca.pem", self.directory / "node.pem", self.directory / "node.key", "")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def faults(findings: Iterator[Finding]) -> list[str]:
    return [f"{finding.level}: {finding.message}" for finding in findings if finding.level != "ok"]


def test_good_certificates_have_no_faults(authority: Authority) -> None:
    findings = list(check.check_certificates("a", authority.issue("a"), NOW))
    assert [finding.level for finding in findings] == ["ok", "ok"]
    assert findings[0].message.endswith("node.pem is valid until 2026-12-31")


def test_without_an_identity_there_is_nothing_to_check() -> None:
    assert [finding.level for finding in check.check_certificates("a", None, NOW)] == ["ok"]


@pytest.mark.parametrize(
    ("now", "level", "words"),
    [
        (datetime(2025, 12, 31, tzinfo=UTC), "fault", "is valid from 2026-01-01T00:00:00Z on"),
        (datetime(2026, 12, 31, tzinfo=UTC), "fault", "expired on 2026-12-31T00:00:00Z"),
        (datetime(2026, 12, 20, tzinfo=UTC), "warning", "expires on 2026-12-31T00:00:00Z"),
    ],
)
def test_dates(authority: Authority, now: datetime, level: str, words: str) -> None:
    found = faults(check.check_certificates("a", authority.issue("a"), now))
    assert len(found) == 2  # the node's and the authority's
    assert all(line.startswith(level) and line.endswith(words) for line in found)


def test_a_certificate_for_another_node(authority: Authority) -> None:
    (found,) = faults(check.check_certificates("b", authority.issue("a"), NOW))
    assert found.endswith("is for bandwitness://node/a, agent.name needs bandwitness://node/b")
    (found,) = faults(check.check_certificates("b", authority.issue(None), NOW))
    assert found.endswith("is for no URI, agent.name needs bandwitness://node/b")


def test_files_that_do_not_belong_together(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("a")
    other = tmp_path / "other"
    other.mkdir()
    stranger = Authority(other).issue("a")
    mixed = IdentityFiles(stranger.ca, files.certificate, stranger.key, "")
    found = faults(check.check_certificates("a", mixed, NOW))
    assert "is not the key of" in found[0]
    assert "was not issued by" in found[1]


def test_a_file_that_is_no_pem(authority: Authority) -> None:
    files = authority.issue("a")
    files.key.write_text("nothing")
    (found,) = faults(check.check_certificates("a", files, NOW))
    assert found.startswith("fault: not PEM")


@pytest.mark.parametrize(
    ("script", "level", "words"),
    [
        ("echo 'iperf 3.16 (cJSON 1.7.15)'", "ok", "3.16"),
        ("echo 'iperf version 2.1.9'", "fault", "is not iperf3"),
        ("exit 1", "fault", "is not iperf3"),
    ],
)
def test_iperf3(tmp_path: Path, script: str, level: str, words: str) -> None:
    program = tmp_path / "iperf3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (finding,) = check.check_iperf3(str(program))
    assert finding.level == level
    assert finding.message.endswith(words)


def test_iperf3_missing_names_the_cure(tmp_path: Path) -> None:
    (finding,) = check.check_iperf3(str(tmp_path / "iperf3"))
    assert (finding.level, finding.cure) == ("fault", "apt-get install iperf3")


def test_iperf3_that_cannot_be_run(tmp_path: Path) -> None:
    program = tmp_path / "iperf3"
    program.write_bytes(b"\x00")
    program.chmod(0o755)
    (finding,) = check.check_iperf3(str(program))
    assert finding.level == "fault"
    assert "cannot be run" in finding.message


@pytest.mark.parametrize(
    ("allowed", "level", "message", "cure"),
    [
        ({socket.SOCK_RAW, socket.SOCK_DGRAM}, "ok", "raw sockets", ""),
        ({socket.SOCK_DGRAM}, "warning", "datagram sockets only (not permitted for raw ones)", "CAP_NET_RAW"),
        (set(), "fault", "neither raw nor datagram sockets (not permitted): TCP connects only", "ping_group_range"),
    ],
)
def test_case_57_no_right_to_send_icmp_names_the_cure(allowed: set[int], level: str, message: str, cure: str) -> None:
    def open_socket(kind: int) -> None:
        if kind not in allowed:
            raise PermissionError(1, "not permitted")

    (finding,) = check.check_icmp(open_socket)
    assert (finding.level, finding.message) == (level, message)
    assert cure in finding.cure


def test_state_dir(tmp_path: Path) -> None:
    (here,) = check.check_state_dir(tmp_path, 1)
    assert here.message == f"{tmp_path} can be written"
    (deeper,) = check.check_state_dir(tmp_path / "a/b", 1)
    assert deeper.message == f"{tmp_path}/a/b can be made"
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    (finding,) = check.check_state_dir(tmp_path / "file/state", 1)
    assert (finding.level, finding.message) == ("fault", f"{tmp_path}/file is not a directory")
    assert finding.cure.startswith("install -d -m 0700 -o ")


def test_a_state_dir_that_cannot_be_written_is_a_fault() -> None:
    (finding,) = check.check_state_dir(Path("/proc/bandwitness"), 1)
    assert finding.level == "fault"
    assert finding.message.startswith("/proc cannot be written: ")


def test_a_disk_smaller_than_the_spool_is_a_warning(tmp_path: Path) -> None:
    findings = list(check.check_state_dir(tmp_path, 2**62))
    assert [finding.level for finding in findings] == ["ok", "warning"]


def configured(tmp_path: Path, *collectors: Address) -> AgentConfig:
    return AgentConfig("a", tmp_path, collectors, None, 2**20, 10**18, "iperf3", "info", b"")


def test_collectors_that_do_not_answer_are_warnings(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (finding,) = check.check_collectors(configured(tmp_path, Address("127.0.0.1", port)))
        assert (finding.level, finding.message) == ("ok", f"127.0.0.1:{port} answers")
    (finding,) = check.check_collectors(configured(tmp_path, Address("127.0.0.1", port)))
    assert finding.level == "warning"
    assert "cannot be reached: Connection refused" in finding.message


def test_a_check_that_fails_itself_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Finding]:
        raise RuntimeError("seccomp")

    monkeypatch.setattr(check, "check_icmp", broken)
    findings = check.check_host(configured(tmp_path))
    assert [f.message for f in findings if f.subject == "icmp"] == ["could not be checked: RuntimeError: seccomp"]
    assert {f.subject for f in findings} >= {"certificates", "iperf3", "icmp", "state_dir", "clock"}


def test_a_finding_in_one_line() -> None:
    assert str(Finding("icmp", "fault", "none", "do so")) == "fault   icmp: none (cure: do so)"


@pytest.mark.parametrize(
    ("lists", "root", "level", "words"),
    [
        (("reno bbr cubic", "reno bbr"), True, "ok", "cubic can be set"),
        (("reno cubic", "reno cubic"), False, "ok", "cubic can be set"),
        (("reno bbr cubic", "reno bbr"), False, "warning", "tcp_allowed_congestion_control='reno bbr cubic'"),
        (("reno bbr", "reno bbr"), True, "warning", "modprobe tcp_cubic"),
    ],
)
def test_congestion_control(tmp_path: Path, lists: tuple[str, str], root: bool, level: str, words: str) -> None:
    sysctls = tmp_path / "proc/sys/net/ipv4"
    sysctls.mkdir(parents=True)
    for name, text in zip(("available", "allowed"), lists, strict=True):
        (sysctls / f"tcp_{name}_congestion_control").write_text(text + "\n")
    (finding,) = check.check_congestion_control(tmp_path, may_set_any=root)
    assert finding.level == level
    assert words in str(finding)
