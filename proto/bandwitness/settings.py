"""The language of both configuration files: YAML read into msgspec structs, with every fault at its line.

Shared because an operator writes both files and expects one grammar: full words, unknown keys refused, equal keys
twice refused, rates as ``10G``, durations as ``10s``, sizes as ``64MiB``, times of day as ``HH:MM[:SS]``.
Pure: text in, values or faults out.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

T = TypeVar("T", bound=msgspec.Struct)
Place = tuple[str | int, ...]  # ("sites", 0, "time_zone")

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 32
MAX_INTEGER = (1 << 63) - 1  # what columns, messages and databases hold


class Duration(int):
    """Nanoseconds, written ``10s``, ``200us``, ``1h30m``."""


class Rate(int):
    """Bits per second, written ``10G``, ``400M`` or a plain number; decimal prefixes."""


class Size(int):
    """Bytes, written ``64MiB``, ``10MB`` or a plain number."""


class TimeOfDay(int):
    """Seconds after midnight, written ``HH:MM`` or ``HH:MM:SS``; ``24:00`` is the end of the day."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong with a file: where, which key, what is allowed."""

    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        return f"line {self.line}:{self.column}{key} {self.message}"


class SettingsError(ValueError):
    """A file with faults; ``faults`` holds all of them, in order of place."""

    def __init__(self, source: str, faults: list[Fault]) -> None:
        self.source = source
        self.faults = sorted(faults)
        super().__init__("\n".join(f"{source}: {fault}" for fault in self.faults))


# ---------------------------------------------------------------- scalars with units

_DURATION_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d)")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKMGT]?)")
_RATE_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_SIZE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")


def _amount(parts: list[tuple[str, int]], largest: str) -> int:
    """Sum of number × unit; ``largest`` is what the file may say at most, for people."""
    total = sum(float(number) * unit for number, unit in parts)  # infinite for 400 digits, and never raises
    if total >= MAX_INTEGER:
        raise ValueError(f"expected at most {largest}")
    return sum(round(float(number) * unit) for number, unit in parts)


def _duration(text: str) -> Duration:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("expected a duration such as 200us, 10s, 1h30m")
    return Duration(_amount([(number, _DURATION_UNITS[unit]) for number, unit in parts], "106751d (292 years)"))


def _rate(text: str) -> Rate:
    match = _RATE.fullmatch(text)
    if not match:
        raise ValueError("expected a rate in bit/s such as 400M, 10G")
    return Rate(_amount([(match[1], _RATE_UNITS[match[2]])], "9000000T"))


def _size(text: str) -> Size:
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError("expected a size such as 64MiB, 10GB")
    return Size(_amount([(match[1], _SIZE_UNITS[match[2] or "B"])], "8000000TiB"))


def _time_of_day(text: str) -> TimeOfDay:
    match = _TIME_OF_DAY.fullmatch(text)
    hour, minute, second = (int(part or 0) for part in match.groups()) if match else (99, 0, 0)
    if minute > 59 or second > 59 or hour * 3600 + minute * 60 + second > 86_400:
        raise ValueError("expected a time of day HH:MM or HH:MM:SS between 00:00 and 24:00")
    return TimeOfDay(hour * 3600 + minute * 60 + second)


_SCALARS: dict[type, Callable[[str], int]] = {
    Duration: _duration,
    Rate: _rate,
    Size: _size,
    TimeOfDay: _time_of_day,
}


def parse_duration(text: str) -> Duration:
    """Nanoseconds in ``10s``, ``1h30m``.

    Raises:
        ValueError: not a duration; the message says what is.
    """
    return _duration(text.strip())


def parse_rate(text: str) -> Rate:
    """Bits per second in ``10G``, ``400M``.

    Raises:
        ValueError: not a rate; the message says what is.
    """
    return _rate(text.strip())


# ---------------------------------------------------------------- YAML with places


class _Loader(yaml.SafeLoader):
    """Plain YAML 1.2 scalars: ``no`` stays a word and ``12:30:45`` a time, not false and 45045. No aliases: a few
    lines of them expand to gigabytes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tagged: dict[yaml.Node, str] = {}  # nodes with a tag of their own, and how it is written
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not supported here: write the value out", problem_mark=mark
            )
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH}", problem_mark=mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None and event.tag is not None:
            self.tagged[node] = event.tag.replace("tag:yaml.org,2002:", "!!")
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in ("tag:yaml.org,2002:null",)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands for a value that has no meaning here; the message says why."""

    message: str


