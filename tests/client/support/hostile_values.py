"""What a caller hands in by mistake: one of each kind of wrong value, by name.

Each is made anew for each call, so that one that is used up, or changed, harms no other.
"""

import datetime
import decimal
import enum
import itertools
import pathlib
import uuid
from collections.abc import Callable
from typing import Any, Final, NoReturn

from tidelog.client import TopicPartition

MEBIBYTE: Final = 1024 * 1024


class Index:
    """A whole number of another library, as numpy's are."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Array:
    """As numpy's arrays: comparing gives another one, and none of them is true or false."""

    def __eq__(self, other: object) -> Any:
        return Array()

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        raise ValueError("the truth value of an array is ambiguous")

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        if index > 1:
            raise IndexError
        return index


class Spiteful:
    """Whatever is asked of it raises."""

    def __repr__(self) -> NoReturn:
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __eq__(self, other: object) -> NoReturn:
        raise RuntimeError("no comparison")

    def __hash__(self) -> NoReturn:
        raise RuntimeError("no hash")

    def __iter__(self) -> NoReturn:
        raise RuntimeError("no iteration")


class Anything:
    """A class that makes something of whatever it is given."""

    def __init__(self, *_: object, **__: object) -> None:
        self.is_odd = True


class Word(enum.StrEnum):
    """A text that prints as something else."""

    TOPIC = "t"


class Text(str):
    """A text of another library."""

    __slots__ = ()


VALUES: Final[dict[str, Callable[[], Any]]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "7": lambda: 7,
    "2**31": lambda: 2**31,
    "2**63": lambda: 2**63,
    "10**30": lambda: 10**30,
    "-(10**30)": lambda: -(10**30),
    "1.5": lambda: 1.5,
    "a time in seconds": lambda: 1_763_600_000.25,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "a complex number": lambda: 1j,
    "a decimal": lambda: decimal.Decimal("1.5"),
    "no text": lambda: "",
    "a digit": lambda: "5",
    "a text with a space": lambda: "a b",
    "a text with a newline": lambda: "x\ny",
    "a text with a NUL": lambda: "x\0y",
    "a lone surrogate": lambda: "x\ud800",
    "a long text": lambda: "é" * MEBIBYTE,
    "a text of another class": lambda: Text("t"),
    "a word of an enum": lambda: Word.TOPIC,
    "no bytes": lambda: b"",
    "bytes": lambda: b"t",
    "a bytearray": lambda: bytearray(b"\xff\xfe"),
    "a memoryview": lambda: memoryview(b"t"),
    "no list": list,
    "a list of None": lambda: [None],
    "a list of a text and a number": lambda: ["t", 1],
    "a list in a list": lambda: [["t"]],
    "a tuple": lambda: (1, 2, 3),
    "a dict": lambda: {"a": None},
    "no dict": dict,
    "a dict with odd keys": lambda: {None: object()},
    "a set": lambda: {1},
    "a range": lambda: range(3),
    "a generator": lambda: (each for each in ("t", 5)),
    "numbers without end": itertools.count,
    "an object": object,
    "a function": lambda: lambda *_, **__: None,
    "a class": lambda: Anything,
    "a module": lambda: itertools,
    "an error": lambda: ValueError("text"),
    "...": lambda: ...,
    "a partition": lambda: TopicPartition("t", 0),
    "a partition of nothing": lambda: TopicPartition(None, None),  # type: ignore[arg-type]
    "a partition with a text": lambda: ("t", "0"),
    "a datetime": lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "a timedelta": lambda: datetime.timedelta(seconds=1),
    "a path": lambda: pathlib.Path("t"),
    "a uuid": lambda: uuid.UUID(int=7),
    "a number of another library": lambda: Index(0),
    "an array": Array,
    "what raises at every touch": Spiteful,
}
ELEMENTS: Final = tuple(
    name
    for name in VALUES
    if name
    in {
        "None", "True", "-1", "10**30", "1.5", "nan", "no text", "a lone surrogate",
        "a text with a newline", "a long text", "bytes", "a list of None", "a dict", "an object",
        "a partition", "a partition of nothing", "a partition with a text", "an array",
        "what raises at every touch", "a number of another library",
    }
)  # fmt: skip
"""What stands inside a list or a mapping, where the parameter takes one."""
