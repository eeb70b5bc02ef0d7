"""The key that signs the control chain."""

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


class KeyFileError(RuntimeError):
    """The control key cannot be used; the text names the file and the cure."""


def load_or_create_key(path: Path) -> Ed25519PrivateKey:
    """The collector's Ed25519 key; made at the first start, readable by its owner alone.

    Raises:
        KeyFileError: others may read it, it is no such key, or the file cannot be read or made.
    """
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            made = Ed25519PrivateKey.generate()
            text = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            partial = path.with_name(path.name + ".new")
            partial.unlink(missing_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise KeyFileError(f"{path}: readable by others (mode {mode:04o}): chmod 600 it")
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path}: the control key cannot be used: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: not an Ed25519 key")
    return key
