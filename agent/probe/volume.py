"""How much tests may load a NIC in a day, whatever a plan says; counted through restarts in one small file."""

import json
from pathlib import Path

from bandwitness.v1 import record_pb2 as pb

DAY_NS = 86_400_000_000_000
MAX_DAY_RATIO = 0.05  # of what the NIC could carry one way in a day: 72 minutes of full speed, both directions together
ASSUMED_BPS = 10_000_000_000  # of NICs that do not tell their speed
MAX_UDP_RATIO = 0.5  # of the NIC's speed: UDP yields to nobody
MAX_FILE_BYTES = 64 * 1024
MAX_NICS = 256


class Volume:
    """Bytes of tests by NIC, of the UTC day. A file that cannot be read or written costs what it would have remembered.

    Args:
        path: the file; None where nothing is to be remembered.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._day = 0
        self._bytes: dict[str, int] = {}
        self.faults = 0
        if path is not None:
            self._load(path)

    def refusal(self, nic: str, speed_bps: int | None, profile: pb.Profile, wall_ns: int) -> str:
        """Why a test may not run now; empty when it may. It is taken to go at full speed, or at the rate of UDP."""
        self._turn(wall_ns)
        speed = speed_bps or ASSUMED_BPS
        if speed_bps is not None and profile.udp_rate_bps > MAX_UDP_RATIO * speed_bps:
            return (
                f"udp_rate {profile.udp_rate_bps} bit/s is more than {MAX_UDP_RATIO:.0%} of {nic} "
                f"({speed_bps} bit/s), and UDP yields to nobody"
            )
        seconds = (profile.duration_ns + profile.omit_ns) / 1e9
        ways = 2 if profile.bidirectional else 1
        wanted = min(speed, profile.udp_rate_bps or speed) / 8 * seconds * ways
        limit = MAX_DAY_RATIO * speed / 8 * DAY_NS / 1e9
        used = self._bytes.get(nic, 0)
        if used + wanted <= limit:
            return ""
        return (
            f"tests have carried {used} bytes over {nic} today and this one may add {wanted:.0f}: more than the "
            f"{limit:.0f} ({MAX_DAY_RATIO:.0%} of a day at {speed} bit/s) that an agent allows"
        )

    def add(self, nic: str, octets: int, wall_ns: int) -> None:
        """Counts what a test has carried over a NIC, in both directions."""
        self._turn(wall_ns)
        if octets <= 0 or (nic not in self._bytes and len(self._bytes) >= MAX_NICS):
            return
        self._bytes[nic] = self._bytes.get(nic, 0) + octets
        self._save()

    def _turn(self, wall_ns: int) -> None:
        """A clock that was set back does not make a day begin anew."""
        day = wall_ns // DAY_NS
        if day > self._day:
            self._day, self._bytes = day, {}

    def _load(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                found = json.loads(file.read(MAX_FILE_BYTES))
            self._day = int(found["day"])
            self._bytes = {str(nic): int(octets) for nic, octets in found["bytes"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            self._day, self._bytes = 0, {}
            self.faults += 1

    def _save(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            fresh.write_text(json.dumps({"day": self._day, "bytes": self._bytes}), encoding="utf-8")
            fresh.replace(self._path)
        except OSError:
            self.faults += 1
