"""Calls about many things, in as many requests as the contract's bounds take.

Pure. Owns the split: a request is counted as a broker counts it, and halved until it is taken. It
must never change the order of what it splits, nor leave anything out.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from tidelog.client.types.records import NewTopic
from tidelog.ports.bounds import count_message
from tidelog.wire.errors import TidelogError

T = TypeVar("T")
PARTITIONS_A_REQUEST: Final = 10_000
"""Created by one request; their replicas are counted with it."""


def portions(
    method: str,
    items: Sequence[T],
    encode: Callable[[Sequence[T]], bytes],
    is_taken: Callable[[Sequence[T]], bool] = lambda items: True,
) -> Iterator[tuple[Sequence[T], bytes]]:
    """Each with its request; also a single one of no items. What is too large by itself is sent as
    it is: the broker says why it is refused."""
    request = encode(items)
    if len(items) <= 1 or (is_taken(items) and _fits(method, request)):
        yield items, request
        return
    middle = len(items) // 2
    yield from portions(method, items[:middle], encode, is_taken)
    yield from portions(method, items[middle:], encode, is_taken)


def few_partitions(topics: Sequence[NewTopic]) -> bool:
    """Whether one request creates so many."""
    return sum(max(1, each.num_partitions) for each in topics) <= PARTITIONS_A_REQUEST


def _fits(method: str, request: bytes) -> bool:
    try:
        count_message(method, request)
    except TidelogError:
        return False
    return True
