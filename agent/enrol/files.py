"""Certificate and key as they lie in the state directory: ``identity/node.pem`` holds both, so that they are replaced
together, ``identity/ca.pem`` the authority of the collector. Mode 0600, of the state directory's owner."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from agent.config import IdentityFiles


class IdentityFilesError(Exception):
    """What the collector gave cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """A new key in PEM, and the certificate request (PKCS #10, DER) over its other half."""

    key: bytes
    certificate_request: bytes


def make_request(name: str) -> Request:
    """A key on P-256: it is made here and never leaves this host."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Request(pem, request.public_bytes(Encoding.DER))


def keep(files: IdentityFiles, request: Request, certificate: bytes, ca: bytes) -> None:
    """Writes what was issued over ``request``, each file whole or not at all.

    Raises:
        IdentityFilesError: the certificate is not over our key, or one of the two is none.
        OSError: it cannot be written.
    """
    try:
        issued = x509.load_pem_x509_certificate(certificate)
        x509.load_pem_x509_certificates(ca)
        own = load_pem_private_key(request.key, password=None).public_key()
    except ValueError as error:
        raise IdentityFilesError(f"the collector's answer holds no certificate: {error}") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if issued.public_key().public_bytes(*form) != own.public_bytes(*form):
        raise IdentityFilesError("the collector's answer is a certificate over another key than ours")
    directory = files.certificate.parent
    state = directory.parent
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = state.stat()
    directory.mkdir(mode=0o700, exist_ok=True)
    _give(directory, owner)
    _write(files.ca, ca, owner)  # first: it may hold one more authority than before, never one less that is needed
    _write(files.certificate, certificate + request.key, owner)


def validity(certificate: bytes) -> tuple[datetime, datetime]:
    """From when until when a certificate in PEM counts, aware.

    Raises:
        ValueError: there is none.
    """
    read = x509.load_pem_x509_certificate(certificate)
    return read.not_valid_before_utc, read.not_valid_after_utc


def _write(path: Path, data: bytes, owner: os.stat_result) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _give(unfinished, owner)
    unfinished.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give(path: Path, owner: os.stat_result) -> None:
    """Root may enrol for the agent's user: whoever has the state directory has what is in it."""
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
