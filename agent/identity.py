"""The agent's own key, and which boot of the kernel this is.

The Ed25519 key signs every header (RFC 8032). It is made on first start and lives in the state directory, readable by
the agent alone: whoever can read it can sign in the agent's name.
"""

import os
import re
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE = "identity.key"
_MAX_KEY_BYTES = 4096
# PKCS #8 of an Ed25519 key in PEM (RFC 8410, section 7) is always these 16 bytes and the key's 32, on one line.
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_PEM = b"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n"
_OWN_PEM = re.compile(_PEM % b"([A-Za-z0-9+/]{64})")


class IdentityError(Exception):
    """The key cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key pair: 32 bytes of public key, and the function that signs with the other half (64 bytes)."""

    public_key: bytes
    sign: Callable[[bytes], bytes]


def load_or_create(state_dir: Path) -> Identity:
    """The key of this state directory; made, with mode 0600, where there is none yet.

    Raises:
        IdentityError: others can read the key, or it is not one. A damaged key is never replaced in silence: a new
            key is a new identity, which the collector has to be told.
    """
    path = state_dir / KEY_FILE
    if not path.exists():
        _create(path)
    return _load(path)


def read_boot_id(root: Path = Path("/")) -> bytes:
    """16 bytes that change with every boot: ``/proc/sys/kernel/random/boot_id`` (random(4)) under ``root``."""
    found = bytes.fromhex((root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", ""))
    if len(found) != 16:
        raise ValueError("not a UUID")
    return found


def _create(path: Path) -> None:
    pem = _PEM % b64encode(_PKCS8 + Ed25519PrivateKey.generate().private_bytes_raw())
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Whole or not at all: a half-written key would be taken for a damaged one at the next start.
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.unlink(missing_ok=True)
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path)  # fails where a second process was faster; its key is then the one
        except FileExistsError:
            pass
        finally:
            unfinished.unlink()
        _sync_directory(path.parent)
    except OSError as error:
        raise IdentityError(f"cannot make the key {path}: {error.strerror or error}") from error


def _load(path: Path) -> Identity:
    try:
        status = path.stat()
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise IdentityError(
                f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}): chmod 600 {path}, and if "
                "others may have read it, remove it so that a new key is made"
            )
        with path.open("rb") as file:
            key = _parse(file.read(_MAX_KEY_BYTES))
    except OSError as error:
        raise IdentityError(f"cannot read the key {path}: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:
        raise IdentityError(
            f"{path} is not a private key in PEM ({error}): restore it from a copy, or remove it to get a new key"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"{path} holds another kind of key than Ed25519")
    return Identity(key.public_key().public_bytes_raw(), key.sign)


def _parse(pem: bytes) -> object:
    """The key as ``_create`` writes it, or whatever else of a key it may be.

    Raises:
        ValueError, TypeError: it is none, or under a password.
    """
    own = _OWN_PEM.fullmatch(pem)
    if own and (content := b64decode(own[1])).startswith(_PKCS8):
        return Ed25519PrivateKey.from_private_bytes(content[len(_PKCS8) :])
    # Brings 1 MB of other kinds of keys with it.
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    return load_pem_private_key(pem, password=None)


def _sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable: fsync of a file alone does not (fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
