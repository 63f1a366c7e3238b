"""Few moves that even out replicas and leaders, and those that empty brokers.

Pure; proposes nothing. Most useful first: brokers that are to hold nothing, then replicas from the
fullest broker to the emptiest, then the order of replicas, which moves leaders and copies nothing.
Of a broker's replicas those of the topic go first that it holds the most of, so that a new broker
does not get the whole of one topic. A move never puts two replicas of a partition on one broker,
nor into fewer racks, nor onto fewer machines than before. Planned again after it was carried out,
nothing is left to do.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from tidelog.metadata.eligibility import may_take_replicas
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.controller.partitions.reassignment import Reassignment
from tidelog.metadata_quorum.controller.placement.load import candidate_of
from tidelog.metadata_quorum.controller.placement.placement import Candidate
from tidelog.wire.ids import BrokerId, PartitionId, TopicId

MOVES_DEFAULT: Final = 1_000
MOVES_MAX: Final = 10_000
Key = tuple[TopicId, PartitionId]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Moves, for `alter_reassignments` as they are."""

    reassignments: tuple[Reassignment, ...]
    warnings: tuple[str, ...] = ()


class _Board:
    """Replicas of all partitions that may be moved, changed while the plan is made."""

    def __init__(
        self, image: Image, drained: Collection[BrokerId], topic_ids: Collection[TopicId]
    ) -> None:
        self.replicas: dict[Key, list[BrokerId]] = {}
        self.held: dict[BrokerId, dict[TopicId, dict[Key, None]]] = {}
        self.counts: dict[BrokerId, int] = {}
        self.leaders: dict[BrokerId, int] = {}
        self.candidates: dict[BrokerId, Candidate] = {
            broker.broker_id: candidate_of(image, broker)
            for broker in image.brokers.values()
            if may_take_replicas(broker) and broker.broker_id not in drained
        }
        self.racks = {broker.broker_id: broker.rack for broker in image.brokers.values()}
        # No host name contains a space: one that is not known is a machine of its own.
        self.hosts = {
            broker.broker_id: broker.host_name or f"broker {broker.broker_id}"
            for broker in image.brokers.values()
        }
        self.changed: dict[Key, None] = {}
        self.stuck = 0
        for broker_id in self.candidates:
            self.held[broker_id] = {}
            self.counts[broker_id] = 0
            self.leaders[broker_id] = 0
        for topic in image.topics.values():
            if topic_ids and topic.topic_id not in topic_ids:
                continue
            for partition in topic.partitions:
                if not partition.is_reassigning:
                    self._add((topic.topic_id, partition.partition), partition.replicas)

    def _add(self, key: Key, replicas: Sequence[BrokerId]) -> None:
        self.replicas[key] = list(replicas)
        for replica in replicas:
            self._hold(replica, key)
        self.leaders[replicas[0]] = self.leaders.get(replicas[0], 0) + 1

    def _hold(self, broker_id: BrokerId, key: Key) -> None:
        self.held.setdefault(broker_id, {}).setdefault(key[0], {})[key] = None
        self.counts[broker_id] = self.counts.get(broker_id, 0) + 1

    def of_topic(self, broker_id: BrokerId, topic_id: TopicId) -> int:
        """How many replicas of one topic the broker holds."""
        return len(self.held[broker_id].get(topic_id, ()))

    def target(self, key: Key, source: BrokerId) -> BrokerId | None:
        """The emptiest broker that can take the replica over, in another rack and machine than the
        other replicas as far as that goes.
        """
        replicas = self.replicas[key]
        staying = [each for each in replicas if each != source]
        racks = [self.racks.get(each, "") for each in staying]
        hosts = [self.hosts.get(each, "") for each in staying]
        able = [each for each in self.candidates if each not in replicas]
        if not able:
            return None
        return min(
            able,
            key=lambda each: (
                racks.count(self.racks[each]),
                hosts.count(self.hosts[each]),
                self.of_topic(each, key[0]),
                self.counts[each],
                each,
            ),
        )

    def keeps_spread(self, key: Key, source: BrokerId, target: BrokerId) -> bool:
        """Whether the partition stands in as many racks and on as many machines after the move."""
        before = self.replicas[key]
        after = [target if each == source else each for each in before]
        return all(
            len({place.get(each, "") for each in after})
            >= len({place.get(each, "") for each in before})
            for place in (self.racks, self.hosts)
        )

    def movable(self, source: BrokerId, target: BrokerId) -> Key | None:
        """A replica that may go from one to the other, of the topic where that evens out most."""
        topics = sorted(
            (topic_id for topic_id, keys in self.held[source].items() if keys),
            key=lambda each: self.of_topic(target, each) - self.of_topic(source, each),
        )
        for topic_id in topics:
            for key in self.held[source][topic_id]:
                if target not in self.replicas[key] and self.keeps_spread(key, source, target):
                    return key
        return None

    def move(self, key: Key, source: BrokerId, target: BrokerId) -> None:
        """The target takes the source's place."""
        replicas = self.replicas[key]
        assert target not in replicas, "a broker holds one replica of a partition"
        place = replicas.index(source)
        replicas[place] = target
        del self.held[source][key[0]][key]
        self.counts[source] -= 1
        self._hold(target, key)
        if place == 0:
            self.leaders[source] -= 1
            self.leaders[target] += 1
        self.changed[key] = None

    def lead(self, key: Key, leader: BrokerId) -> None:
        """The replica becomes the preferred one."""
        replicas = self.replicas[key]
        self.leaders[replicas[0]] -= 1
        self.leaders[leader] += 1
        replicas.remove(leader)
        replicas.insert(0, leader)
        self.changed[key] = None


