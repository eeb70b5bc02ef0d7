"""The JSON documents in what an iperf3 process printed, also where it is not quite JSON. Pure.

Known dents (esnet/iperf issues): ``nan`` and ``-nan`` (#613, #826), a blank inside an exponent (#520), the same report
printed twice (#1688, #1716), warnings before it (#737), equal keys twice (``start.sock_bufsize`` once a stream).
A value that is no JSON becomes null, and the rest is used. Never raises on text, whatever it is.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

MAX_TEXT_CHARS = 4 * 1024 * 1024  # 128 streams in 60 intervals are 3.3 MB
MAX_DOCUMENTS = 8
_MAX_OPENINGS = 64  # places tried as the start of a document: text full of braces is not read 4 million times

_OPENING = re.compile(r"\{")
# A string, or a run of characters where JSON allows only a number or a word.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s{}\[\]:,"][^{}\[\]:,"\n\r\t]*')
_NUMBER_OR_WORD = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


@dataclass(frozen=True, slots=True)
class Reading:
    """Documents in order; ``repaired``: some value was no JSON and is null now."""

    documents: tuple[dict[str, Any], ...]
    repaired: bool = False


def read_documents(text: str) -> Reading:
    """All JSON objects at the top of ``text`` (or in an array there), at most ``MAX_DOCUMENTS``."""
    if len(text) > MAX_TEXT_CHARS:
        return Reading(())
    plain = _scan(text)
    if plain:
        return Reading(plain)
    mended = _scan(_TOKEN.sub(_mend, text))
    return Reading(mended, repaired=bool(mended))


def _mend(match: re.Match[str]) -> str:
    token = match[0]
    if token.startswith('"') or _NUMBER_OR_WORD.fullmatch(token.rstrip()):
        return token
    return "null"


def _scan(text: str) -> tuple[dict[str, Any], ...]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_merge, parse_constant=lambda _: None, parse_int=_integer, parse_float=_real
    )
    documents: list[dict[str, Any]] = []
    position = 0
    for _ in range(_MAX_OPENINGS):
        opening = _OPENING.search(text, position)
        if opening is None or len(documents) == MAX_DOCUMENTS:
            break
        try:
            value, position = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            position = opening.end()
            continue
        if _is_report(value):
            documents.append(value)
    return tuple(documents)


def _merge(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last of equal keys wins, but an empty one never hides a full one."""
    merged: dict[str, Any] = {}
    for key, value in pairs:
        if value in ({}, [], "", None) and merged.get(key):
            continue
        merged[key] = value
    return merged


def _is_report(document: dict[str, Any]) -> bool:
    """Not a fragment: where the outermost object does not parse, pieces from inside it are found instead."""
    return (
        isinstance(document.get("end"), dict)
        or isinstance(document.get("start"), dict)
        or isinstance(document.get("error"), str)
        or isinstance(document.get("event"), str)
    )


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= 20 else None


def _real(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def assemble_events(documents: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """``--json-stream`` (3.17 on: one ``{"event", "data"}`` a line) turned into the one document that ``-J`` prints."""
    if not documents or "event" not in documents[0]:
        return documents
    whole: dict[str, Any] = {"start": {}, "intervals": [], "end": {}}
    for document in documents:
        event, data = document.get("event"), document.get("data")
        if event == "interval":
            whole["intervals"].append(data)
        elif isinstance(event, str):
            whole[event] = data
    return (whole,)
