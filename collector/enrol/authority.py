"""Signs nodes' certificates with the key of the collector's authority (``collector.tls.ca_key``).

Of a certificate request only the public key counts (RFC 2986, its signature proves possession of the other half): name,
extensions and purpose of the certificate are ours to say.
"""

import datetime
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from collector.config import Tls
from collector.config.tls_files import signer_of

NODE_URI = "bandwitness://node/"
MAX_REQUEST_BYTES = 4096
BACKDATED = datetime.timedelta(hours=1)  # at most a tenth of the lifetime; clocks of fresh hosts are off


class RequestError(ValueError):
    """The certificate request cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate, and what is put on record of it."""

    pem: bytes
    sha256: bytes
    public_key_sha256: bytes
    not_after_ns: int


class Authority:
    """The authority with its key in memory."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, lifetime_ns: int) -> None:
        self._certificate = certificate
        self._key = key
        self._lifetime = datetime.timedelta(microseconds=lifetime_ns // 1000)

    @classmethod
    def load(cls, tls: Tls) -> "Authority":
        """From the files of ``tls``, which ``file_faults`` has found to be in order."""
        assert tls.ca_key is not None
        key = load_pem_private_key(Path(tls.ca_key).read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        certificate = signer_of(Path(tls.ca).read_bytes(), key)
        assert certificate is not None
        return cls(certificate, key, tls.certificate_lifetime)

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """``sha256:`` and the hash of its certificate in hex: what agents are told beforehand."""
        return f"sha256:{sha256(self._certificate.public_bytes(Encoding.DER)).hexdigest()}"

    def issue(self, node: str, request: bytes, now_ns: int) -> Issued:
        """A certificate for ``node`` over the public key of ``request`` (PKCS #10, DER), never outliving our own.

        Raises:
            RequestError: it cannot be read, is not signed by its own key, or the key is not on P-256.
        """
        public = public_key_of(request)
        now = datetime.datetime.fromtimestamp(now_ns / 1e9, datetime.UTC)
        not_after = min(now + self._lifetime, self._certificate.not_valid_after_utc).replace(microsecond=0)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)]))
            .issuer_name(self._certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - min(BACKDATED, self._lifetime / 10), self._certificate.not_valid_before_utc))
            .not_valid_after(not_after)
        )
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(NODE_URI + node)]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension, critical in (
            (x509.SubjectAlternativeName(names), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False),
            (_SIGNATURES_ONLY, True),
            (x509.SubjectKeyIdentifier.from_public_key(public), False),
            (identifier, False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return facts_of(builder.sign(self._key, hashes.SHA256()))


_SIGNATURES_ONLY = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=False,
    crl_sign=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def public_key_of(request: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a certificate request, if whoever made it has the other half.

    Raises:
        RequestError: as ``Authority.issue``.
    """
    if len(request) > MAX_REQUEST_BYTES:
        raise RequestError(f"a certificate request of more than {MAX_REQUEST_BYTES} bytes")
    try:
        read = x509.load_der_x509_csr(request)
        public = read.public_key()
        signed = read.is_signature_valid
    except Exception as error:
        raise RequestError("not a certificate request (PKCS #10 in DER)") from error
    if not signed:
        raise RequestError("the certificate request is not signed by its own key")
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise RequestError("the key has to be ECDSA on P-256")
    return public


def key_hash(public: ec.EllipticCurvePublicKey) -> bytes:
    """SHA-256 of a SubjectPublicKeyInfo in DER."""
    return sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def facts_of(certificate: x509.Certificate) -> Issued:
    """A certificate as it is put on record."""
    public = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Issued(
        pem=certificate.public_bytes(Encoding.PEM),
        sha256=sha256(certificate.public_bytes(Encoding.DER)).digest(),
        public_key_sha256=sha256(public).digest(),
        not_after_ns=int(certificate.not_valid_after_utc.timestamp()) * 1_000_000_000,
    )


def nodes_of(certificate: x509.Certificate) -> list[str]:
    """The nodes that a certificate names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return [uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI)]
