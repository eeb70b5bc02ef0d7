"""What an agent is told in agent.yaml: plain values, which every layer may import for nothing.

``file`` holds the grammar of the file and finds its faults; ``apart`` reads it in a process of its own.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

Engine = Literal["iperf3", "libiperf"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Address:
    """A collector's host (name, IPv4 or IPv6 without brackets) and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def channel_target(self) -> str:
        """The same for gRPC, which reads it as a URI: there a zone's percent sign is written %25 (RFC 6874)."""
        return str(self).replace("%", "%25")

    @property
    def loopback(self) -> bool:
        """Whether plain text stays inside this host."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    ca: Path
    certificate: Path
    key: Path
    server_name: str


def enrolled_files(state_dir: Path, server_name: str = "") -> IdentityFiles:
    """Where `enrol` puts an identity: certificate and key are one file."""
    own = state_dir / "identity" / "node.pem"
    return IdentityFiles(own.with_name("ca.pem"), own, own, server_name)


@dataclass(frozen=True, slots=True)
class MarkConfig:
    """The socket on which trainers are heard. ``socket`` None: the usual place, or the state directory."""

    enabled: bool = True
    socket: Path | None = None
    expiry_ns: int = 1_800_000_000_000  # a mark that was never closed by then is taken for closed


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """A whole valid configuration. ``sha256`` is that of the file's bytes and goes into every header."""

    name: str
    state_dir: Path
    collectors: tuple[Address, ...]
    identity: IdentityFiles | None
    spool_max_bytes: int
    spool_max_age_ns: int
    iperf3: str
    log_level: LogLevel
    sha256: bytes
    mark: MarkConfig = MarkConfig()
    engine: Engine = "iperf3"

    @property
    def enrolled(self) -> bool:
        """Whether the identity is one of ours, which we may renew."""
        return self.identity is not None and self.identity.key == enrolled_files(self.state_dir).key
