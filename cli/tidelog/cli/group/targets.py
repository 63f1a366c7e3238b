"""Where `group reset-offsets` leads each partition. Pure: what was typed and what is there, in.

Owns the ways to say it, that an offset stays within what the partition holds, and the form of the
file that --export writes and --from-file reads.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.cli.partition.arguments import shown
from tidelog.cli.show.errors import BadInput

if TYPE_CHECKING:
    from tidelog.client import TopicPartition

COMMAND: Final = "tidelog group reset-offsets"
NOTHING: Final = -1
OFFSET_MAX: Final = 2**63 - 1
_DURATION: Final = re.compile(
    r"P?(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?", re.IGNORECASE | re.ASCII
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)
_LINE_HINT: Final = "a line is TOPIC,PARTITION,OFFSET, as --export writes it"


class Target(NamedTuple):
    """One way to say where."""

    kind: str
    """`earliest`, `latest`, `current`, `offset`, `time`, `shift` or `file`."""
    number: int = 0
    """An offset, a time in ms since 1970, or how far."""


class Bounds(NamedTuple):
    """What is known of a partition."""

    committed: int
    """-1: nothing."""
    start: int
    end: int
    wanted: int
    """What was found by time or stands in the file; -1: neither."""


class Step(NamedTuple):
    """One partition of the plan."""

    partition: "TopicPartition"
    committed: int
    """-1: nothing."""
    new: int
    start: int
    end: int
    note: str = ""

    @property
    def lag(self) -> int:
        """Once it is so."""
        return self.end - self.new


def duration_ms(text: str, option: str = f"{COMMAND} --by-duration") -> int:
    """`90s`, `15m`, `36h`, `7d`, `1d12h`, or as ISO 8601 has it: `PT15M`, `P7D`."""
    match = _DURATION.fullmatch(text.strip())
    parts = match.groups() if match else ()
    if not any(parts):
        raise BadInput(
            f"{option} {text}",
            f"`{text}` is not a duration",
            "for example 90s, 15m, 36h, 7d, or PT15M",
        )
    return sum(int(part or 0) * unit for part, unit in zip(parts, _UNITS_MS, strict=True))


def step(target: Target, partition: "TopicPartition", bounds: Bounds) -> Step:
    """Where the partition is to be read from."""
    start, end = bounds.start, bounds.end
    assert 0 <= start <= end, f"{partition} holds {start} to {end}"
    asked, note = _asked(target, partition, bounds)
    new = min(max(asked, start), end)
    if asked < start:
        note = f"{asked} is below the start"
    elif asked > end:
        note = f"{asked} is beyond the end"
    return Step(partition, bounds.committed, new, start, end, note)


def _asked(target: Target, partition: "TopicPartition", bounds: Bounds) -> tuple[int, str]:
    match target.kind:
        case "earliest":
            return bounds.start, ""
        case "latest":
            return bounds.end, ""
        case "offset":
            return target.number, ""
        case "time":
            late = "" if bounds.wanted >= 0 else "nothing is that late"
            return (bounds.end if late else bounds.wanted), late
        case "file":
            return bounds.wanted, ""
        case "current":
            is_new = bounds.committed == NOTHING
            return (bounds.end, "nothing was committed") if is_new else (bounds.committed, "")
    assert target.kind == "shift", target
    if bounds.committed == NOTHING:
        raise BadInput(
            f"{COMMAND} --shift-by {target.number}",
            f"the group has committed nothing for {shown(partition)}",
            "leave the partition out, or say where it is to begin: --to-earliest, --to-latest",
        )
    return bounds.committed + target.number, ""


def export(steps: Iterable[Step]) -> str:
    """The plan as --from-file reads it; Kafka's tool writes the same lines."""
    return "".join(
        f"{each.partition.topic},{each.partition.partition},{each.new}\n" for each in steps
    )


def read_file(text: str, name: str) -> "dict[TopicPartition, int]":
    """Offsets by partition; empty lines and those that begin with # say nothing."""
    from tidelog.client.types.records import TopicPartition

    found: dict[TopicPartition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip().strip('"') for field in line.split(",")]
        what = f"{COMMAND} --from-file {name}"
        if len(fields) != 3 or not all(_is_number(field) for field in fields[1:]):
            raise BadInput(what, f"line {number} is `{line}`", _LINE_HINT)
        partition = TopicPartition(fields[0], int(fields[1]))
        if partition in found:
            raise BadInput(what, f"line {number} names {shown(partition)} again", _LINE_HINT)
        found[partition] = int(fields[2])
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX


def as_rows(steps: Sequence[Step]) -> list[tuple[object, ...]]:
    """For a table: topic, partition, committed, new, change, lag, note."""
    return [
        (
            each.partition.topic,
            each.partition.partition,
            "-" if each.committed == NOTHING else each.committed,
            each.new,
            "-" if each.committed == NOTHING else f"{each.new - each.committed:+d}",
            each.lag,
            each.note,
        )
        for each in steps
    ]


def as_json(steps: Sequence[Step], *, is_set: bool) -> list[Mapping[str, object]]:
    """What a program reads; the names stay."""
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "committed_offset": each.committed,
            "new_offset": each.new,
            "log_start_offset": each.start,
            "high_watermark": each.end,
            "note": each.note,
            "is_set": is_set,
        }
        for each in steps
    ]
