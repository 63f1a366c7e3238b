"""Which producers a partition's leader meets for the first time, and how many of one caller. Pure.

Owns two judgements before a batch of a producer that the log does not know is queued. An id that
the cluster has not handed out, as far as this broker knows, is refused: whoever makes ids up could
push the state of all others out of the log, and what they send again would be stored twice. The
refusal may be tried again, since the metadata may lag behind the broker that handed the id out.
And one caller brings in so many new producers to a partition in a while: by its principal, else by
its machine, whatever connection it comes over. The log forgets the producer that wrote longest ago
when it holds too many (`log.producer_state`), which it must judge by what is stored alone; what a
single caller can make it forget is bounded here: nothing that another may still send again.

A new leader begins to count anew; callers that share a principal or a machine share its count.
"""

from typing import Final

import msgspec

from tidelog.broker.log.producer_state import PRODUCERS_MAX
from tidelog.ports.request_context import RequestContext
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

NEW_PRODUCERS_MAX: Final = PRODUCERS_MAX // 4
"""Of one caller at one partition in one window: two windows side by side leave half of the log's
producers as they were."""
WINDOW_MS: Final = 600_000
"""Longer than anybody sends a batch again: five times the SDK's delivery_timeout_ms."""
COUNTS_MAX: Final = 20_000
"""Callers at partitions that are remembered."""


class _Count(msgspec.Struct):
    begun_ms: int
    producers: int = 0


class ProducerAdmission:
    """Of one broker."""

    def __init__(self) -> None:
        self._counts: dict[tuple[PartitionKey, str], _Count] = {}
        """The one that began last comes last."""

    def __len__(self) -> int:
        """How many callers at partitions are remembered."""
        return len(self._counts)

    def admit(
        self,
        context: RequestContext,
        key: PartitionKey,
        header: BatchHeader,
        *,
        next_producer_id: int,
        now_ms: int,
        tried: str,
    ) -> bool:
        """Returns whether the producer was counted: for a batch of one that the partition's log
        does not know."""
        if header.producer_id >= next_producer_id:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=tried,
                happened=f"producer id {header.producer_id} is not known to be handed out: this "
                f"broker knows of those below {next_producer_id}",
                hint="Send it again if AllocateProducerId gave the id; an id cannot be made up.",
            )
        if header.base_sequence > 0:
            return False  # Not its first batch: it is refused for that, and brings nothing in.
        self._count(key, context.caller, now_ms, tried)
        return True

    def give_back(self, context: RequestContext, key: PartitionKey) -> None:
        """A producer that was counted was refused, so it was not brought in. First batches of
        transactions are, again and again, while a coordinator is away."""
        known = self._counts.get((key, context.caller))
        if known is not None and known.producers:
            known.producers -= 1

    def _count(self, key: PartitionKey, caller: str, now_ms: int, tried: str) -> None:
        place = (key, caller)
        known = self._counts.get(place)
        if known is None or not 0 <= now_ms - known.begun_ms < WINDOW_MS:
            self._counts.pop(place, None)
            known = self._counts[place] = _Count(now_ms)
            if len(self._counts) > COUNTS_MAX:
                del self._counts[next(iter(self._counts))]
        if known.producers >= NEW_PRODUCERS_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=tried,
                happened=f"{caller} has brought {known.producers} new producers to the partition "
                f"within {WINDOW_MS // 60_000} minutes, at most {NEW_PRODUCERS_MAX} may be",
                hint="Use a producer for more than one batch, or spread producers over partitions.",
            )
        known.producers += 1
