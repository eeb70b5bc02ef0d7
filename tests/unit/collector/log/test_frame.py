"""Frames come back as they were; a table of damages with exactly what survives each."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.log import frame
from collector.log.frame import MAGIC, Damage, Frame

FRAMES = [frame.encode(number, 1_000 + number, "n1", "", bytes([number]) * 40) for number in (1, 2, 3)]
STARTS = [len(MAGIC), len(MAGIC) + len(FRAMES[0]), len(MAGIC) + len(FRAMES[0]) + len(FRAMES[1])]
CONTENT = MAGIC + b"".join(FRAMES)


def positions(content: bytes) -> list[int]:
    return [entry.position for entry in frame.scan(content, len(MAGIC)) if isinstance(entry, Frame)]


def test_a_frame_comes_back_as_it_was() -> None:
    content = frame.encode(7, -5, "gpu-r1-01", "bad_signature", b"bytes")
    (entry,) = frame.scan(content, 0)
    assert entry == Frame(0, len(content), 7, -5, "gpu-r1-01", "bad_signature", b"bytes")


def test_frames_come_back_in_order() -> None:
    assert positions(CONTENT) == [1, 2, 3]
    assert [entry.offset for entry in frame.scan(CONTENT, len(MAGIC))] == STARTS


def flipped(offset: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:offset] + bytes([content[offset] ^ 0x40]) + content[offset + 1 :]


@pytest.mark.parametrize(
    ("damage", "survivors"),
    [
        pytest.param(lambda content: content[:-1], [1, 2], id="last byte missing"),
        pytest.param(lambda content: content[: STARTS[2] + 3], [1, 2], id="torn inside a length"),
        pytest.param(lambda content: content[: STARTS[2] + 8], [1, 2], id="torn behind the checksum"),
        pytest.param(lambda content: content[: STARTS[2]], [1, 2], id="cut between frames"),
        pytest.param(flipped(STARTS[1] + 30), [1, 3], id="bit flipped in the middle body"),
        pytest.param(flipped(STARTS[1] + 4), [1, 3], id="bit flipped in the middle checksum"),
        pytest.param(flipped(STARTS[2] + 30), [1, 2], id="bit flipped in the last body"),
        pytest.param(flipped(STARTS[1] + 3), [1], id="absurd length in the middle"),
        pytest.param(flipped(STARTS[0] + 2), [], id="absurd length at the start"),
        pytest.param(lambda content: content + bytes(500), [1, 2, 3], id="zeros behind the end"),
        pytest.param(
            lambda content: content[: STARTS[1]] + bytes(len(content) - STARTS[1]), [1], id="zeros instead of frames"
        ),
        pytest.param(lambda content: content + FRAMES[0][:5], [1, 2, 3], id="half a length behind the end"),
    ],
)
def test_damage_costs_only_what_it_hit(damage: Callable[[bytes], bytes], survivors: list[int]) -> None:
    assert positions(damage(CONTENT)) == survivors


def test_what_is_no_frame_is_named_with_its_place() -> None:
    entries = list(frame.scan(flipped(STARTS[1] + 30)(CONTENT), len(MAGIC)))
    assert entries[1] == Damage(STARTS[1], len(FRAMES[1]), "the checksum does not match")
    (torn,) = frame.scan(CONTENT[:-1], STARTS[2])
    assert torn == Damage(
        STARTS[2], len(FRAMES[2]) - 1, f"cut short: {len(FRAMES[2]) - 9} of {len(FRAMES[2]) - 8} bytes"
    )


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_and_damage_that_cover_them_without_holes(content: bytes) -> None:
    at = 0
    for entry in frame.scan(content, 0):
        assert (entry.offset, entry.length > 0) == (at, True)
        at += entry.length
    assert at == len(content)
