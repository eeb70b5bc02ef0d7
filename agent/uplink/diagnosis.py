"""Why there is no stream, in plain words with the cure.

gRPC says "Socket closed" for most faults of a handshake, so after a failure the same handshake is done once more with
the standard library, which names what is wrong. Classifying is pure; ``look`` is the one handshake.
"""

import asyncio
import datetime
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from agent.config import Address, IdentityFiles

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # RFC 9113, section 3.4: and empty SETTINGS
# X509_verify_cert(3): X509_V_ERR_…
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One word, and what is wrong and how to cure it."""

    state: str
    detail: str


def of_status(code: grpc.StatusCode, details: str) -> Trouble | None:
    """What the collector's own refusal means; None where it is for the connection to be looked at."""
    if too_many_pings(details):
        return Trouble("too_many_pings", "the collector allows fewer keepalive pings; ours are sent half as often now")
    if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return Trouble("unauthenticated", f"the collector refuses this agent: {details}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Trouble("incompatible", f"the other end is no Bandwitness collector, or an older one: {details}")
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
        return Trouble("refused", f"the collector refuses what was sent: {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return None
    return Trouble("failed", f"{code.name.lower()}: {details}")


def too_many_pings(details: str) -> bool:
    """The server's GOAWAY with ENHANCE_YOUR_CALM (RFC 9113, section 7; gRPC A8)."""
    return "too_many_pings" in details.lower().replace(" ", "_")


def of_error(error: BaseException, address: Address, identity: IdentityFiles | None) -> Trouble:
    """What a failed handshake means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_verification(error, address, identity)
    if isinstance(error, ssl.SSLError):
        return _of_tls(error, address, identity)
    if isinstance(error, socket.gaierror):
        return Trouble("dns", f"{address.host} cannot be resolved ({error.strerror}): check the name and the resolver")
    if isinstance(error, ConnectionRefusedError):
        return Trouble(
            "connection_refused", f"nothing listens at {address}: is the collector running, and on this address?"
        )
    if isinstance(error, TimeoutError):
        return Trouble("no_answer", f"no answer from {address}: check routes and firewalls between here and there")
    if isinstance(error, ConnectionError | asyncio.IncompleteReadError):
        cure = "is that a collector with collector.tls?" if identity else "does it expect TLS? Then give agent.identity"
        return Trouble("closed", f"{address} closes the connection at once: {cure}")
    return Trouble("unreachable", f"{address} cannot be reached: {error}")


def _of_verification(error: ssl.SSLCertVerificationError, address: Address, identity: IdentityFiles | None) -> Trouble:
    ca = identity.ca if identity else None
    if error.verify_code == _EXPIRED:
        return Trouble("collector_expired", f"the certificate of {address} has expired: make it a new one")
    if error.verify_code == _NOT_YET_VALID:
        return Trouble("clock", f"the certificate of {address} is not valid yet: is the clock of this host right?")
    if error.verify_code in _WRONG_NAME:
        return Trouble(
            "wrong_name",
            f"the certificate of {address} does not name {(identity and identity.server_name) or address.host}: "
            "make it with that --address, or set agent.identity.server_name to a name it has",
        )
    if error.verify_code in _UNKNOWN_ISSUER:
        return Trouble(
            "unknown_ca",
            f"the certificate of {address} is not from the authority in {ca}: copy the ca.pem that it was made with",
        )
    return Trouble("collector_untrusted", f"the certificate of {address} is not accepted: {error.verify_message}")


def _of_tls(error: ssl.SSLError, address: Address, identity: IdentityFiles | None) -> Trouble:
    reason = (error.reason or str(error)).upper()
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return Trouble("not_tls", f"{address} does not speak TLS: give the collector its certificate (collector.tls)")
    if "ALERT" in reason and identity:
        return _certificate_refused(address, identity, reason.replace("_", " ").lower())
    return Trouble("tls", f"the TLS handshake with {address} fails: {error.reason or error}")


def _certificate_refused(address: Address, identity: IdentityFiles, words: str) -> Trouble:
    return Trouble(
        "certificate_refused",
        f"{address} does not accept {identity.certificate} ({words}): "
        "is it from the collector's authority, and still valid?",
    )


def of_files(identity: IdentityFiles, now_ns: int) -> Trouble | None:
    """Whether our own files could serve at all."""
    for path in (identity.ca, identity.certificate, identity.key):
        try:
            path.read_bytes()
        except OSError as error:
            return Trouble("identity_unreadable", f"{path} cannot be read: {error.strerror or error}")
    from cryptography import x509  # noqa: PLC0415 - 3 MB that an agent without trouble does not need

    try:
        certificate = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    except ValueError as error:
        return Trouble("identity_unreadable", f"{identity.certificate} is not a certificate in PEM: {error}")
    now = datetime.datetime.fromtimestamp(now_ns / 1e9, datetime.UTC)
    if certificate.not_valid_after_utc <= now:
        return Trouble(
            "certificate_expired", f"our own {identity.certificate} has expired: make it anew, or enrol again"
        )
    try:
        _context(identity)
    except (ssl.SSLError, OSError) as error:
        return Trouble(
            "identity_unreadable", f"{_together(identity)} do not belong together or are not in PEM: {error}"
        )
    return None


def _together(identity: IdentityFiles) -> str:
    files: tuple[Path, ...] = (identity.ca, identity.certificate, identity.key)
    return ", ".join(str(path) for path in files)


def _context(identity: IdentityFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(identity.ca))
    context.load_cert_chain(identity.certificate, identity.key)
    context.set_alpn_protocols(["h2"])
    return context


async def look(address: Address, identity: IdentityFiles | None, now_ns: int, timeout_s: float = 3.0) -> Trouble | None:
    """Connects as gRPC would and waits for the first byte of HTTP/2 settings; None: nothing is wrong with that."""
    trouble = of_files(identity, now_ns) if identity else None
    if trouble is not None:
        return trouble
    context = _context(identity) if identity else None
    name = (identity.server_name or address.host) if identity else None
    handshaken = False
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=name
            )
            try:
                # The other end of TLS or plain text hangs up at this, an HTTP/2 server answers. In TLS 1.3 a refusal of
                # our certificate comes after the handshake too, in place of the first byte.
                handshaken = True
                writer.write(_PREFACE)
                await reader.readexactly(1)
            finally:
                writer.transport.abort()
    except (OSError, asyncio.IncompleteReadError) as error:  # SSLError and TimeoutError are OSErrors
        if identity and handshaken and isinstance(error, ConnectionError | asyncio.IncompleteReadError):
            return _certificate_refused(address, identity, "it hangs up right after the handshake")
        return of_error(error, address, identity)
    return None
