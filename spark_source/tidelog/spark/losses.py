"""What is said of records that cannot be read any more.

Owns the choice that `failOnDataLoss` makes: an error that ends the query, or a warning that names
what was lost and lets it go on. Nothing is ever left out in silence.
"""

import logging
from collections.abc import Iterable

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

LOGGER = logging.getLogger("tidelog.spark")


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Records that a query has planned, or would have read, and that are gone."""

    code: ErrorCode
    tried: str
    happened: str
    meaning: str = "records are lost"
    remedy: str = "begin with a new checkpoint"


def report(losses: Iterable[Loss], *, fail_on_data_loss: bool) -> None:
    """Raise the first loss, or warn of each."""
    for loss in losses:
        if fail_on_data_loss:
            raise TidelogError(
                loss.code,
                tried=loss.tried,
                happened=loss.happened,
                hint=f"{loss.meaning}: {loss.remedy}, or set failOnDataLoss to false to go on "
                "with what is there",
            )
        LOGGER.warning(
            "%s, and failOnDataLoss is false: tried to %s: %s",
            loss.meaning,
            loss.tried,
            loss.happened,
        )


def topic_gone(topic: str, topic_id: str, *, again_as: str | None) -> Loss:
    """The topic that a checkpoint or a plan speaks of was deleted."""
    again = "" if again_as is None else f"; {topic} was created again as {again_as}"
    return Loss(
        code=ErrorCode.UNKNOWN_TOPIC_ID,
        tried=f"go on reading {topic}",
        happened=f"the topic with id {topic_id} is gone{again}",
    )


def unnamed(place: str) -> Loss:
    """The checkpoint knows it, and the options of this run leave it out."""
    return Loss(
        code=ErrorCode.INVALID_CONFIGURATION,
        tried=f"go on reading {place}",
        happened="the checkpoint knows it, and the options do not name it any more",
        meaning="records are left out",
        remedy="name it again, or begin with a new checkpoint",
    )


def cut_below(place: str, offset: int, cut_at: int) -> Loss:
    """The log was truncated below what was read of it, or went back in time."""
    return Loss(
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"go on reading {place} from offset {offset}",
        happened=f"the log was truncated at offset {cut_at}: what was read from there on is not "
        "in it any more",
    )


def trimmed(place: str, first: int, kept: int) -> Loss:
    """Retention or a trim was faster than the reader."""
    return Loss(
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"read {place} from offset {first}",
        happened=f"it is kept from offset {kept} on",
    )


def beyond_end(place: str, offset: int, end: int, option: str) -> Loss:
    """An option names an offset that the log does not reach."""
    return Loss(
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"resolve {option} of {place}",
        happened=f"it says offset {offset}, and the log ends at {end}",
        meaning="the offset is not there",
        remedy=f"give one of at most {end}",
    )


def ends_below(place: str, first: int, end: int, log_end: int) -> Loss:
    """The log ends before what was planned of it."""
    return Loss(
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"read {place} from offset {first} up to {end}",
        happened=f"the log ends at {log_end} now: it was truncated since that was planned",
    )


def rewritten(place: str, first: int, end: int, epoch: int, planned_epoch: int) -> Loss:
    """Other records stand where the planned ones were."""
    return Loss(
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"read {place} from offset {first} up to {end}",
        happened=f"the records there are of leader epoch {epoch}, and those planned were of "
        f"{planned_epoch} at most: the log was truncated and written again",
    )


def hole(place: str, first: int, end: int) -> Loss:
    """The log holds nothing where it should, and nothing explains it."""
    return Loss(
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"read {place} from offset {first} up to {end}",
        happened="records are missing there, although the log begins below them and the topic is "
        "not compacted (one that was compacted earlier keeps such holes)",
    )
