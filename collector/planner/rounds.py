"""Which tests may run together. Pure."""

from collections.abc import Sequence

from collector.planner.endpoints import Pair, capacity


def rounds(pairs: Sequence[Pair], uplink_tokens: int) -> list[list[Pair]]:
    """``pairs`` in as few rounds as first fit finds (edge colouring with capacities); within a round no token is held
    beyond its capacity. The order of ``pairs`` matters: see ``collector.planner.pairs``."""
    full: dict[str, int] = {}  # token -> set of the rounds (as bits) in which it cannot be had
    held: dict[tuple[str, int], int] = {}
    found: list[list[Pair]] = []
    for pair in pairs:
        taken = 0
        for token in pair.tokens:
            taken |= full.get(token, 0)
        index = (~taken & (taken + 1)).bit_length() - 1  # the first round free of them all
        if index == len(found):
            found.append([])
        found[index].append(pair)
        for token in pair.tokens:
            count = held[token, index] = held.get((token, index), 0) + 1
            if count == capacity(token, uplink_tokens):
                full[token] = full.get(token, 0) | 1 << index
    return found
