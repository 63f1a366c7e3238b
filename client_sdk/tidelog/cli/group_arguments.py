"""Groups and their partitions as they are typed, and what is said of a group that is not there."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.cli.parser import Parser
from tidelog.wire.nearest import nearest_name

if TYPE_CHECKING:
    from tidelog.client import AdminClient, TopicPartition
    from tidelog.wire.errors import TidelogError

_PARTITION_MAX: Final = 2_147_483_646
_NAMES_COMPARED_MAX: Final = 10_000
DELETED: Final = "(deleted topic)"

Place = tuple[str, int | None]
"""A topic, and one of its partitions or all."""


def place(text: str) -> Place:
    """`TOPIC` or `TOPIC:PARTITION`; a topic's name has no colon."""
    topic, colon, number = text.partition(":")
    if not topic:
        raise argparse.ArgumentTypeError(f"`{text}` is not TOPIC or TOPIC:PARTITION")
    if not colon:
        return topic, None
    if not (number.isascii() and number.isdigit() and int(number) <= _PARTITION_MAX):
        raise argparse.ArgumentTypeError(f"`{text}`: `{number}` is not the number of a partition")
    return topic, int(number)


def add_places(parser: Parser, *, of: str) -> None:
    """TOPIC[:PARTITION], repeated."""
    parser.add_argument(
        "places",
        nargs="*",
        type=place,
        metavar="TOPIC[:PARTITION]",
        help=f"which partitions (default: {of})",
    )


def is_meant(partition: "TopicPartition", places: Iterable[Place]) -> bool:
    """Whether one of the places covers it."""
    return any(
        partition.topic == topic and number in (None, partition.partition)
        for topic, number in places
    )


def with_nearest(admin: "AdminClient", error: "TidelogError", group: str) -> "TidelogError":
    """If it is about a group that is not there, the error with the one that was probably meant."""
    from tidelog.wire.errors import ErrorCode, TidelogError

    if error.code is not ErrorCode.GROUP_NOT_FOUND:
        return error
    try:
        known = [each.group_id for each in admin.try_list_groups().groups]
    except TidelogError:
        return error
    found = nearest_name(group, known, known_max=_NAMES_COMPARED_MAX)
    if found is None:
        return error
    return TidelogError(
        error.code, tried=error.tried, happened=error.happened, hint=f"did you mean `{found}`?"
    )
