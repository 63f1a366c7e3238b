"""What becomes of a publish, by what is known of its sink. Pure.

Owns the rule of exactly once: a batch id is published once, by one write. It must never take
another write under the id of a published batch for a repetition: its records would be lost without
a word.

    no state, batch 0                publish
    no state, a later batch          SINK_STATE_EXPIRED, unless the caller begins anew
    above the last batch             publish; ids may skip, since a batch without records may not be
                                     published at all
    the last batch, the same write   it was published before
    the last batch, another write    INVALID_ARGUMENT: two writes share a sink id
    below the last batch             it was published before
"""

import enum

import msgspec

from tidelog.broker.staged.limits import SINK_ID_BYTES_MAX, WRITE_ID_BYTES_MAX
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.refusals import invalid


class SinkState(msgspec.Struct, frozen=True):
    """What the coordinator knows of a sink."""

    last_batch_id: int
    last_write_id: str
    """Which write of a query published it; a run that repeats the query says the same."""


class PublishVerdict(enum.Enum):
    """What to do."""

    PUBLISH = "publish"
    PUBLISHED_BEFORE = "published_before"


def judge_publish(
    sink_id: str,
    batch_id: int,
    write_id: str,
    known: SinkState | None,
    *,
    allow_new_sink_state: bool,
) -> PublishVerdict:
    """Before tokens are looked at: those of a batch that was published are ignored."""
    tried = f"publish batch {batch_id} of sink {sink_id!r}"
    if not 0 < len(sink_id.encode()) <= SINK_ID_BYTES_MAX:
        raise invalid(tried, f"a sink id has 1 to {SINK_ID_BYTES_MAX} bytes")
    if len(write_id.encode()) > WRITE_ID_BYTES_MAX:
        raise invalid(tried, f"a write id has at most {WRITE_ID_BYTES_MAX} bytes")
    if batch_id < 0:
        raise invalid(tried, "a batch id is not negative")
    if known is None:
        if batch_id == 0 or allow_new_sink_state:
            return PublishVerdict.PUBLISH
        raise TidelogError(
            ErrorCode.SINK_STATE_EXPIRED,
            tried=tried,
            happened="nothing is known of the sink, so the batch may have been published before",
        )
    if batch_id > known.last_batch_id:
        return PublishVerdict.PUBLISH
    if batch_id == known.last_batch_id and write_id != known.last_write_id:
        raise invalid(
            tried,
            f"write {known.last_write_id!r} has published this batch, this one is {write_id!r}",
            "Give each write of a query a sink of its own.",
        )
    return PublishVerdict.PUBLISHED_BEFORE
