"""How often strangers may try."""

from collector.enrol.limits import MAX_ADDRESSES, Attempts

SECOND = 10**9


def test_who_fails_is_slowed_down_and_others_are_not() -> None:
    attempts, now = Attempts(), 1
    tried = 0
    while attempts.allows("a", now):
        attempts.failed("a", now)
        tried += 1
    assert tried == 10
    assert attempts.allows("b", now)
    assert not attempts.allows("a", now + 4 * SECOND)
    assert attempts.allows("a", now + 6 * SECOND)


def test_good_attempts_of_one_address_are_limited_only_with_everybodys() -> None:
    attempts = Attempts()
    assert sum(attempts.allows("a", 1) for _ in range(500)) == 200
    assert sum(attempts.allows("a", 1 + SECOND) for _ in range(500)) == 20


def test_addresses_are_remembered_in_bounded_number() -> None:
    attempts = Attempts()
    for number in range(2 * MAX_ADDRESSES):
        attempts.failed(str(number), number)
    assert len(attempts._failed) == MAX_ADDRESSES
