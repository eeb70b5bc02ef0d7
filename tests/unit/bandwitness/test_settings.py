"""The configuration grammar: every fault is found, each at its line, and units mean what they say."""

import contextlib
from collections.abc import Iterator
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness.settings import (
    Duration,
    Place,
    Rate,
    SettingsError,
    Size,
    TimeOfDay,
    load,
    parse_duration,
)


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    peak: tuple[str, ...] = ()
    limit: Size = Size(5)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    interval: Duration
    rate: Rate | None = None
    streams: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    enabled: bool = True
    inner: Inner = Inner()
    start: TimeOfDay | None = None


class File(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Item, ...]
    labels: dict[str, int] = {}


def faults(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(text, File, "f.yaml")
    return [str(fault) for fault in caught.value.faults]


def test_units_mean_what_they_say() -> None:
    text = "items: [{name: a, interval: 1h30m, rate: 10G, inner: {limit: 64MiB}, start: 12:30:45}]"
    item = load(text, File, "f.yaml").items[0]
    assert (item.interval, item.rate, item.inner.limit, item.start) == (5400 * 10**9, 10**10, 64 * 2**20, 45045)


@pytest.mark.parametrize(
    ("text", "ns"),
    [("200us", 200_000), ("200µs", 200_000), ("1.5s", 1_500_000_000), ("7d", 604_800 * 10**9), ("1m30s", 90 * 10**9)],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "10", "s", "10 s 5", "-1s", "1s2", "10x", "1e3s"])
def test_not_durations(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


def test_words_that_yaml_1_1_would_change_stay_words() -> None:
    assert load("items: [{name: no, interval: 1s}]", File, "f.yaml").items[0].name == "no"


def test_all_faults_are_listed_with_line_column_and_key() -> None:
    text = """items:
  - {name: 5, interval: 10x, rate: true, streams: 99, inner: {peek: [a]}, start: 25:00}
  - name: a
    name: b
    interval: 3
    zz: 1
    enabled: maybe
  - 7
labels: {a: 1, b: x}
bad: 1
"""
    assert faults(text) == [
        "line 2:6 items[0].name: expected text: put it in quotes, found '5'",
        "line 2:15 items[0].interval: expected a duration such as 200us, 10s, 1h30m, found '10x'",
        "line 2:30 items[0].rate: expected a number with a unit, found 'true'",
        "line 2:42 items[0].streams: expected int <= 64, found '99'",
        "line 2:63 items[0].inner.peek: unknown key; did you mean peak?",
        "line 2:75 items[0].start: expected a time of day HH:MM or HH:MM:SS between 00:00 and 24:00, found '25:00'",
        "line 4:5 items[1].name: this key stands here twice (first in line 3)",
        "line 5:5 items[1].interval: expected a duration such as 200us, 10s, 1h30m, found '3'",
        "line 6:5 items[1].zz: unknown key; allowed here: name, interval, rate, streams, enabled, inner, start",
        "line 7:5 items[1].enabled: expected bool, got str, found 'maybe'",
        "line 8:5 items[2]: expected a mapping, found '7'",
        "line 9:16 labels.b: expected int, got str, found 'x'",
        "line 10:1 bad: unknown key; allowed here: items, labels",
    ]


def test_a_missing_key_points_at_what_lacks_it() -> None:
    assert faults("items:\n  - {name: a}\n") == ["line 2:5 items[0]: the key interval is missing"]


def test_what_only_the_whole_file_shows() -> None:
    def check(file: File) -> Iterator[tuple[Place, str]]:
        for index, item in enumerate(file.items):
            if item.name == "b":
                yield ("items", index, "name"), "no such thing"

    with pytest.raises(SettingsError, match=r"f\.yaml: line 3:5 items\[1\]\.name: no such thing"):
        load("items:\n - {name: a, interval: 1s}\n - {name: b, interval: 1s}\n", File, "f.yaml", check=check)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1:1 the file is empty"),
        ("items: [", "not YAML"),
        ("a: &x [1]\nb: *x\n", "line 2:4 not YAML: aliases"),
        ("items: \x00", "not YAML"),
        ("[1, 2]", "expected a mapping, found a list"),
        ("items: " + "[" * 200, "not YAML"),
        ("items: " + "[" * 200 + "]" * 200, "line 1:40 not YAML: nested deeper than 32"),
        ("items: " + "[" * 9000 + "]" * 9000, "line 1:40 not YAML: nested deeper than 32"),
        ('items:\n - name: "\\UFFFFFFFF"', "line 2:13 not YAML: no such character or number"),
        ("--- 1\n--- 2\n", "not YAML"),
        ("items: {a: 1}", "expected a list, found a mapping"),
    ],
)
def test_what_is_not_a_settings_file(text: str, message: str) -> None:
    assert any(message in fault for fault in faults(text)), faults(text)


