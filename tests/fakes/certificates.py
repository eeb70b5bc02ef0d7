"""A certificate authority and certificates of it, as files, some of them wrong on purpose."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.now(UTC)


class Authority:
    """Makes ``ca.pem`` and ``ca.key`` in a directory, and what it is asked for."""

    def __init__(self, directory: Path, *, start: timedelta = timedelta(days=-1), days: int = 30) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        builder = self._builder(self._name, self._key, start, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        (directory / "ca.pem").write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        key = directory / "ca.key"
        key.write_bytes(self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        key.chmod(0o600)

    def issue(
        self,
        stem: str,
        *,
        server: bool = True,
        start: timedelta = timedelta(days=-1),
        days: int = 30,
        password: bytes | None = None,
        mode: int = 0o600,
    ) -> None:
        """``stem``.pem and .key, valid from ``start`` from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, stem)]), key, start, days)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        (self.directory / f"{stem}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        under = NoEncryption() if password is None else BestAvailableEncryption(password)
        path = self.directory / f"{stem}.key"
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, under))
        path.chmod(mode)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: timedelta, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW + start)
            .not_valid_after(NOW + start + timedelta(days=days))
        )
