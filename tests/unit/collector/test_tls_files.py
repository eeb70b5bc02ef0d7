"""TLS files that cannot be used are named, with what is wrong, before the first agent fails."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from collector.config import Tls, date_faults, file_faults
from collector.config.tls_files import _open_to_others
from tests.fakes.certificates import NOW, Authority

JUNK = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("collector")
    return made


def tls_of(directory: Path) -> Tls:
    return Tls(
        ca=str(directory / "ca.pem"),
        certificate=str(directory / "collector.pem"),
        key=str(directory / "collector.key"),
    )


def faults(authority: Authority) -> list[str]:
    return [f"{key}: {message}" for key, message in file_faults(tls_of(authority.directory))]


def test_files_that_belong_together_have_no_fault(authority: Authority) -> None:
    assert faults(authority) == []
    assert list(date_faults(tls_of(authority.directory), NOW)) == []


def _junk(name: str, kind: str) -> Callable[[Authority], None]:
    def damage(authority: Authority) -> None:
        (authority.directory / name).write_text(JUNK.format(kind) if kind else "")

    return damage


def _other_key(authority: Authority) -> None:
    authority.issue("n1")
    (authority.directory / "n1.key").replace(authority.directory / "collector.key")


@pytest.mark.parametrize(
    ("damage", "key", "message"),
    [
        (_junk("ca.pem", "CERTIFICATE"), "ca", "{dir}/ca.pem holds no certificate in PEM, or a damaged one"),
        (_junk("ca.pem", ""), "ca", "{dir}/ca.pem holds no certificate"),
        (_junk("collector.pem", "CERTIFICATE"), "certificate", "{dir}/collector.pem holds no certificate in PEM"),
        (_junk("collector.key", "PRIVATE KEY"), "key", "{dir}/collector.key holds no private key in PEM"),
        (_junk("collector.key", ""), "key", "{dir}/collector.key holds no private key in PEM"),
        (_other_key, "key", "{dir}/collector.key is not the key of {dir}/collector.pem"),
        (lambda a: a.issue("collector", server=False), "certificate", "{dir}/collector.pem is not for a server"),
        (lambda a: a.issue("collector", password=b"x"), "key", "{dir}/collector.key is under a password"),
        (lambda a: (a.directory / "ca.pem").unlink(), "ca", "{dir}/ca.pem cannot be read: No such file or directory"),
    ],
)
def test_each_fault_names_the_file(
    authority: Authority, damage: Callable[[Authority], None], key: str, message: str
) -> None:
    damage(authority)
    (fault,) = faults(authority)
    assert fault.startswith(f"{key}: {message.format(dir=authority.directory)}")


def test_all_faults_are_told_at_once(authority: Authority) -> None:
    _junk("ca.pem", "")(authority)
    _other_key(authority)
    (authority.directory / "collector.key").chmod(0o604)
    assert [fault.partition(":")[0] for fault in faults(authority)] == ["key", "ca", "key"]


def test_a_key_that_others_can_read_is_refused(authority: Authority) -> None:
    path = authority.directory / "collector.key"
    path.chmod(0o644)
    assert faults(authority) == [f"key: {path} can be read by others (mode 0644): chmod 600 {path}"]
    path.chmod(0o640)
    assert bool(faults(authority)) == (os.getuid() != 0)


@pytest.mark.parametrize(
    ("mode", "uid", "refused"),
    [(0o600, 0, False), (0o640, 0, False), (0o660, 0, True), (0o604, 0, True), (0o640, 7, True), (0o400, 7, False)],
)
def test_roots_key_may_be_readable_by_its_group(mode: int, uid: int, refused: bool) -> None:
    assert bool(_open_to_others("k", mode, uid)) is refused


def test_certificates_out_of_their_time_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path, start=timedelta(days=-40))
    authority.issue("collector", start=timedelta(days=2))
    assert faults(authority) == []
    (ca, certificate) = [f"{key}: {message}" for key, message in date_faults(tls_of(tmp_path), NOW)]
    assert ca.startswith(f"ca: {tmp_path}/ca.pem has expired on ")
    assert certificate.startswith(f"certificate: {tmp_path}/collector.pem is not valid before ")