LONG = "9" * 400
VERY_LONG = "9" * 5_000  # more digits than Python reads


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("interval", f"{LONG}s", "expected at most 106751d (292 years), found '9999"),
        ("interval", f"{VERY_LONG}s", "expected at most 106751d"),
        ("interval", f"1h{LONG}ns", "expected at most 106751d"),
        ("interval", "106752d", "expected at most 106751d"),
        ("interval", "١٢s", "expected a duration"),
        ("interval", VERY_LONG, "is a number beyond 64 bits"),
        ("interval", "1e400", "1e400 is too large a number"),
        ("rate", f"{LONG}G", "expected at most 9000000T"),
        ("rate", VERY_LONG, "is a number beyond 64 bits"),
        ("inner: {limit", f"{LONG}GiB}}", "expected at most 8000000TiB"),
        ("streams", f"-{VERY_LONG}", "is a number beyond 64 bits"),
        ("streams", "9223372036854775808", "9223372036854775808 is a number beyond 64 bits"),
        ("interval", "!!timestamp foo", "tags (!!timestamp) are not supported here: write the plain value"),
        ("enabled", "!!bool foo", "tags (!!bool)"),
        ("streams", "!!int foo", "tags (!!int)"),
        ("streams", "!!float foo", "tags (!!float)"),
        ("name", "!!null x", "tags (!!null)"),
        ("name", "!!binary é", "tags (!!binary)"),
        ("name", "!!python/object/apply:os.system [id]", "tags (!!python/object/apply:os.system)"),
        ("name", "!own x", "tags (!own)"),
        ("name", "! x", "tags (!)"),
        ("inner", "!!set {peek}", "tags (!!set)"),
        ("inner: {peak", "!!omap [a]}", "tags (!!omap)"),
        ("name", '"a\\0b"', "the character U+0000 is not allowed in text"),
        ("name", '"a\\ud800b"', "the character U+D800 is not allowed in text"),
    ],
)
def test_values_that_python_or_yaml_chokes_on_are_faults_at_their_key(key: str, value: str, message: str) -> None:
    line = f"    {key}: {value}\n"
    rest = "".join(
        f"    {other}: {good}\n" for other, good in (("name", "a"), ("interval", "1s")) if not key.startswith(other)
    )
    (fault,) = faults(f"items:\n  -\n{line}{rest}")
    dotted = key.replace(": {", ".")
    column = 5 if "{" not in key else 5 + key.index("{") + 1
    assert fault.startswith(f"line 3:{column} items[0].{dotted}: "), fault
    assert message in fault
    assert len(fault) < 200


@pytest.mark.parametrize("key", ['"a\\0b"', "!!int 5", "{a: b}", "[a]", VERY_LONG])
def test_odd_keys_are_unknown_ones(key: str) -> None:
    (fault,) = faults(f"? {key}\n: 1\nitems: [{{name: a, interval: 1s}}]\n")
    assert fault.startswith("line 1:3 ")
    assert "unknown key" in fault


@given(st.text(max_size=300))
def test_no_text_does_more_than_raise_a_settings_error(text: str) -> None:
    with contextlib.suppress(SettingsError):
        load(text, File, "f.yaml")
