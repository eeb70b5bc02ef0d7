"""What stands in the way of measuring on this host, and the cure: asked before ``run``, without its imports.

Each check is a function of its own over injected facts and gives findings; a check that fails itself is a finding
too. The file is checked before: all that is here needs a valid one.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from agent.config import AgentConfig, IdentityFiles
from agent.probe.iperf3_program import LIBIPERF

Level = Literal["ok", "warning", "fault"]
EXPIRY_WARNING = timedelta(days=14)
CONNECT_TIMEOUT_S = 2.0
PROGRAM_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``cure``: what to do, empty when nothing."""

    subject: str
    level: Level
    message: str
    cure: str = ""

    def __str__(self) -> str:
        cure = f" (cure: {self.cure})" if self.cure else ""
        return f"{self.level:7} {self.subject}: {self.message}{cure}"


def check_host(config: AgentConfig) -> list[Finding]:
    """All checks on the real host, in order."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("certificates", lambda: check_certificates(config.name, config.identity, datetime.now(UTC))),
        ("iperf3", lambda: check_iperf3(config.iperf3, config.engine)),
        ("icmp", check_icmp),
        ("congestion_control", check_congestion_control),
        ("state_dir", lambda: check_state_dir(config.state_dir, config.spool_max_bytes)),
        ("clock", check_clock),
        ("nics", check_subnets),
        ("collectors", lambda: check_collectors(config)),
    ]
    findings: list[Finding] = []
    for subject, run in checks:
        try:
            findings += run()
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
            findings.append(Finding(subject, "warning", f"could not be checked: {type(error).__name__}: {error}"))
    return findings


# ---------------------------------------------------------------- identity


def check_certificates(name: str, files: IdentityFiles | None, now: datetime) -> Iterator[Finding]:
    """Dates, names, and that key, certificate and authority belong together."""
    if files is None:
        yield Finding("certificates", "ok", "none: plain text to a collector on this host")
        return
    from cryptography import x509  # noqa: PLC0415 - 20 ms that a host without identity need not wait for
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        authorities = x509.load_pem_x509_certificates(files.ca.read_bytes())
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = load_pem_private_key(files.key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        yield Finding("certificates", "fault", f"not PEM, or under a password: {error}", "write them again")
        return
    for path, found in [(files.certificate, certificate), *((files.ca, authority) for authority in authorities)]:
        yield _check_dates(path, found.not_valid_before_utc, found.not_valid_after_utc, now)
    if key.public_key() != certificate.public_key():
        yield Finding("certificates", "fault", f"{files.key} is not the key of {files.certificate}")
    if not any(_issued(certificate, authority) for authority in authorities):
        yield Finding("certificates", "fault", f"{files.certificate} was not issued by {files.ca}")
    wanted = f"bandwitness://node/{name}"
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    if wanted not in uris:
        found_names = ", ".join(uris) or "no URI"
        yield Finding("certificates", "fault", f"{files.certificate} is for {found_names}, agent.name needs {wanted}")


def _issued(certificate: Any, authority: Any) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - another name, type of key or signature: each its own kind, all mean no
        return False
    return True


def _check_dates(path: Path, begins: datetime, ends: datetime, now: datetime) -> Finding:
    if now < begins:
        return Finding("certificates", "fault", f"{path} is valid from {begins:%Y-%m-%dT%H:%M:%SZ} on", "set the clock")
    if now >= ends:
        return Finding("certificates", "fault", f"{path} expired on {ends:%Y-%m-%dT%H:%M:%SZ}", "issue a new one")
    if ends - now < EXPIRY_WARNING:
        return Finding("certificates", "warning", f"{path} expires on {ends:%Y-%m-%dT%H:%M:%SZ}", "issue a new one")
    return Finding("certificates", "ok", f"{path} is valid until {ends:%Y-%m-%d}")


# ---------------------------------------------------------------- programs and rights


def check_iperf3(program: str, engine: str = "iperf3") -> Iterator[Finding]:
    """The program (or the library) is there and says its version."""
    library = engine == "libiperf"
    found = sys.executable if library else shutil.which(program)
    cure = "apt-get install libiperf0; pip install 'bandwitness[libiperf]'" if library else "apt-get install iperf3"
    if found is None:
        yield Finding("iperf3", "fault", f"{program} is not installed: no throughput tests", cure)
        return
    module = LIBIPERF if library else ()
    try:
        done = subprocess.run(
            [found, *module, "--version"], capture_output=True, timeout=PROGRAM_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("iperf3", "fault", f"{found} cannot be run: {error}", cure)
        return
    version = re.match(rb"iperf (3\.\d+\S*)", done.stdout)
    if version is None:
        yield Finding("iperf3", "fault", "libiperf cannot be used" if library else f"{found} is not iperf3", cure)
        return
    yield Finding("iperf3", "ok", f"{'libiperf' if library else found} {version[1].decode()}")


def _open_socket(kind: int) -> None:
    socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP).close()


def check_icmp(open_socket: Callable[[int], None] = _open_socket) -> Iterator[Finding]:
    """Which kind of ICMP socket this user may open."""
    cure = "give CAP_NET_RAW (AmbientCapabilities= in the unit, --cap-add NET_RAW for a container)"
    try:
        open_socket(socket.SOCK_RAW)
    except OSError as error:
        refused = error.strerror
    else:
        yield Finding("icmp", "ok", "raw sockets")
        return
    try:
        open_socket(socket.SOCK_DGRAM)
    except OSError:
        cure += ", or sysctl net.ipv4.ping_group_range='0 2147483647'"
        yield Finding("icmp", "fault", f"neither raw nor datagram sockets ({refused}): TCP connects only", cure)
        return
    yield Finding("icmp", "warning", f"datagram sockets only ({refused} for raw ones)", cure)


PLANNED_CONGESTION_CONTROL = "cubic"  # what collector.yaml plans by default


def check_congestion_control(root: Path = Path("/"), *, may_set_any: bool | None = None) -> Iterator[Finding]:
    """Tests pin their congestion control; without CAP_NET_ADMIN the kernel allows only what is on its list.

    Args:
        root: of the filesystem, for ``/proc/sys/net/ipv4`` (ip-sysctl in the kernel's documentation).
        may_set_any: holds CAP_NET_ADMIN; None: root does.
    """
    sysctls = root / "proc/sys/net/ipv4"
    available = (sysctls / "tcp_available_congestion_control").read_text().split()
    allowed = (sysctls / "tcp_allowed_congestion_control").read_text().split()
    name = PLANNED_CONGESTION_CONTROL
    if name not in available:
        message = f"the kernel has no {name} (it has {', '.join(available)}): tests that pin it will fail"
        yield Finding("congestion_control", "warning", message, f"modprobe tcp_{name}")
    elif name not in allowed and not (os.geteuid() == 0 if may_set_any is None else may_set_any):
        message = f"an ordinary user may not set {name}, only {', '.join(allowed)}: tests that pin it will fail"
        cure = f"sysctl net.ipv4.tcp_allowed_congestion_control='{' '.join([*allowed, name])}'"
        yield Finding("congestion_control", "warning", message, cure)
    else:
        yield Finding("congestion_control", "ok", f"{name} can be set")


# ---------------------------------------------------------------- host


def check_state_dir(state_dir: Path, spool_max_bytes: int) -> Iterator[Finding]:
    """It can be written, or made, and its disk has room for the spool."""
    there = state_dir
    while not there.exists() and there != there.parent:
        there = there.parent
    cure = f"install -d -m 0700 -o {_user()} {state_dir}"
    if not there.is_dir():
        yield Finding("state_dir", "fault", f"{there} is not a directory", cure)
        return
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        yield Finding("state_dir", "fault", f"{there} cannot be written: {error.strerror}", cure)
        return
    yield Finding("state_dir", "ok", f"{state_dir} can be {'written' if there == state_dir else 'made'}")
    free = shutil.disk_usage(there).free
    if free < spool_max_bytes:
        message = f"{free >> 20} MiB free, agent.spool.max_bytes is {spool_max_bytes >> 20} MiB"
        yield Finding("state_dir", "warning", message, "make room or lower agent.spool.max_bytes")


def _user() -> str:
    import pwd  # noqa: PLC0415 - only for a message

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def check_clock() -> Iterator[Finding]:
    """The kernel's word on the wall clock."""
    from agent.sample.clockstate import read_clock  # noqa: PLC0415 - pulls in generated code

    reading = read_clock()
    if not reading.synchronised:
        yield Finding("clock", "warning", "the wall clock is not synchronised", "apt-get install chrony")
    else:
        bound = "unknown" if reading.error_bound_ns is None else f"{reading.error_bound_ns / 1e6:.3f} ms"
        yield Finding("clock", "ok", f"synchronised, error bound {bound}")


def check_subnets() -> Iterator[Finding]:
    """Two NICs in one subnet: the kernel answers ARP for either on both, and sends by route, not by address."""
    import psutil  # noqa: PLC0415 - only here

    from agent.app.subnets import shared_subnets  # noqa: PLC0415

    addresses = {
        nic: [(entry.address, entry.netmask or "") for entry in entries if entry.family == socket.AF_INET]
        for nic, entries in psutil.net_if_addrs().items()
    }
    for subnet, nics in shared_subnets(addresses).items():
        message = f"{' and '.join(nics)} are both in {subnet}: traffic may leave by the other one"
        yield Finding("nics", "warning", message, "arp_filter=1 and a routing table each, or separate subnets")


def check_collectors(config: AgentConfig) -> Iterator[Finding]:
    """Each collector's name resolves and its port answers. Only a warning: it may come later."""
    for address in config.collectors:
        try:
            socket.create_connection((address.host, address.port), timeout=CONNECT_TIMEOUT_S).close()
        except socket.gaierror as error:
            yield Finding("collectors", "warning", f"{address} does not resolve: {error.strerror}")
        except OSError as error:
            yield Finding("collectors", "warning", f"{address} cannot be reached: {error.strerror or error}")
        else:
            yield Finding("collectors", "ok", f"{address} answers")


def as_json(findings: list[Finding]) -> list[dict[str, Any]]:
    """Findings for ``--json``."""
    return [asdict(finding) for finding in findings]
