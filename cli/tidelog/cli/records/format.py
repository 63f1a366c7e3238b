r"""How `consume` prints a record: kcat's format string, compiled once. Pure.

Owns the letters: `%t` topic, `%p` partition, `%o` offset, `%k` key, `%v` or `%s` value, `%h`
headers, `%T` timestamp, `%K` and `%S` the lengths of key and value, `%%`. Records come as the codec
gives them; a batch whose records have no nulls costs one formatting call each.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from tidelog.cli.show.errors import BadInput
from tidelog.cli.show.escapes import unescape

DEFAULT: Final = b"%v\\n"
MEANINGS: Final = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "k": "key",
    "v": "value",
    "s": "value",
    "h": "headers as name=value,...",
    "T": "timestamp in milliseconds since 1970",
    "K": "length of the key, -1 for null",
    "S": "length of the value, -1 for null",
    "%": "%",
}

Record = tuple[int, int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""offset, timestamp_ms, timestamp_type, key, value, headers."""

_OFFSET, _TIMESTAMP, _KEY, _VALUE = 0, 1, 3, 4
_DIRECT: Final = {"o": (b"%d", _OFFSET), "T": (b"%d", _TIMESTAMP), "k": (b"%b", _KEY)}
_VALUE_LETTERS: Final = "vs"


class RecordFormat:
    """Renders records of one partition at a time."""

    def __init__(self, format_: bytes, *, null: bytes = b"") -> None:
        self._parts = parse(format_)
        self._null = null
        self._is_direct = not any(part in ("h", "K", "S") for part in self._parts)
        self._makers: dict[tuple[str, int], _Maker] = {}

    @property
    def value_end(self) -> bytes | None:
        """What ends each record, if nothing but its value goes before; None: something does."""
        if len(self._parts) != 2 or self._parts[0] not in ("v", "s"):
            return None
        end = self._parts[1]
        return end if isinstance(end, bytes) else None

    def render(self, topic: str, partition: int, records: Sequence[Record]) -> bytes:
        """The bytes of all records, one after the other."""
        maker = self._makers.get((topic, partition))
        if maker is None:
            maker = _Maker(self._parts, topic, partition, self._null)
            self._makers[topic, partition] = maker
        if self._is_direct:
            try:
                return maker.render_direct(records)
            except TypeError:  # a null among them: `%b` takes bytes only
                pass
        return b"".join(map(maker.render_one, records))


class _Maker:
    """A format with topic and partition filled in."""

    def __init__(
        self, parts: Sequence[bytes | str], topic: str, partition: int, null: bytes
    ) -> None:
        fixed = {"t": topic.encode(), "p": b"%d" % partition, "%": b"%"}
        self._parts: list[bytes | str] = []
        for part in parts:
            text = fixed.get(part, part) if isinstance(part, str) else part
            if isinstance(text, bytes) and self._parts and isinstance(self._parts[-1], bytes):
                self._parts[-1] += text
            else:
                self._parts.append(text)
        self._null = null
        self._pattern, self._pick = _direct(self._parts)

    def render_direct(self, records: Sequence[Record]) -> bytes:
        """The fast way; TypeError for a null."""
        if len(self._parts) == 2 and self._parts[0] in ("v", "s"):
            end = self._parts[1]
            assert isinstance(end, bytes), "literals that follow each other are one part"
            values: list[Any] = [record[_VALUE] for record in records]
            return end.join(values) + end if values else b""
        pattern, pick = self._pattern, self._pick
        return b"".join([pattern % pick(record) for record in records])

    def render_one(self, record: Record) -> bytes:
        """Any format, any record."""
        return b"".join(
            part if isinstance(part, bytes) else self._field(part, record) for part in self._parts
        )

    def _field(self, letter: str, record: Record) -> bytes:
        offset, timestamp_ms, _, key, value, headers = record
        match letter:
            case "o":
                return b"%d" % offset
            case "T":
                return b"%d" % timestamp_ms
            case "K":
                return b"-1" if key is None else b"%d" % len(key)
            case "S":
                return b"-1" if value is None else b"%d" % len(value)
            case "h":
                return b",".join(
                    name.encode() + b"=" + (self._null if content is None else content)
                    for name, content in headers
                )
            case "k":
                return self._null if key is None else key
            case _:
                return self._null if value is None else value


def _direct(parts: Sequence[bytes | str]) -> tuple[bytes, Callable[[Record], Any]]:
    """A pattern for bytes % tuple, and what picks the tuple out of a record."""
    pattern, places = b"", []
    for part in parts:
        if isinstance(part, bytes):
            pattern += part.replace(b"%", b"%%")
            continue
        code, place = (b"%b", _VALUE) if part in _VALUE_LETTERS else _DIRECT.get(part, (b"%b", 0))
        pattern += code
        places.append(place)
    if not places:
        return pattern, lambda _: ()
    return pattern, itemgetter(*places)


def parse(format_: bytes) -> list[bytes | str]:
    """Literal bytes and letters, in order."""
    what = f"-f {format_.decode('utf-8', 'backslashreplace')}"
    parts: list[bytes | str] = []
    literal = b""
    place = 0
    while place < len(format_):
        percent = format_.find(b"%", place)
        literal += format_[place : percent if percent >= 0 else len(format_)]
        if percent < 0:
            break
        letter = format_[percent + 1 : percent + 2].decode("ascii", "replace")
        if letter not in MEANINGS:
            shown = f"`%{letter}` is not known" if letter else "it ends with a single %"
            known = ", ".join(f"%{each} {meaning}" for each, meaning in MEANINGS.items())
            raise BadInput(what, shown, known)
        if literal:
            parts.append(unescape(literal, what=what))
        literal = b""
        parts.append(letter)
        place = percent + 2
    if literal:
        parts.append(unescape(literal, what=what))
    return parts
