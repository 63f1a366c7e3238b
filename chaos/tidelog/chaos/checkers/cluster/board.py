"""What is known of a simulated cluster's partitions, whoever says so: the invariants' memory.

Fed by whoever watches the nodes: positions of replicas after a step, images of the metadata,
deaths. Owns what was committed, at which epoch, and what excuses a loss. It must never ask a node
for its own opinion of an invariant.
"""

from collections.abc import Callable

import msgspec

from tidelog.chaos.checkers.history.history import Excuse, Loss
from tidelog.metadata.eligibility import in_sync_min, is_flush_sync
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata.settings.catalogue import RETENTION_BYTES, RETENTION_MS, TIMESTAMP_TYPE
from tidelog.wire.ids import PartitionKey

VIOLATIONS_MAX = 12
NO_EPOCH = -2
LATELY_NS = 5_000_000_000
"""An answer may have been on its way for so long."""
SOON_NS = 100_000_000
"""A process that does not stand still goes by what it knows of metadata sooner."""


ANY_START = 2**63 - 1
"""Where a trim lets a log begin that leaves nothing of what is committed."""


class Position(msgspec.Struct, kw_only=True):
    """Where one replica stood when it was looked at last."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    flushed_offset: int = 0
    cut_count: int = 0
    high_watermark: int = 0
    leader_epoch: int = -1
    is_led: bool = False
    led_epoch: int = NO_EPOCH
    """The newest at which it was seen to lead."""


class OwnTrim(msgspec.Struct, kw_only=True):
    """A copy that its node has trimmed by its own word, as an earlier version did."""

    start: int
    partition_epoch: int = -1
    """The newest that anybody had seen when it was trimmed."""
    has_left: bool = False
    """Metadata counted on it no more since, or never did: it comes into sync whole, unless its
    leader lacks the same head."""


class PartitionBoard:
    """One partition of a topic that is there."""

    def __init__(self, key: PartitionKey, topic: TopicImage, partition: PartitionImage) -> None:
        self.key = key
        self.name = f"{topic.name}@{key.topic_id.hex()[:6]}-{key.partition}"
        """As in a history."""
        self._in_sync_min = in_sync_min(topic)
        self.is_flush_sync = is_flush_sync(topic)
        self.is_append_time = topic.configuration.get(TIMESTAMP_TYPE) == "LogAppendTime"
        self.is_kept_by_time_alone = topic.configuration.get(RETENTION_BYTES, "-1") == "-1"
        self.retention_ms = int(topic.configuration.get(RETENTION_MS, "-1"))
        self.image = partition
        """The newest that anybody has seen."""
        self.committed = 0
        """The highest watermark of any leader."""
        self.positions: dict[int, Position] = {}
        self.leaders: dict[int, int] = {int(partition.leader_epoch): int(partition.leader_id)}
        """By leader epoch, who leads in it."""
        self.decided_start = 0
        """The highest log start that a leader has let its own log have."""
        self.was_moved = False
        """Its replicas have been others."""
        self.own_trims: dict[int, OwnTrim] = {}
        """By node, copies that no leader has trimmed."""
        self.headless: dict[int, None] = {}
        """Nodes whose copy has ever begun where no leader had let it begin: such a copy may be
        reported as damaged when one with the head leads."""
        self.untimed_epochs: dict[int, None] = {}
        """Led by a node whose clock was behind, and that had never kept a time to know it by."""
        self.unreadable_below = 0
        """Such a copy has led, or was elected: what is below its start was not to be read then."""
        self.epochs: dict[int, int] = {}
        """By leader epoch, what was committed when it was first seen in an image."""
        self.lacking: dict[int, None] = {}
        """Nodes whose machines have crashed before all that was committed was flushed there."""
        self.damaged: dict[int, None] = {}
        """Nodes of which the copy has rotted: what they say of it is not judged any more."""
        self.gone_ns: dict[int, int] = {}
        """By node, when a file of its copy was taken away: its node does not notice at once, and
        counts on it meanwhile."""
        self.old_copies: dict[int, int] = {}
        """Nodes whose directory went back in time, and the epoch that their broker had: until the
        replica has been seen with all that is committed."""
        self.is_left_alone = False
        """One replica stays of several, and nobody has looked yet at what it has flushed."""
        self.alone_until_ns = -LATELY_NS
        """When others came to an only replica last."""
        self.skipped_ns: int | None = None
        """When an image was shown last behind others that nobody saw: a leader may have gone by
        their sets in that moment."""
        self._in_sync_alone: dict[int, tuple[int, int]] = {}
        """Of nodes that lead others and know that none is in sync: the partition epoch by which
        they know it, and since when."""
        self.excuse: Excuse | None = None
        self.loss: Loss | None = None
        """What the excuse covers: set with it."""
        self._sure: tuple[int, ...] = ()
        """Who held everything before the loss, as far as that was not the loss."""
        self._epoch_lost = -1

    def in_sync_min(self, own: PartitionImage | None, now_ns: int) -> int:
        """How many have to be in sync for a commit of whoever acts on `own`; an operator may have
        left one replica only. That one may not have heard yet that it has got others, or have
        heard while it was at it."""
        is_alone = any(image and len(image.replicas) == 1 for image in (self.image, own))
        return 1 if is_alone or self.alone_until_ns > now_ns - LATELY_NS else self._in_sync_min

    def see_own(self, node_id: int, own: PartitionImage | None, now_ns: int) -> None:
        """What the node knows of the partition; None: nothing, or it cannot act on it just now."""
        if own is None or not _is_in_sync_alone(node_id, own):
            self._in_sync_alone.pop(node_id, None)
        elif self._in_sync_alone.get(node_id, (-1, 0))[0] != own.partition_epoch:
            self._in_sync_alone[node_id] = (own.partition_epoch, now_ns)

    def is_in_sync_alone(
        self, node_id: int, own: PartitionImage | None, now_ns: int, *, for_ns: int = LATELY_NS
    ) -> bool:
        """Whether one that leads others has known for so long that none is in sync: until then it
        may do, or its answers may tell, what follows from what it knew before."""
        if own is None or not _is_in_sync_alone(node_id, own):
            return False
        epoch, since_ns = self._in_sync_alone.get(node_id, (-1, now_ns))
        return epoch == own.partition_epoch and since_ns <= now_ns - for_ns

    @property
    def holders(self) -> tuple[int, ...]:
        """Who is sure to hold all that is committed, or was before its machine crashed."""
        image = self.image
        return (
            *image.in_sync_replicas,
            *image.eligible_replicas,
            *image.last_known_eligible,
        )

    def note_own_trim(self, node_id: int, start: int) -> OwnTrim:
        """The copy begins there, and no leader has decided that."""
        own_trim = self.own_trims[node_id] = OwnTrim(
            start=start,
            partition_epoch=int(self.image.partition_epoch),
            has_left=node_id not in self.holders,
        )
        self.headless[node_id] = None
        return own_trim

    def lose(self, now_ns: int, *, sure: tuple[int, ...]) -> None:
        """From now on something may be gone, for once or once more."""
        kept = self.committed if self.loss is None else self.loss.kept
        began_ns = now_ns if self.loss is None else self.loss.began_ns
        self.excuse = Excuse.LOST
        self.loss = Loss(kept=kept, began_ns=began_ns)
        # A copy that went back in time may hold, at the same offsets, what was never committed.
        known = (*self._sure, *sure)
        self._sure = tuple(each for each in known if each not in self.old_copies)
        self._epoch_lost = int(self.image.leader_epoch)

    def see_leader(self, node_id: int, end_offset: int) -> None:
        """Who leads after a loss shows what it has left: everything, below the end of its log, if
        it was one of those that held everything; if an operator chose another one, nothing."""
        if self.loss is not None:
            kept = end_offset if node_id in self._sure else 0
            self.loss = msgspec.structs.replace(self.loss, kept=min(self.loss.kept, kept))

    def see_end_of_loss(self, now_ns: int) -> None:
        """All replicas go on from the log of one leader that was elected after the loss."""
        image = self.image
        is_led = image.leader_id != NO_LEADER
        is_whole = is_led and len(image.in_sync_replicas) == len(image.replicas)
        if self.loss is None or self.loss.ended_ns is not None or not is_whole:
            return
        if image.leader_epoch > self._epoch_lost and not image.is_reassigning:
            self.loss = msgspec.structs.replace(self.loss, ended_ns=now_ns)


class ClusterBoard:
    """Of one run."""

    def __init__(self, now_ns: Callable[[], int] = lambda: 0) -> None:
        self.violations: list[str] = []
        self.partitions: dict[PartitionKey, PartitionBoard] = {}
        self.newest = Image()
        self.leader_changes = 0
        self.deleted: dict[str, PartitionBoard] = {}
        """By name, partitions whose topics are gone."""
        self.now_ns = now_ns
        self.trims: dict[PartitionKey, int] = {}
        """The highest offset below which somebody has asked to delete."""

    def see_trim(self, key: PartitionKey, before_offset: int) -> None:
        """Somebody is about to ask for it."""
        self.trims[key] = max(before_offset, self.trims.get(key, 0))

    def is_headless(self, key: PartitionKey, node_id: int) -> bool:
        """Whether its copy of the partition, of a topic that is there or gone, may lack a head that
        no leader has trimmed."""
        boards = (*self.partitions.values(), *self.deleted.values())
        return any(board.key == key and node_id in board.headless for board in boards)

    def report(self, violation: str) -> None:
        """Something that must not be; one text is told once."""
        if len(self.violations) < VIOLATIONS_MAX and violation not in self.violations:
            self.violations.append(violation)

    def see_image(self, image: Image) -> None:
        """Somebody shows this image; older ones tell nothing new."""
        if image.version <= self.newest.version:
            return
        for topic_id, known in self.newest.topics.items():
            if topic_id not in image.topics:
                self._forget(topic_id, known)
        for topic_id, topic in image.topics.items():
            if self.newest.topics.get(topic_id) is not topic:
                for partition in topic.partitions:
                    self._see_partition(
                        PartitionKey(topic_id, partition.partition), topic, partition
                    )
        self.newest = image

    def _forget(self, topic_id: bytes, topic: TopicImage) -> None:
        for partition in topic.partitions:
            board = self.partitions.pop(PartitionKey(topic.topic_id, partition.partition), None)
            if board is not None:
                assert board.key.topic_id == topic_id, "a board is found by its own key"
                self.deleted[board.name] = board

    def _see_partition(
        self, key: PartitionKey, topic: TopicImage, partition: PartitionImage
    ) -> None:
        board = self.partitions.get(key)
        if board is None:
            board = self.partitions[key] = PartitionBoard(key, topic, partition)
        elif partition.leader_epoch > board.image.leader_epoch:
            self.leader_changes += partition.leader_id != board.image.leader_id
        board.epochs.setdefault(int(partition.leader_epoch), board.committed)
        board.leaders.setdefault(int(partition.leader_epoch), int(partition.leader_id))
        board.was_moved |= partition.replicas != board.image.replicas
        before, holders, board.image = board.image, board.holders, partition
        _see_own_trims_lead(board, before, partition)
        _see_own_trims_counted(board, before, holders)
        if partition.partition_epoch > before.partition_epoch + 1:
            board.skipped_ns = self.now_ns()
        if len(before.replicas) == 1 < len(partition.replicas):
            board.alone_until_ns = self.now_ns()
        board.is_left_alone = len(partition.replicas) == 1 < len(before.replicas)
        if len(partition.replicas) > 1 and _is_elected_unclean(board, before, partition):
            board.lose(self.now_ns(), sure=holders)


def _see_own_trims_lead(
    board: PartitionBoard, before: PartitionImage, after: PartitionImage
) -> None:
    """A copy that was elected may have led, and told of its start, and be dead before anybody looks
    at it. Of images that nobody has shown the worst is taken for true: each that metadata counted
    on may have led in between."""
    grown = after.leader_epoch - before.leader_epoch
    for node_id, own_trim in board.own_trims.items():
        is_elected = grown > 0 and after.leader_id == node_id
        if is_elected or (grown > 1 and not own_trim.has_left):
            board.unreadable_below = max(board.unreadable_below, own_trim.start)


def _see_own_trims_counted(
    board: PartitionBoard, before: PartitionImage, holders: tuple[int, ...]
) -> None:
    """Who of them is counted on now, and whether that is by right: nobody knew yet that it was
    trimmed, or its leader lacks the same head and cannot know better."""
    for node_id, own_trim in board.own_trims.items():
        if node_id not in board.holders:
            own_trim.has_left = True
        elif node_id not in holders and _may_come_so(board, before, node_id):
            own_trim.has_left = False


def _may_come_so(board: PartitionBoard, before: PartitionImage, node_id: int) -> bool:
    own_trim, after = board.own_trims[node_id], board.image
    is_unseen = after.partition_epoch > before.partition_epoch + 1
    if is_unseen and before.partition_epoch == own_trim.partition_epoch:
        # An image that nobody has shown may have counted on it before it was trimmed.
        return True
    is_led_unseen = after.leader_epoch > before.leader_epoch + 1
    return any(
        other.start >= own_trim.start
        and (is_led_unseen or leader_id in (before.leader_id, after.leader_id))
        for leader_id, other in board.own_trims.items()
        if leader_id != node_id
    )


def _is_in_sync_alone(node_id: int, own: PartitionImage) -> bool:
    """An only replica is another thing: its watermark moves with the write."""
    is_led = own.leader_id == node_id and len(own.replicas) > 1
    return is_led and own.in_sync_replicas == (node_id,)


def _is_elected_unclean(
    board: PartitionBoard, before: PartitionImage, after: PartitionImage
) -> bool:
    """The flag says it, until all have gone on from what was left; if it happens once more before
    that it is told from who was in sync, and of images that nobody has shown the worst is taken for
    true."""
    if not after.is_recovered_unclean:
        return False
    grown = after.leader_epoch - before.leader_epoch
    is_from_nobody = not before.in_sync_replicas and bool(after.in_sync_replicas)
    is_new = board.loss is None or not before.is_recovered_unclean
    return is_new or grown > 1 or is_from_nobody
