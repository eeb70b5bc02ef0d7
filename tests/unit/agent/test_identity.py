"""The agent's key: made once, kept to itself, never replaced in silence."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from agent.identity import IdentityError, load_or_create, read_boot_id


def test_a_key_is_made_once_and_signs(tmp_path: Path) -> None:
    first = load_or_create(tmp_path / "state")
    second = load_or_create(tmp_path / "state")
    assert first.public_key == second.public_key
    assert len(first.public_key) == 32
    Ed25519PublicKey.from_public_bytes(first.public_key).verify(second.sign(b"header"), b"header")


def test_the_key_file_is_what_every_other_program_would_write(tmp_path: Path) -> None:
    ours = load_or_create(tmp_path)
    pem = (tmp_path / "identity.key").read_bytes()
    key = load_pem_private_key(pem, password=None)
    assert isinstance(key, Ed25519PrivateKey)
    assert key.public_key().public_bytes_raw() == ours.public_key
    assert key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) == pem


def test_a_key_in_another_layout_is_read_too(tmp_path: Path) -> None:
    ours = load_or_create(tmp_path)
    path = tmp_path / "identity.key"
    path.write_bytes(b"restored from a copy\r\n" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_or_create(tmp_path).public_key == ours.public_key


def test_the_key_file_is_closed_to_others_and_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_or_create(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "identity.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["identity.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused_with_the_cure(tmp_path: Path, mode: int) -> None:
    load_or_create(tmp_path)
    (tmp_path / "identity.key").chmod(mode)
    with pytest.raises(IdentityError, match=f"mode {mode:04o}.*chmod 600"):
        load_or_create(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_damaged_key_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "identity.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(IdentityError, match="not a private key"):
        load_or_create(tmp_path)
    assert path.read_bytes() == content


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    key = generate_private_key(SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    with pytest.raises(IdentityError, match="Ed25519"):
        load_or_create(tmp_path)


def test_an_unwritable_state_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    with pytest.raises(IdentityError, match=r"cannot make the key .*/state/identity\.key"):
        load_or_create(tmp_path / "state")


def test_the_boot_id_is_read_under_the_root(tmp_path: Path) -> None:
    path = tmp_path / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("01020304-0506-0708-090a-0b0c0d0e0f10\n")
    assert read_boot_id(tmp_path) == bytes(range(1, 17))
    assert len(read_boot_id()) == 16
    path.write_text("01020304\n")
    with pytest.raises(ValueError, match="UUID"):
        read_boot_id(tmp_path)
