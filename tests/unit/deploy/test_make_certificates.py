"""The small authority: what it writes, that it adds and never overwrites, and that TLS accepts it."""

import ipaddress
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

SCRIPT = Path(__file__).parents[3] / "deploy/make_certificates.py"
COLLECTOR = ("--collector", "collector-1", "--address", "10.0.0.1", "--address", "collector.example")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def names(path: Path) -> x509.SubjectAlternativeName:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_all_files_are_made_with_the_names_the_wire_asks_for(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    done = run(str(directory), *COLLECTOR, "--node", "gpu-r1-01", "--node", "gpu-r1-02")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"made  {directory}/{name}.pem" for name in ("ca", "collector", "gpu-r1-01", "gpu-r1-02")
    ]
    assert {path.name for path in directory.iterdir()} == {
        f"{stem}.{kind}" for stem in ("ca", "collector", "gpu-r1-01", "gpu-r1-02") for kind in ("pem", "key")
    }
    collector = names(directory / "collector.pem")
    assert collector.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.1")]
    assert collector.get_values_for_type(x509.DNSName) == ["collector.example", "collector-1"]
    assert collector.get_values_for_type(x509.UniformResourceIdentifier) == ["bandwitness://collector/collector-1"]
    node = names(directory / "gpu-r1-01.pem")
    assert node.get_values_for_type(x509.UniformResourceIdentifier) == ["bandwitness://node/gpu-r1-01"]


def test_keys_are_p256_and_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert run(str(tmp_path), *COLLECTOR, "--node", "a").returncode == 0
    finally:
        os.umask(before)
    for stem in ("ca", "collector", "a"):
        path = tmp_path / f"{stem}.key"
        assert path.stat().st_mode & 0o777 == 0o600
        key = load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP256R1)


def test_a_second_run_adds_nodes_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    run(str(tmp_path), *COLLECTOR, "--node", "a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = run(str(tmp_path), *COLLECTOR, "--node", "a", "--node", "b")
    assert again.returncode == 0
    assert [line.split()[0] for line in again.stdout.splitlines()] == ["kept", "kept", "kept", "made"]
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert run(str(tmp_path), "--node", "c").returncode == 0
    issuer = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    x509.load_pem_x509_certificate((tmp_path / "c.pem").read_bytes()).verify_directly_issued_by(issuer)


def test_tls_stands_between_a_node_and_the_collector(tmp_path: Path) -> None:
    run(str(tmp_path), *COLLECTOR, "--node", "a")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "collector.pem", tmp_path / "collector.key")
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client.load_cert_chain(tmp_path / "a.pem", tmp_path / "a.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname="10.0.0.1"),
        server.wrap_bio(there, back, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    peer = ends[1].getpeercert()
    assert peer is not None
    assert ("URI", "bandwitness://node/a") in peer["subjectAltName"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("--collector", "other", "--address", "10.0.0.1"),
            "does not name bandwitness://collector/other, other: to make",
        ),
        (("--collector", "collector-1", "--address", "10.0.0.9"), "does not name 10.0.0.9"),
        (("--collector", "collector-1"), "needs at least one --address"),
        (("--node", "../a"), "is no name"),
        (("--node", "ca"), "a node cannot be called ca"),
        (("--node", "collector"), "a node cannot be called collector"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_changes(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    run(str(tmp_path), *COLLECTOR)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run(str(tmp_path), *arguments)
    assert done.returncode == 1
    assert why in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("gone", ["ca.key", "ca.pem", "a.key", "a.pem"])
def test_half_a_pair_is_never_completed_by_overwriting(tmp_path: Path, gone: str) -> None:
    run(str(tmp_path), *COLLECTOR, "--node", "a")
    (tmp_path / gone).unlink()
    done = run(str(tmp_path), "--node", "a")
    assert done.returncode == 1
    assert f"{tmp_path / gone} is not" in done.stderr
    assert not (tmp_path / gone).exists()


def test_certificates_of_another_authority_are_named(tmp_path: Path) -> None:
    run(str(tmp_path), *COLLECTOR, "--node", "a")
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).unlink()
    done = run(str(tmp_path), "--node", "a")
    assert done.returncode == 1
    assert "is not from the authority" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--days", "0", "--node", "a"), ("--unknown",)])
def test_wrong_usage_is_two(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert run(str(tmp_path), *arguments).returncode == 2


def test_help_says_what_is_written_where() -> None:
    text = run("--help").stdout
    assert "bandwitness://node/<name>" in text
    assert "ca.key" in text
