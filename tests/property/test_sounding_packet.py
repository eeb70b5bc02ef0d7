"""What feels out a path reads its packets from the wire: garbage is nobody's, and never an exception."""

from hypothesis import given
from hypothesis import strategies as st

from agent.probe.echo_packet import ones_complement_sum
from agent.probe.sounding_packet import MIN_PAYLOAD_BYTES, NUMBERS, Reply, SoundingPackets
from agent.probe.stamps import IP_RECVERR, IPV6_RECVERR, read_error
from tests.fakes.network import echo_reply

VERSIONS = st.sampled_from([4, 6])
NUMBER = st.integers(0, NUMBERS - 1)
IDENTIFIER = st.integers(1, 0xFFFF)
TOKEN = st.binary(min_size=8, max_size=8)
PAYLOAD = st.integers(MIN_PAYLOAD_BYTES, 2000)


@given(VERSIONS, IDENTIFIER, TOKEN, NUMBER, PAYLOAD)
def test_a_request_comes_back_as_its_number(
    version: int, identifier: int, token: bytes, number: int, payload: int
) -> None:
    packets = SoundingPackets(ip_version=version, identifier=identifier, token=token)
    request = packets.request(number, payload)
    assert packets.read_reply(echo_reply(request)) == Reply(number, payload)
    assert packets.read_quote(request) == number
    assert packets.read_quote(request[:8]) == number
    assert packets.request((number + 1) % NUMBERS, payload)[:6] == request[:6]
    assert version == 6 or ones_complement_sum(request) == 0


@given(VERSIONS, IDENTIFIER, TOKEN, st.binary(max_size=100), st.integers(0, 40))
def test_garbage_is_nobodys(version: int, identifier: int, token: bytes, message: bytes, offset: int) -> None:
    packets = SoundingPackets(ip_version=version, identifier=identifier, token=token)
    reply = packets.read_reply(message, offset)
    assert reply is None or message[offset + 8 :].startswith(token)
    packets.read_quote(message)


@given(IDENTIFIER, TOKEN, TOKEN, NUMBER)
def test_another_token_is_a_strangers(identifier: int, ours: bytes, theirs: bytes, number: int) -> None:
    packets = SoundingPackets(ip_version=4, identifier=identifier, token=ours)
    stranger = SoundingPackets(ip_version=4, identifier=identifier, token=theirs)
    found = packets.read_reply(echo_reply(stranger.request(number, 56)))
    assert (found is not None) == (ours == theirs)


@given(st.sampled_from([(0, IP_RECVERR), (41, IPV6_RECVERR)]), st.binary(max_size=64))
def test_an_extended_error_of_any_bytes_is_read_or_left(kind: tuple[int, int], data: bytes) -> None:
    report = read_error([(*kind, data)])
    assert (report is None) == (len(data) < 16)
