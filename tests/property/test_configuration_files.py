"""Whatever is done to a configuration file, it is read or its faults are named: nothing else ever comes out."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.file import FileFacts, parse
from bandwitness.settings import SettingsError
from collector.config import read_config

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
COLLECTOR = (EXAMPLES / "collector.yaml").read_text(encoding="utf-8")
AGENT = (EXAMPLES / "agent.yaml").read_text(encoding="utf-8")

ODD = [
    *("9" * 400, "9" * 5_000, "-" + "9" * 30, "9" * 400 + "s", "9" * 400 + "GiB", "9" * 400 + "G", "1e400", ".inf"),
    *("!!timestamp foo", "!!bool foo", "!!int foo", "!!float foo", "!!set {a}", "!!omap [a]", "!!binary é", "! x"),
    *("!!python/object/apply:os.system [id]", "{<<: {a: b}}", "&a [1]", "*a", "? [a]", "[[[[", "~", "", "- ", "x: "),
    *('"\\0"', '"a\\ud800"', '"\\UFFFFFFFF"', "'", '"', "|", ">-\n x", "%YAML 9", "---", "...", "\t", "\x00", "\x85"),
    *("fd:" + "9" * 5_000, '"127.0.0.1:' + "9" * 5_000 + '"', "٢", "25:00-26:00", "2026-01-01", "a" * 5_000, "no"),
]


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """The file with some stretches, each beginning at some place of interest, put otherwise."""
    for _ in range(draw(st.integers(1, 4))):
        ends = [i for i, character in enumerate(text) if character in ' :,[]{}"\n'] or [0]
        start = draw(st.sampled_from(ends)) + draw(st.integers(0, 1))
        end = draw(st.sampled_from([start, *(e for e in ends if e >= start)][:4]))
        text = text[:start] + draw(st.sampled_from(ODD) | st.text(max_size=8)) + text[end:]
    return text


@given(mutated(COLLECTOR))
def test_any_collector_yaml(text: str) -> None:
    with contextlib.suppress(SettingsError):
        read_config(text, "collector.yaml")


@given(mutated(AGENT))
def test_any_agent_yaml(text: str) -> None:
    def look(path: Path) -> FileFacts:
        path.exists()  # as the disk does it: a name that no file can have is ValueError
        return FileFacts(0o600, 0)

    with contextlib.suppress(SettingsError):
        parse(text, "agent.yaml", Path("/nonexistent"), look=look)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("key", ["http_listen", "grpc_listen", "state_dir", "time_zone", "flush", "interval", "rate"])
def test_each_oddity_in_collector_yaml(key: str, odd: str) -> None:
    lines = COLLECTOR.splitlines()
    at = next(i for i, line in enumerate(lines) if line.lstrip(" -").startswith(f"{key}:") or f"{{{key}:" in line)
    before, _, rest = lines[at].partition(f"{key}: ")
    lines[at] = f"{before}{key}: {odd}{rest[rest.index(',') :] if '{' in before and ',' in rest else ''}"
    with contextlib.suppress(SettingsError):
        read_config("\n".join(lines), "collector.yaml")