def plan_reassignments(
    image: Image,
    *,
    drained: Collection[BrokerId] = (),
    topic_ids: Collection[TopicId] = (),
    moves_max: int = 0,
) -> Plan:
    """At most `moves_max` partitions are touched; 0: 1,000."""
    most = min(moves_max or MOVES_DEFAULT, MOVES_MAX)
    gone = [each.broker_id for each in image.brokers.values() if each.is_draining]
    emptied = dict.fromkeys((*drained, *gone))
    board = _Board(image, emptied, topic_ids)
    if not board.candidates:
        return Plan(reassignments=(), warnings=("No broker can take replicas.",))
    for broker_id in sorted(emptied):
        _empty(board, broker_id, most)
    _even_replicas(board, most)
    _even_leaders(board, most)
    warnings = []
    if board.stuck:
        warnings.append(
            f"{board.stuck} replicas stay where they are: every other broker holds one of the same "
            "partition already."
        )
    if len(board.changed) >= most:
        warnings.append(f"The plan ends after {most} partitions; more could be moved.")
    return Plan(
        reassignments=tuple(
            Reassignment(topic_id=key[0], partition=key[1], replicas=tuple(board.replicas[key]))
            for key in board.changed
        ),
        warnings=tuple(warnings),
    )


def drain_round(image: Image, *, limit: int) -> Plan:
    """The next moves off brokers that are being emptied, at most `limit`."""
    draining = sorted(each.broker_id for each in image.brokers.values() if each.is_draining)
    board = _Board(image, draining, ())
    if board.candidates:
        for broker_id in draining:
            _empty(board, broker_id, limit)
    return Plan(
        reassignments=tuple(
            Reassignment(topic_id=key[0], partition=key[1], replicas=tuple(board.replicas[key]))
            for key in board.changed
        )
    )


def _empty(board: _Board, broker_id: BrokerId, most: int) -> None:
    held = board.held.get(broker_id, {})
    for key in [key for keys in held.values() for key in keys]:
        if len(board.changed) >= most:
            return
        target = board.target(key, broker_id)
        if target is None:
            board.stuck += 1
        else:
            board.move(key, broker_id, target)


def _even_replicas(board: _Board, most: int) -> None:
    """From the fullest to the emptiest until no move makes it more even."""
    fixed: dict[BrokerId, None] = {}
    while len(board.changed) < most:
        movable = [each for each in board.candidates if each not in fixed]
        if not movable:
            return
        source = max(movable, key=lambda each: (board.counts[each], -each))
        if _move_one_off(board, source):
            # What stood in the way of another broker may be gone.
            fixed.clear()
        else:
            fixed[source] = None


def _move_one_off(board: _Board, source: BrokerId) -> bool:
    targets = sorted(board.candidates, key=lambda each: (board.counts[each], each))
    for target in targets:
        if board.counts[source] - board.counts[target] < 2:
            return False
        key = board.movable(source, target)
        if key is not None:
            board.move(key, source, target)
            return True
    return False


def _even_leaders(board: _Board, most: int) -> None:
    """The preferred replica of a partition changes where another one leads two fewer, again and
    again: one change may make way for the next, and each makes it more even.
    """
    has_changed = True
    while has_changed:
        has_changed = False
        for key, replicas in board.replicas.items():
            if len(board.changed) >= most and key not in board.changed:
                continue
            able = [each for each in replicas if each in board.candidates]
            if not able:
                continue
            emptiest = min(able, key=lambda each: (board.leaders[each], each))
            if board.leaders[replicas[0]] - board.leaders[emptiest] >= 2:
                board.lead(key, emptiest)
                has_changed = True
