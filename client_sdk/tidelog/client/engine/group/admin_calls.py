"""What both admin clients decide about groups: what is asked again, and where a reset leads. Pure.

A broker asks the coordinators for its caller. What one of them could not answer at the moment is
asked again until the caller's time is over; what was answered stands.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar, cast

from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.tries import Doubt, saying, told
from tidelog.client.errors import NoAnswerError, PeerError
from tidelog.client.types.groups import GroupList, MemberToRemove, OffsetTimestamp
from tidelog.client.types.records import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

T = TypeVar("T")
GROUPS_A_REQUEST: Final = 1_000
_DID_NOTHING: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNAVAILABLE,
    ErrorCode.NOT_CONTROLLER,
)
"""What a broker answers that could not do the call and changed nothing."""

Place = tuple[bytes, int]
"""Topic id and partition."""
GroupSpecs = str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None]
ResetTo = str | int
"""`earliest`, `latest`, `max_timestamp`, an OffsetTimestamp, or an offset."""


class Outcomes(Generic[T]):
    """What became of each name that was asked for."""

    def __init__(self, names: Iterable[str], *, may_repeat: bool = True) -> None:
        self._names = tuple(dict.fromkeys(names))
        self.may_repeat = may_repeat
        """Asked a second time, the call would not deny what it did the first time."""
        self._found: dict[str, T | TidelogError] = {}
        self._doubts: dict[str, Doubt] = {}
        """Of those that a broker has answered: tries before may have been done."""
        self._given_up: set[str] = set()
        """Nobody answered for as long as there was time."""

    def missing(self) -> list[str]:
        """What is to be asked next, within one request."""
        open_names = [name for name in self._names if self._is_open(name)]
        return open_names[:GROUPS_A_REQUEST]

    def _is_open(self, name: str) -> bool:
        if name not in self._found:
            return True
        found = self._found[name]
        if not isinstance(found, PeerError) or not found.retriable or name in self._given_up:
            return False
        return self.may_repeat or found.code in _DID_NOTHING

    def take(
        self,
        asked: Sequence[str],
        answers: Sequence[T | TidelogError],
        doubt: Doubt | None = None,
    ) -> bool:
        """One answer for each; False: one of them should be asked again, after a while."""
        assert len(asked) == len(answers), f"{len(answers)} answers to {len(asked)} names"
        if doubt is not None:
            self._doubts.update(dict.fromkeys(asked, doubt))
        return self._keep(asked, answers)

    def _keep(self, asked: Sequence[str], outcomes: Sequence[T | TidelogError]) -> bool:
        self._found.update(zip(asked, outcomes, strict=True))
        return not any(self._is_open(name) for name in asked)

    def fail(self, asked: Sequence[str], error: TidelogError, *, reads: bool) -> bool:
        """The call itself failed. `reads`: silence leaves what a broker answered before."""
        for name in asked:
            # Where it changes something, the error says by itself what may have been done.
            self._doubts.pop(name, None)
        if not reads or not isinstance(error, NoAnswerError):
            return self._keep(asked, [error] * len(asked))
        self._given_up.update(asked)
        return self._keep(asked, [told(self._refusal(name), error) for name in asked])

    def _refusal(self, name: str) -> TidelogError | None:
        found = self._found.get(name)
        return found if isinstance(found, TidelogError) else None

    def all(self) -> dict[str, T | TidelogError]:
        """In the order of the names."""
        return {name: self._ended(name) for name in self._names if name in self._found}

    def _ended(self, name: str) -> T | TidelogError:
        found, doubt = self._found[name], self._doubts.get(name)
        if doubt is None or not isinstance(found, TidelogError):
            return found
        ended = doubt.told(found)
        if ended is found and found.code is ErrorCode.DEADLINE_EXCEEDED:
            # The broker that was asked has had no answer of the coordinator.
            happened = f"{found.happened}; it may have been done"
            return saying(found, tried=found.tried, happened=happened)
        return ended


def one(outcomes: Outcomes[T]) -> T:
    """The answer of a single group; its error is raised."""
    (answer,) = outcomes.all().values()
    if isinstance(answer, TidelogError):
        raise answer
    return answer


def group_specs(specs: GroupSpecs) -> dict[str, list[TopicPartition] | None]:
    """Which partitions of which groups; None: all that the group has committed."""
    if isinstance(specs, str):
        return {specs: None}
    if not isinstance(specs, Mapping):
        return dict.fromkeys(specs)
    named = cast("Mapping[str, Iterable[TopicPartition] | None]", specs)
    return {
        name: None if wanted is None else [TopicPartition(*each) for each in wanted]
        for name, wanted in named.items()
    }


def chosen_members(members: Iterable[MemberToRemove] | None) -> list[MemberToRemove]:
    """Members by id or name; None: all."""
    if members is None:
        return []
    chosen = list(members)
    for each in chosen:
        if not each.member_id and not each.group_instance_id:
            raise _no_member("one of them has neither member_id nor group_instance_id")
    if not chosen:
        raise _no_member("the list is empty; None stands for all of them")
    return chosen


def _no_member(happened: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_ARGUMENT, tried="remove group members", happened=happened)


def looked_up(
    wanted: Mapping[TopicPartition, ResetTo],
) -> dict[TopicPartition, str | int]:
    """Those whose place the partition's leader has to tell."""
    return {
        name: int(to) if isinstance(to, OffsetTimestamp) else to
        for name, to in wanted.items()
        if isinstance(to, str | OffsetTimestamp)
    }


