"""Puts what stopped a batch into the words of whoever sent it. Pure. Stop 9 of a record's walk.

The owner of a directory knows a partition by its topic's id and its own part of the story. A client
knows the topic's name, and wants to know whether it may send the batch again: an outcome that is
unknown is harmless to one whose batch has a producer id, since it is stored once however often it
is sent; of one without it, no answer may claim that. Owns these two. It must never change a code.
"""

from typing import Final

from tidelog.broker.shared.errors import reworded
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

UNKNOWN_OUTCOMES: Final = frozenset({ErrorCode.INDETERMINATE, ErrorCode.DEADLINE_EXCEEDED})
AGAIN: Final = (
    "Send the batch again under the same sequence until it is answered: it is stored once."
)
LOOK_FIRST: Final = (
    "Read the partition before sending the records again: they may be stored. Batches with a "
    "producer id may be sent again."
)


def for_sender(error: TidelogError, key: PartitionKey, name: str) -> TidelogError:
    """With the partition's name, where the error says nothing or says its topic's id."""
    hexadecimal = str(key)
    if name in error.tried:
        return error
    tried = f"produce to {name}"
    if hexadecimal not in error.tried:
        # What the owner or the reader of a batch was about says where in it something is wrong.
        tried = f"{tried}: {error.tried}"
    return reworded(error, tried=tried, happened=error.happened.replace(hexadecimal, name))


def with_consequence(error: TidelogError, *, has_identity: bool) -> TidelogError:
    """Where nobody knows whether the batch is stored: what that means for its sender."""
    if error.code not in UNKNOWN_OUTCOMES:
        return error
    hint = AGAIN if has_identity else LOOK_FIRST
    return reworded(error, hint=hint, retriable=has_identity)
