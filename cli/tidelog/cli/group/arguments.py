"""Groups and their partitions as they are typed, and what is said of a group that is not there."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.parser import Parser
from tidelog.cli.frame.patience import answer_timeout_ms
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


def unknown_groups(admin: "AdminClient", names: Iterable[str]) -> "dict[str, TidelogError]":
    """Those that are surely not there, each with the one that was probably meant.

    Asked before anything else: a coordinator that is not there yet would be waited for.
    """
    from tidelog.wire.errors import ErrorCode, TidelogError

    found = admin.try_list_groups(timeout_ms=answer_timeout_ms())
    if found.missing_coordinators:
        return {}
    known = {each.group_id for each in found.groups}
    unknown: dict[str, TidelogError] = {}
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known, known_max=_NAMES_COMPARED_MAX)
            unknown[name] = TidelogError(
                ErrorCode.GROUP_NOT_FOUND,
                tried=f"find group {name}",
                happened=f"there is no group `{name}`",
                hint=f"did you mean `{nearest}`?" if nearest else "",
            )
    return unknown


def check_known(admin: "AdminClient", *names: str) -> None:
    """The first that is not there is an error."""
    for error in unknown_groups(admin, names).values():
        raise error