@dataclass(slots=True)
class _Document:
    value: Any
    places: dict[Place, tuple[int, int]]  # of the key in a mapping, of the item in a list
    faults: list[Fault]
    partial: bool = False  # structs with faults are built all the same, see load()

    def fault(self, place: Place, message: str) -> None:
        at = place
        while at not in self.places and at:
            at = at[:-1]
        line, column = self.places.get(at, (1, 1))
        self.faults.append(Fault(line, column, dotted(place), message))


def dotted(place: Place) -> str:
    """``sites[0].time_zone`` for ("sites", 0, "time_zone")."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _read(text: str, source: str) -> _Document:
    document = _Document(None, {(): (1, 1)}, [])
    if len(text) > MAX_DOCUMENT_BYTES:
        raise SettingsError(source, [Fault(1, 1, "", f"the file is larger than {MAX_DOCUMENT_BYTES} bytes")])
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            document.value = _value(loader, node, (), document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise SettingsError(source, [Fault(line, column, "", f"not YAML: {error.problem or error}")]) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        message = f"not YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        raise SettingsError(source, [Fault(line, column, "", message)]) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as "\\UFFFFFFFF", where the scanner stands
        line, column = (loader.line + 1, loader.column + 1) if loader is not None else (1, 1)
        words = str(error) if isinstance(error, yaml.YAMLError) else "no such character or number"
        raise SettingsError(source, [Fault(line, column, "", f"not YAML: {words}")]) from None
    return document


def _value(loader: _Loader, node: yaml.Node, place: Place, document: _Document) -> Any:
    document.places.setdefault(place, (node.start_mark.line + 1, node.start_mark.column + 1))
    if node in loader.tagged:
        return _Unreadable(f"tags ({_cut(loader.tagged[node])}) are not supported here: write the plain value")
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key(loader, key_node)
            mark = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if key in mapping:
                first = document.places[(*place, key)][0]
                document.faults.append(
                    Fault(*mark, dotted((*place, key)), f"this key stands here twice (first in line {first})")
                )
                continue
            document.places[(*place, key)] = mark
            mapping[key] = _value(loader, value_node, (*place, key), document)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, (*place, index), document) for index, item in enumerate(node.value)]
    return _plain(node.tag, node.value)


def _key(loader: _Loader, node: yaml.Node) -> str:
    """A key's text, in a form that can be shown; what is no plain text is the key of nothing."""
    if not isinstance(node, yaml.ScalarNode) or node in loader.tagged:
        return "?"
    return str(node.value) if node.value.isprintable() else _cut(ascii(node.value)[1:-1])


def _plain(tag: str, text: str) -> Any:
    """The value of a scalar, as the resolvers above tell its kind."""
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind == "null":
        return None
    if kind == "bool":
        return text == "true"
    if kind == "int":  # Python refuses to read more than 4,300 digits, and nothing here holds more than 64 bits
        value = int(text) if len(text) <= 64 else MAX_INTEGER + 1
        return value if abs(value) <= MAX_INTEGER else _Unreadable(f"{_cut(text)} is a number beyond 64 bits")
    if kind == "float":
        number = float(text)
        return number if math.isfinite(number) else _Unreadable(f"{_cut(text)} is too large a number")
    wrong = next((character for character in text if character == "\0" or "\ud800" <= character <= "\udfff"), None)
    if wrong is not None:  # no file, address or name can hold one
        return _Unreadable(f"the character U+{ord(wrong):04X} is not allowed in text")
    return text


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


# ---------------------------------------------------------------- values into structs