def reset_offsets(
    wanted: Mapping[TopicPartition, ResetTo],
    starts: Mapping[TopicPartition, OffsetAndTimestamp | None],
    ends: Mapping[TopicPartition, OffsetAndTimestamp | None],
    found: Mapping[TopicPartition, OffsetAndTimestamp | None],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Where each partition is to be read from: within what it holds, else at its nearer end.

    A time after the last record is the end.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for name, to in wanted.items():
        start, end = starts[name], ends[name]
        assert start is not None, f"{name} has a beginning"
        assert end is not None, f"{name} has an end"
        if isinstance(to, str | OffsetTimestamp):
            at = found[name]
            offset = end.offset if at is None else at.offset
        else:
            offset = to
        offsets[name] = OffsetAndMetadata(min(max(offset, start.offset), end.offset))
    return offsets


def offset_specs(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """A plain number is an offset with nothing noted beside it."""
    return {
        TopicPartition(*name): OffsetAndMetadata(to) if isinstance(to, int) else to
        for name, to in offsets.items()
    }


def named_offsets(
    offsets: Mapping[Place, OffsetAndMetadata],
    names: Mapping[bytes, str],
    wanted: Sequence[TopicPartition] | None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """By name, in order; without the partitions of topics that are gone."""
    found = {
        TopicPartition(names[topic_id], partition): offset
        for (topic_id, partition), offset in offsets.items()
        if topic_id in names
    }
    chosen = sorted(found) if wanted is None else [name for name in wanted if name in found]
    return {name: found[name] for name in chosen}


def places(
    metadata: MetadataCache, names: Iterable[TopicPartition], *, tried: str
) -> dict[TopicPartition, Place]:
    """Topic id and number; of topics that are known. A wrong number is the caller's mistake."""
    found: dict[TopicPartition, Place] = {}
    for name in names:
        topic = metadata.topics[name.topic]
        if not 0 <= name.partition < len(topic.partitions):
            error = metadata.unknown_partition(name.topic, name.partition, tried=tried)
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT, tried=tried, happened=error.happened, hint=error.hint
            )
        found[name] = topic.topic_id, name.partition
    return found


def of_partitions(
    tried: str, names: Iterable[TopicPartition], results: Sequence[T | TidelogError]
) -> list[T | TidelogError]:
    """One result for each; an error says which partition it is about."""
    return [
        TidelogError(
            each.code,
            tried=f"{tried}, {name.topic}-{name.partition}",
            happened=each.happened,
            hint=each.hint,
        )
        if isinstance(each, TidelogError)
        else each
        for name, each in zip(names, results, strict=True)
    ]


def check_complete(found: GroupList) -> None:
    """A list without somebody's groups would look as if they were not there."""
    if found.missing_coordinators:
        raise TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried="list groups",
            happened=f"{found.missing_coordinators} coordinators could not be asked; the others "
            f"have {len(found.groups)} groups",
            hint="try again, or take what there is with try_list_groups",
        )
