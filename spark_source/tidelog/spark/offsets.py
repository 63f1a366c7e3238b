"""What Spark keeps in a checkpoint: how far each partition was read.

Pure. The JSON is a contract with every checkpoint that was ever written, and Spark compares
offsets as text: keys are always sorted.

Theory of operation. Spark calls `initialOffset` without keeping its answer, and again after a
restart, until the first batch is committed. A start that is resolved there ("latest", say) would be
another one after the restart, and records between the two would be lost. So the initial offset is a
constant, and the real start is the *base* of the first offset that is planned: an empty first
batch, which Spark writes to its log before it runs it.

    initialOffset   {"initial": true}
    batch 0  end    {"base": {...}, "topics": {...}}     base = topics: nothing to read
    batch 1  end    {"topics": {...}}                    from batch 0's topics on
"""

from typing import Any, Final

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

INITIAL: Final[dict[str, object]] = {"initial": True}


class TopicProgress(msgspec.Struct, frozen=True):
    """How far one topic was read."""

    topic_id: str
    """32 hexadecimal digits: a topic that was created again is another topic."""
    offsets: dict[int, int]
    """Partition → the first offset that was not read yet."""
    leader_epochs: dict[int, int]
    """Partition → leader epoch under which the offset was learnt."""


Progress = dict[str, TopicProgress]
"""Topic name → progress."""


class _TopicJson(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    offsets: dict[str, int]
    epochs: dict[str, int] = {}


class _OffsetJson(msgspec.Struct, frozen=True, kw_only=True):
    topics: dict[str, _TopicJson]
    base: dict[str, _TopicJson] | None = None


class SourceOffset(msgspec.Struct, frozen=True, kw_only=True):
    """One offset of the stream; `base` is there only in the first one that was planned."""

    progress: Progress
    base: Progress | None = None


def is_initial(offset: Any) -> bool:
    """Whether nothing was planned yet. What a checkpoint holds may be anything."""
    return isinstance(offset, dict) and offset.get("initial") is True


def to_json(offset: SourceOffset) -> dict[str, object]:
    """Only dictionaries, strings and whole numbers, with sorted keys."""
    written: dict[str, object] = {}
    if offset.base is not None:
        written["base"] = _progress_to_json(offset.base)
    written["topics"] = _progress_to_json(offset.progress)
    return written


def from_json(written: Any) -> SourceOffset:
    """Raises STORAGE_CORRUPT for what no release of this source has written."""
    try:
        read = msgspec.convert(written, _OffsetJson)
        return SourceOffset(
            progress=_progress_from_json(read.topics),
            base=None if read.base is None else _progress_from_json(read.base),
        )
    except (msgspec.ValidationError, ValueError) as error:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried="go on from a checkpoint",
            happened=f"its offset {written!r} was not written by this source: {error}",
            hint="use the checkpoint of this query, or begin with a new checkpoint location",
        ) from error


def _progress_to_json(progress: Progress) -> dict[str, object]:
    return {
        topic: {
            "epochs": _sorted_text(progress[topic].leader_epochs),
            "id": progress[topic].topic_id,
            "offsets": _sorted_text(progress[topic].offsets),
        }
        for topic in sorted(progress)
    }


def _progress_from_json(topics: dict[str, _TopicJson]) -> Progress:
    return {
        name: TopicProgress(
            topic_id=topic.id,
            offsets={int(number): offset for number, offset in topic.offsets.items()},
            leader_epochs={int(number): epoch for number, epoch in topic.epochs.items()},
        )
        for name, topic in sorted(topics.items())
    }


def _sorted_text(numbers: dict[int, int]) -> dict[str, int]:
    return {str(number): numbers[number] for number in sorted(numbers)}