def _convert(value: Any, wanted: Any, place: Place, document: _Document) -> Any:
    """``value`` as ``wanted``; on a fault notes it and gives back None. Goes on past faults to find all of them."""
    if isinstance(value, _Unreadable):
        document.fault(place, value.message)
        return None
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        options = [option for option in get_args(wanted) if option is not type(None)]
        if value is None and len(options) < len(get_args(wanted)):
            return None
        if len(options) == 1:
            return _convert(value, options[0], place, document)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return _struct(value, wanted, place, document)
    if origin in (list, tuple) and isinstance(value, list):
        item = get_args(wanted)[0]
        return tuple(_convert(entry, item, (*place, index), document) for index, entry in enumerate(value))
    if origin is dict and isinstance(value, dict):
        item = get_args(wanted)[1]
        return {key: _convert(entry, item, (*place, key), document) for key, entry in value.items()}
    if origin in (list, tuple, dict):
        document.fault(place, f"expected a {'mapping' if origin is dict else 'list'}, found {_shown(value)}")
        return None
    return _scalar(value, wanted, place, document)


def _scalar(value: Any, wanted: Any, place: Place, document: _Document) -> Any:
    try:
        if wanted in _SCALARS:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError("expected a number with a unit")
            return _SCALARS[wanted](str(value).strip())
        if wanted is str and isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError("expected text: put it in quotes")
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        message = _allowed(wanted) or str(error).replace("`", "").split(" - at ")[0]
        document.fault(place, f"{message[:1].lower()}{message[1:]}, found {_shown(value)}")
        return None


def _allowed(wanted: Any) -> str:
    """What may stand here, where the type can say it better than msgspec: choices, and a Meta with a description."""
    if get_origin(wanted) is Literal:
        return f"expected {' or '.join(str(choice) for choice in get_args(wanted))}"
    notes = [note.description for note in getattr(wanted, "__metadata__", ()) if isinstance(note, msgspec.Meta)]
    return f"expected {notes[0]}" if notes and notes[0] else ""


def _struct(value: Any, wanted: type[msgspec.Struct], place: Place, document: _Document) -> Any:
    if not isinstance(value, dict):
        document.fault(place, f"expected a mapping, found {_shown(value)}")
        return None
    before = len(document.faults)
    fields = {field.name: field for field in msgspec.structs.fields(wanted)}
    types = get_type_hints(wanted, include_extras=True)
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed here: {', '.join(fields)}"
            document.fault((*place, key), f"unknown key; {hint}")
    converted: dict[str, Any] = {}
    for name, field in fields.items():
        known = len(document.faults)
        if name in value:
            converted[name] = _convert(value[name], types[name], (*place, name), document)
            if converted[name] is None and len(document.faults) > known and not field.required:
                del converted[name]  # the default stands in for what could not be read
        elif field.required:
            document.fault(place, f"the key {name} is missing")
            converted[name] = None
    if len(document.faults) > before and not document.partial:
        return None
    try:
        return wanted(**converted)
    except ValueError as error:  # __post_init__: faults between keys
        document.fault(place, str(error))
        return None


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return repr(_cut(text))


def parse_time_of_day(text: str) -> TimeOfDay:
    """Seconds after midnight in ``19:00``, ``24:00``.

    Raises:
        ValueError: not a time of day; the message says what is.
    """
    return _time_of_day(text.strip())


def load(
    text: str,
    wanted: type[T],
    source: str,
    *,
    check: Callable[[T], Iterator[tuple[Place, str]]] | None = None,
    check_partial: bool = False,
) -> T:
    """Reads ``text`` into ``wanted``.

    Args:
        text: the YAML document.
        wanted: the struct of the whole file. ``Annotated[..., msgspec.Meta(ge=…)]`` bounds are checked; a
            ``__post_init__`` may raise ValueError for faults between its keys.
        source: the file's name, for messages.
        check: yields (place, message) for what only the whole file shows, such as a name that nothing defines. Not
            called where the file does not even have the right shape, unless ``check_partial``.
        check_partial: call ``check`` also then, so that all faults are found in one go. It is given structs in which
            a value that could not be read is its default or, where it has none, None.

    Raises:
        SettingsError: with every fault found.
    """
    document = _read(text, source)
    if document.value is None and not document.faults:
        raise SettingsError(source, [Fault(1, 1, "", "the file is empty")])
    document.partial = check_partial
    result = _convert(document.value, wanted, (), document)
    if check is not None and result is not None and (check_partial or not document.faults):
        read = {fault.key for fault in document.faults}
        for place, message in check(result):
            if dotted(place) not in read:  # a value that could not be read is at fault once, not for its default too
                document.fault(place, message)
    if document.faults:
        raise SettingsError(source, document.faults)
    return result  # type: ignore[no-any-return]
