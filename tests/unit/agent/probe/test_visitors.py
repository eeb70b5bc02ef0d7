import sys
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.probe.visitors import LOOK_NS, SILENT_NS, Doorkeeper, Visitor, parse_table

TITLES = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
OURS, MORE = Visitor("192.0.2.1", 40_000), Visitor("192.0.2.1", 40_002)
THEM = Visitor("198.51.100.9", 50_000)


def words(address: str) -> str:
    packed = ip_address(address).packed
    return "".join(f"{int.from_bytes(packed[at : at + 4], sys.byteorder):08X}" for at in range(0, len(packed), 4))


def line(port: int, far: str, far_port: int, state: str = "01", inode: int = 77) -> str:
    return f"   0: {words('192.0.2.2')}:{port:04X} {words(far)}:{far_port:04X} {state} 0:0 0:0 0 0 0 {inode} 1 0\n"


def test_accepted_connections_to_the_port() -> None:
    table = TITLES + line(5201, *OURS) + line(5202, *THEM) + line(5201, "0.0.0.0", 0, "0A") + line(5201, *THEM)
    table += line(5201, *MORE, inode=0)  # waits behind them
    assert parse_table(table, 5201) == [OURS, THEM]


def test_addresses_of_version_6_and_mapped_ones() -> None:
    table = TITLES + line(5201, "2001:db8::9", 1) + line(5201, "::ffff:192.0.2.1", 40_000)
    assert parse_table(table, 5201) == [Visitor("2001:db8::9", 1), OURS]


@given(st.text() | st.text().map(lambda text: f"0: 00000000:1451 {text}:zz 01 0:0 0:0 0 0 0 77 more"))
def test_any_table_is_read(text: str) -> None:
    parse_table(text, 5201)


def test_a_stranger_in_two_looks_is_sent_away() -> None:
    keeper = Doorkeeper("192.0.2.1", udp=False)
    assert keeper.look([THEM], 0) is None
    assert keeper.look([THEM], LOOK_NS) == THEM


def test_a_stranger_who_is_told_busy_beside_the_test_is_none_of_our_business() -> None:
    keeper = Doorkeeper("192.0.2.1", udp=False)
    assert [keeper.look(seen, n * LOOK_NS) for n, seen in enumerate([[OURS], [OURS, MORE], [THEM], [THEM]])] == [
        None
    ] * 4
    assert keeper.settled


def test_a_client_that_is_told_busy_does_not_save_the_stranger() -> None:
    keeper = Doorkeeper("192.0.2.1", udp=False)
    looks = [[THEM], [THEM, OURS], [THEM], [THEM]]
    assert [keeper.look(seen, n * LOOK_NS) for n, seen in enumerate(looks)] == [None, None, None, THEM]


@pytest.mark.parametrize("udp", [False, True])
def test_a_connection_that_says_nothing_is_sent_away_unless_it_may_be_a_test(udp: bool) -> None:
    keeper = Doorkeeper("192.0.2.1", udp=udp)
    looks = [keeper.look([OURS], n * LOOK_NS) for n in range(SILENT_NS // LOOK_NS + 1)]
    assert looks[:-1] == [None] * (len(looks) - 1)
    assert looks[-1] == (None if udp else OURS)
    assert keeper.settled is udp
