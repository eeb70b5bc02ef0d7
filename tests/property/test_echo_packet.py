"""Properties of the echo codec over all inputs."""

from hypothesis import given
from hypothesis import strategies as st

from agent.probe.echo_packet import EchoTemplate, parse_quote, parse_reply, parse_stub, pattern
from agent.probe.stamps import read_arrival, read_error, read_stamp
from tests.fakes.network import echo_reply

templates = st.builds(
    EchoTemplate,
    ip_version=st.sampled_from([4, 6]),
    identifier=st.integers(0, 0xFFFF),
    token=st.binary(min_size=8, max_size=8),
    slot=st.integers(0, 4999),
    fill=st.integers(20, 200).map(pattern),
)


@given(templates, st.integers(0, 2**64 - 1), st.integers(0, 0xFFFF))
def test_what_is_echoed_is_intact(template: EchoTemplate, sequence: int, wire: int) -> None:
    request = template.request(sequence, wire)
    version = 4 if request[0] == 8 else 6
    message = echo_reply(request)
    reply = parse_reply(b"head" + message, 4, version)
    assert reply is not None
    assert (reply.sequence, reply.wire_sequence) == (sequence, wire)
    assert template.intact(reply, b"head" + message, 4)


@given(templates, st.data())
def test_one_damaged_byte_never_passes_as_intact(template: EchoTemplate, data: st.DataObject) -> None:
    """Except where identity is checked by the caller: type, code, identifier, wire sequence, token, slot, sequence."""
    request = template.request(1, 1)
    version = 4 if request[0] == 8 else 6
    message = bytearray(echo_reply(request))
    places = ([2, 3] if version == 4 else []) + list(range(28, len(message)))
    if not places:
        return
    place = data.draw(st.sampled_from(places))
    message[place] ^= data.draw(st.integers(1, 255))
    reply = parse_reply(bytes(message), 0, version)
    assert reply is not None
    # 0x0000 and 0xffff are one and the same checksum (RFC 1071).
    if version == 4 and place in (2, 3) and bytes(message[2:4]) in (b"\0\0", b"\xff\xff"):
        return
    assert not template.intact(reply, bytes(message), 0)


@given(st.binary(max_size=100), st.integers(0, 120), st.sampled_from([4, 6]))
def test_no_input_raises(data: bytes, offset: int, version: int) -> None:
    parse_reply(data, offset, version)
    parse_stub(data, version)
    parse_quote(data, version)


@given(st.lists(st.tuples(st.sampled_from([0, 1, 41]), st.sampled_from([2, 11, 25, 37, 52]), st.binary(max_size=60))))
def test_no_ancillary_data_raises(ancillary: list[tuple[int, int, bytes]]) -> None:
    read_stamp(ancillary)
    assert 0 <= read_arrival(ancillary)[1] <= 255
    read_error(ancillary)
