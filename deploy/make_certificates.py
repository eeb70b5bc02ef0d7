#!/usr/bin/env python3
"""Makes a small certificate authority, and from it the certificates of one collector and its agents.

    make_certificates.py DIR --collector NAME --address 10.0.0.1 [--address …] --node A --node B …

writes DIR/ca.pem and DIR/ca.key, DIR/collector.pem and .key, and a .pem and .key for each node. Run again with more
nodes, it adds theirs; what is there already stays as it is and is never overwritten. Each host needs ca.pem and its own
two files; ca.key stays on a machine that is none of them.

Keys are ECDSA on P-256 (gRPC's TLS library refuses some others), files of keys have mode 0600. A node's certificate
carries its name as the URI bandwitness://node/<name>; the collector takes what an agent sends only under that name.
"""

import argparse
import datetime
import ipaddress
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as in collector.yaml
RESERVED = ("ca", "collector")  # files of these names are taken
CA_DAYS = 3650
# Clocks of freshly installed hosts are off: a certificate is valid from a day before it was made.
BACKDATED = datetime.timedelta(days=1)


class CertificateError(Exception):
    """What cannot be done, and what to do instead."""


def make(
    directory: Path,
    *,
    collector: str | None,
    addresses: Sequence[str],
    nodes: Sequence[str],
    days: int,
    now: datetime.datetime,
) -> list[tuple[str, str]]:
    """Makes what is missing.

    Args:
        directory: made, with mode 0700, where it is not there.
        collector: name of the collector; None adds nodes only.
        addresses: IP addresses and host names under which agents reach the collector.
        nodes: names of the agents' nodes.
        days: how long certificates are valid (the authority: ten years).
        now: aware.

    Returns:
        (file, what happened to it), in order.

    Raises:
        CertificateError: nothing was overwritten; what had been made before the fault stays.
    """
    for name in [*nodes, *([collector] if collector else [])]:
        if not NAME.fullmatch(name):
            raise CertificateError(f"{name!r} is no name: letters, digits, '.', '_' and '-', at most 63")
    for name in nodes:
        if name in RESERVED:
            raise CertificateError(f"a node cannot be called {name}: its files would be those of the {name}")
    if collector and not addresses:
        raise CertificateError("--collector needs at least one --address under which agents reach it")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _Authority(directory, now)
    done = [authority.report]
    if collector:
        done.append(authority.issue("collector", _collector_names(collector, addresses), server=True, days=days))
    for name in dict.fromkeys(nodes):
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"bandwitness://node/{name}")]
        done.append(authority.issue(name, names, server=False, days=days))
    return done


def _collector_names(collector: str, addresses: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"bandwitness://collector/{collector}")]
    for address in dict.fromkeys([*addresses, collector]):  # its name too: agents may set it as server_name
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    return names


class _Authority:
    """The CA in a directory: loaded, or made."""

    def __init__(self, directory: Path, now: datetime.datetime) -> None:
        self._directory = directory
        self._now = now
        certificate, key = directory / "ca.pem", directory / "ca.key"
        if certificate.exists() and key.exists():
            self._certificate, self._key = _load(certificate, key)
            if self._certificate.not_valid_after_utc <= now:
                raise CertificateError(f"the authority {certificate} has expired: start with a new directory")
            self.report = ("ca.pem", "kept")
            return
        _refuse_half(certificate, key)
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Bandwitness certificate authority")])
        builder = self._builder(name, name, self._key.public_key(), CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(sign_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        _write_pair(certificate, self._certificate, key, self._key)
        self.report = ("ca.pem", "made")

    def issue(self, stem: str, names: list[x509.GeneralName], *, server: bool, days: int) -> tuple[str, str]:
        """Makes ``stem``.pem and .key, or checks that those that are there say the same."""
        certificate, key = self._directory / f"{stem}.pem", self._directory / f"{stem}.key"
        if certificate.exists() and key.exists():
            self._check(_load(certificate, key)[0], certificate, names)
            return certificate.name, "kept"
        _refuse_half(certificate, key)
        private = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, stem)])
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(subject, self._certificate.subject, private.public_key(), days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(_usage(sign_certificates=False), critical=True)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        _write_pair(certificate, builder.sign(self._key, hashes.SHA256()), key, private)
        return certificate.name, "made"

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(self._now - BACKDATED)
        builder = builder.not_valid_after(self._now + datetime.timedelta(days=days))
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)

    def _check(self, kept: x509.Certificate, path: Path, names: list[x509.GeneralName]) -> None:
        cure = f"to make it anew, remove {path} and {path.with_suffix('.key')} and run this again"
        try:
            kept.verify_directly_issued_by(self._certificate)
        except Exception:  # noqa: BLE001 - several kinds, one meaning
            raise CertificateError(f"{path} is not from the authority in {self._directory}: {cure}") from None
        if kept.not_valid_after_utc <= self._now:
            raise CertificateError(f"{path} has expired: {cure}")
        present = list(kept.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        missing = [str(name.value) for name in names if name not in present]
        if missing:
            raise CertificateError(f"{path} does not name {', '.join(missing)}: {cure}")


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _refuse_half(certificate: Path, key: Path) -> None:
    for there, missing in ((certificate, key), (key, certificate)):
        if there.exists():
            raise CertificateError(f"{there} is there but {missing} is not: bring it back, or remove {there}")


def _load(certificate: Path, key: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{certificate} or {key} cannot be read: {error}") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != loaded.public_key():
        raise CertificateError(f"{key} is not the key of {certificate}")
    return loaded, private


def _write_pair(
    certificate_path: Path, certificate: x509.Certificate, key_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    _write_new(key_path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _write_new(certificate_path, certificate.public_bytes(Encoding.PEM), 0o644)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Never over a file that is there."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make_certificates.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the files are, or will be")
    parser.add_argument("--collector", metavar="NAME", help="name of the collector, as in collector.yaml")
    parser.add_argument(
        "--address", action="append", default=[], help="IP address or host name of the collector; several are fine"
    )
    parser.add_argument("--node", action="append", default=[], metavar="NAME", help="name of a node; several are fine")
    parser.add_argument("--days", type=int, default=825, help="how long certificates are valid (default: %(default)s)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 all is there, 1 something could not be made, 2 wrong usage."""
    parser = _arguments()
    options = parser.parse_args(arguments)
    if not options.collector and not options.node:
        parser.error("nothing to do: give --collector, --node or both")
    if not 1 <= options.days <= CA_DAYS:
        parser.error(f"--days must lie between 1 and {CA_DAYS}")
    try:
        done = make(
            options.directory,
            collector=options.collector,
            addresses=options.address,
            nodes=options.node,
            days=options.days,
            now=datetime.datetime.now(datetime.UTC),
        )
    except (CertificateError, OSError) as error:
        print(f"make_certificates.py: {error}", file=sys.stderr)
        return 1
    for name, what in done:
        print(f"{what}  {options.directory / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
