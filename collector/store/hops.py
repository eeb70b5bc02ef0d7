"""What hop limits and traces say of a path's way, and whether it is another than before. Pure."""

from collections.abc import Sequence
from ipaddress import ip_address

from bandwitness.v1.record_pb2 import HOP_OUTCOME_REPLIED, HOP_OUTCOME_TIME_EXCEEDED
from collector.model import HopRow

# With which hosts send: Linux and macOS 64, Windows 128, network gear 255, some embedded ones 32.
INITIAL = (32, 64, 128, 255)

Responders = Sequence[Sequence[str]]  # by hop, from the first router on; none: nobody answered


def hop_count(hop_limit: int) -> int:
    """Routers that a reply has passed, by the hop limit it came with."""
    return next(initial for initial in INITIAL if hop_limit <= initial) - hop_limit


def responders(hops: Sequence[HopRow]) -> list[list[str]]:
    """Routers by hop: up to the destination, or to the last that answered."""
    found: dict[int, set[str]] = {}
    for hop in hops:
        if hop.answer == HOP_OUTCOME_TIME_EXCEEDED and hop.address:
            found.setdefault(hop.hop_limit, set()).add(hop.address)
    ends = [hop.hop_limit - 1 for hop in hops if hop.answer == HOP_OUTCOME_REPLIED]
    length = min(ends) if ends else max(found, default=0)
    return [sorted(found.get(limit, ())) for limit in range(1, length + 1)]


def differs(before: Responders, after: Responders, *, both_reached: bool) -> bool:
    """Whether two traces went over different routers.

    Silence says nothing: routers limit what they answer, and one that answers over several addresses is the same. Where
    both traces reached the destination their lengths count too.
    """
    if both_reached and len(before) != len(after):
        return True
    return any(old and new and not set(old) & set(new) for old, new in zip(before, after, strict=False))


def merged(before: Responders, after: Responders) -> list[list[str]]:
    """What is known by both traces of one way."""
    length = max(len(before), len(after))
    padded = [[*found, *([[]] * (length - len(found)))] for found in (before, after)]
    return [sorted(set(old) | set(new))[:8] for old, new in zip(*padded, strict=True)]


def text(found: Responders) -> str:
    """``10.0.0.1 > * > 10.0.0.3``; ``direct`` without any router."""
    return " > ".join("|".join(hop) or "*" for hop in found) or "direct"


def sides(hops: Sequence[HopRow]) -> tuple[str | None, str | None, str | None]:
    """Near side, vendor edge and far side of a trace.

    The first router that answered, the first with a public address where those before it have none, and the last router
    before the destination. A network that is private throughout has no edge that could be seen.
    """
    ways = [hop[0] for hop in responders(hops) if hop]
    if not ways:
        return None, None, None
    edge = None
    if not ip_address(ways[0]).is_global:
        edge = next((address for address in ways if ip_address(address).is_global), None)
    return ways[0], edge, ways[-1]
