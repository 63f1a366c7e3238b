"""What a plan of moves would do to each broker, whether it is sound, and in which bites it is done.

Pure. Owns the figures beside the controller's plan: replicas and leaders before and after, bytes
that are copied, racks. It must never let a plan through that puts two replicas of a partition on
one broker, gives a replica to a broker that cannot take it, or leaves a partition in fewer racks,
unless a broker that is being emptied has to give it away.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidelog.client.types.admin import BrokerStatus, PartitionReassignment
from tidelog.client.types.records import PartitionDescription, TopicDescription, TopicPartition

UNKNOWN = -1


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as it is."""

    replicas: tuple[int, ...]
    """In order of preference, without those that an unfinished move takes away."""
    leader: int
    size_bytes: int
    """-1: not known."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition that changes."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int

    @property
    def coming(self) -> tuple[int, ...]:
        """Brokers that copy it."""
        return tuple(each for each in self.after if each not in self.before)

    @property
    def copied_bytes(self) -> int:
        """-1: not known."""
        if not self.coming:
            return 0
        return UNKNOWN if self.size_bytes < 0 else self.size_bytes * len(self.coming)


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One broker before and after."""

    broker_id: int
    rack: str
    state: str
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    incoming_bytes: int
    """-1: not known."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with its figures."""

    moves: tuple[Move, ...]
    brokers: tuple[BrokerLoad, ...]
    copied_bytes: int
    """-1: of some partition the size is not known."""
    replicas_copied: int


def standings(
    topics: Iterable[TopicDescription], moving: Iterable[PartitionReassignment] = ()
) -> dict[TopicPartition, Standing]:
    """Of every partition."""
    leaving = {each.partition: each.removing_replicas for each in moving}
    return {
        TopicPartition(topic.name, part.partition): _standing(
            part, leaving.get(TopicPartition(topic.name, part.partition), ())
        )
        for topic in topics
        for part in topic.partitions
    }


def _standing(part: PartitionDescription, leaving: Sequence[int]) -> Standing:
    return Standing(
        replicas=tuple(each for each in part.replicas if each not in leaving),
        leader=part.leader,
        size_bytes=part.size_bytes,
    )


def forecast(
    standing: Mapping[TopicPartition, Standing],
    brokers: Sequence[BrokerStatus],
    planned: Mapping[TopicPartition, Sequence[int]],
) -> Forecast:
    """What the plan would do. Leaders after it are the preferred ones of what moves; where nothing
    moves they stay.
    """
    moves = tuple(
        Move(
            partition=place,
            before=standing[place].replicas,
            after=tuple(replicas),
            size_bytes=standing[place].size_bytes,
        )
        for place, replicas in planned.items()
        if place in standing and tuple(replicas) != standing[place].replicas
    )
    loads = tuple(_load(each, standing, moves) for each in brokers)
    copied = [each.copied_bytes for each in moves]
    return Forecast(
        moves=moves,
        brokers=loads,
        copied_bytes=UNKNOWN if UNKNOWN in copied else sum(copied),
        replicas_copied=sum(len(each.coming) for each in moves),
    )


def _load(
    broker: BrokerStatus, standing: Mapping[TopicPartition, Standing], moves: Sequence[Move]
) -> BrokerLoad:
    number = broker.broker_id
    held = sum(number in each.replicas for each in standing.values())
    led = sum(each.leader == number for each in standing.values())
    coming = [each for each in moves if number in each.coming]
    going = sum(number in each.before and number not in each.after for each in moves)
    gains = sum(each.after[0] == number for each in moves)
    loses = sum(standing[each.partition].leader == number for each in moves)
    is_known = all(each.size_bytes >= 0 for each in coming)
    return BrokerLoad(
        broker_id=number,
        rack=broker.rack,
        state=_state(broker),
        replicas_before=held,
        replicas_after=held + len(coming) - going,
        leaders_before=led,
        leaders_after=led + gains - loses,
        incoming_bytes=sum(each.size_bytes for each in coming) if is_known else UNKNOWN,
    )


def _state(broker: BrokerStatus) -> str:
    if broker.is_fenced:
        return "fenced"
    if broker.is_draining:
        return "draining"
    return "stopping" if broker.is_shutting_down else "live"


def problems(found: Forecast) -> list[str]:
    """Why the plan must not be carried out; empty: it is sound."""
    able = {each.broker_id for each in found.brokers if each.state == "live"}
    leaving = {each.broker_id for each in found.brokers if each.state == "draining"}
    racks = {each.broker_id: each.rack for each in found.brokers}
    said = []
    for each in found.moves:
        name = f"{each.partition.topic}:{each.partition.partition}"
        if len(set(each.after)) < len(each.after):
            said.append(f"{name} would have two replicas on one broker")
        if len(each.after) < len(each.before):
            said.append(f"{name} would have fewer replicas than now")
        wrong = [number for number in each.coming if number not in able]
        if wrong:
            said.append(f"{name} would go to broker {wrong[0]}, which takes none")
        has_to_go = leaving.intersection(each.before)
        if not has_to_go and rack_count(each.after, racks) < rack_count(each.before, racks):
            said.append(f"{name} would stand in fewer racks than now")
    return said


def rack_count(replicas: Sequence[int], racks: Mapping[int, str]) -> int:
    """In how many racks they stand; brokers without a rack count as one rack together."""
    return len({racks.get(each, "") for each in replicas})


def next_moves(
    waiting: Sequence[Move], moving_count: int, *, at_once: int
) -> tuple[list[Move], list[Move]]:
    """What begins now, and what goes on waiting; a new order of replicas copies nothing."""
    assert at_once >= 1, "something may move"
    begins: list[Move] = []
    stays: list[Move] = []
    free = at_once - moving_count
    for each in waiting:
        if not each.coming:
            begins.append(each)
        elif free > 0:
            begins.append(each)
            free -= 1
        else:
            stays.append(each)
    return begins, stays
