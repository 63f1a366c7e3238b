"""Looks at a cluster's nodes after steps that moved something, and at all of them now and then.

Feeds the board and asks the invariants; what a machine's crash takes is judged by what its disks
hold. It must never change anything, and never look at a node that has not recovered its logs.
"""

from collections.abc import Callable, Sequence

from tidelog.broker.log.state.log import NOT_LED, PartitionLog
from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica
from tidelog.chaos.checkers.cluster.board import SOON_NS, ClusterBoard, PartitionBoard, Position
from tidelog.chaos.checkers.cluster.metadata import MetadataWatch
from tidelog.chaos.checkers.history.history import Excuse, History
from tidelog.chaos.checkers.log.medium import durable_end, seen_bytes
from tidelog.chaos.checkers.partition import starts, steps
from tidelog.chaos.checkers.partition.bytes import BytesWatch
from tidelog.chaos.checkers.partition.lives import LivesWatch
from tidelog.chaos.sim.base.loop import START_NS
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.metadata.eligibility import has_directory
from tidelog.metadata.image.image import Image
from tidelog.server.roles.clock_keeper import FILE_NAME as CLOCK_FILE
from tidelog.wire.ids import BrokerId, PartitionKey

_NS_PER_MS = 1_000_000


class ClusterWatch:
    """Of one run."""

    def __init__(self, nodes: Sequence[ClusterNode], history: History) -> None:
        self.nodes = tuple(nodes)
        self.board = ClusterBoard(now_ns=self._now_ns)
        self.history = history
        self.bytes = BytesWatch(self.board)
        self.lives = LivesWatch(self.board)
        self.metadata = MetadataWatch(self.board)
        self._hooked: dict[int, LogDirectory] = {}
        self._logs: dict[tuple[int, PartitionKey], PartitionLog] = {}
        """Those that were looked at last."""
        self._judged = self.board.newest
        self.crashed_ns: dict[int, int] = {}
        """By node, when its machine crashed last."""
        self.wiped_ns: dict[int, int] = {}
        """By node, when its disk was replaced last, by an empty one or an old copy."""

        self.went_back: dict[int, None] = {}
        """Nodes whose directory was replaced by an old copy of it, at any time."""
        self.on_committed: list[Callable[[ClusterNode, PartitionLog], None]] = []
        """Told of each log whose leader has just committed more, before anybody is answered."""

    def _now_ns(self) -> int:
        return self.nodes[0].world.loop.now_ns

    def _age_ms(self) -> int:
        """How old the oldest record can be: all of them were written in this run."""
        return (self._now_ns() - START_NS) // _NS_PER_MS

    # -- looking -------------------------------------------------------------------------------

    def look(self) -> None:
        """At every node."""
        self._see_images()
        for node in self.nodes:
            self._look_at(node)
        for board in self.board.partitions.values():
            board.see_end_of_loss(self._now_ns())

    def _look_at(self, node: ClusterNode) -> None:
        view = node.view
        if view.image is not None:
            self.metadata.see(node.name, node.lives, view.image)
        view.check_replication()
        view.check_subscriptions()
        for replica in node.replicas():
            self._see(node, replica)
        if view.replicas is not None:
            # Before that its replicas have not yet asked to be told of watermarks themselves.
            for directory in view.directories:
                self._hook(node, directory)

    def _see_images(self) -> None:
        """Of all nodes: one may act already on what another one has not heard of."""
        for node in self.nodes:
            image = node.view.image
            if image is not None and image.version > self.board.newest.version:
                self._see_image(image)
        self._check_losses()

    def _see_image(self, image: Image) -> None:
        self.board.see_image(image)
        for board in self.board.partitions.values():
            if board.is_left_alone:
                board.is_left_alone = False
                self._check_left_alone(board)

    def _check_left_alone(self, board: PartitionBoard) -> None:
        """Before anything else is committed by the one that stays."""
        (node_id,) = board.image.replicas
        position = board.positions.get(node_id)
        if position is None or board.excuse is not None or node_id in board.damaged:
            return
        (node,) = (each for each in self.nodes if each.node_id == node_id)
        replica = node.replica(board.key)
        flushed_offset = position.flushed_offset
        if replica is not None and replica.log.failure is None:
            if _is_being_cut(replica.log, position):
                return
            flushed_offset = replica.log.flushed_offset
        elif replica is None:
            # It may have lived, and copied, between two looks.
            on_disk = durable_end(node.machine.medium(DATA), board.key)
            flushed_offset = max(flushed_offset, on_disk)
        for violation in steps.left_alone_with_all_flushed(board, node.name, flushed_offset):
            self.board.report(violation)

    def _check_losses(self) -> None:
        """Nobody is in sync any more only where the machines of all of them have crashed, or have
        empty disks now."""
        if self._judged is self.board.newest:
            return
        self._judged = self.board.newest
        shaken = self.crashed_ns.keys() | self.wiped_ns.keys()
        for board in self.board.partitions.values():
            for violation in steps.losses_have_causes(board, shaken, self.went_back):
                self.board.report(violation)
            if board.old_copies and board.excuse is None:
                self._check_old_copies(board)

    def _check_old_copies(self, board: PartitionBoard) -> None:
        # Whose directory of this replica is not there leads nothing: an operator decides. Nor does
        # one that is fenced: its registration may be a late call of a process from before.
        epochs = {
            int(each.broker_id): int(each.epoch)
            for each in self.board.newest.brokers.values()
            if each.broker_id in board.image.replicas
            and not each.is_fenced
            and has_directory(each, board.image.directory_of(each.broker_id))
        }
        ends = {}
        for node in self.nodes:
            replica = node.replica(board.key)
            if replica is not None and replica.log.failure is None:
                ends[node.node_id] = int(replica.log.log_end_offset)
        for violation in steps.nobody_counts_on_old_copies(board, epochs, ends):
            self.board.report(violation)

    def _hook(self, node: ClusterNode, directory: LogDirectory) -> None:
        """From now on look at once when a watermark of the directory moves."""
        if not directory.is_open or self._hooked.get(node.node_id) is directory:
            return
        self._hooked[node.node_id] = directory
        owner = directory.owner
        owner.on_advanced = self._advancing(node, owner.on_advanced)

    def _advancing(
        self, node: ClusterNode, original: Callable[[PartitionKey], None]
    ) -> Callable[[PartitionKey], None]:
        def on_advanced(key: PartitionKey) -> None:
            view = node.view
            known = view.replicas
            replica = None if known is None else known.get(key.topic_id, key.partition)
            if replica is not None:
                self._see_images()
                self._see(node, replica)
            original(key)

        return on_advanced

    # -- one replica ---------------------------------------------------------------------------

    def _see(self, node: ClusterNode, replica: Replica) -> None:
        log = replica.log
        board = self.board.partitions.get(log.key)
        if board is None or log.failure is not None:
            return
        starts.note_decided(board, node.node_id, log)
        before, end_offset = board.positions.get(node.node_id), log.log_end_offset
        if before is None or self._logs.get((node.node_id, log.key)) is not log:
            # Another life, or a replica that was moved away and came back: another log.
            self._logs[node.node_id, log.key] = log
            before = board.positions[node.node_id] = Position(
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                high_watermark=log.high_watermark,
            )
            self.lives.on_start(node.name, board, log)
            # What it has written since it was opened was not what a loss has left.
            end_offset = log.flushed_offset if log.led_from == NOT_LED else log.led_from
        elif replica.is_led and not before.is_led and log.led_from != NOT_LED:
            # Elected since it was looked at last: nor was what it has written since then.
            end_offset = min(end_offset, log.led_from)
        if not board.is_flush_sync:
            own = None if node.is_paused else node.partition(board.key)
            board.see_own(node.node_id, own, self._now_ns())
        if board.excuse is None and node.node_id not in board.damaged:
            self._check(node, board, replica, before)
        is_led = replica.is_led
        if is_led:
            before.led_epoch = log.leader_epoch
            if node.machine.wall_offset_ms < 0 and not _has_kept_a_time(node):
                board.untimed_epochs[int(log.leader_epoch)] = None
            if log.log_start_offset > board.decided_start:
                board.unreadable_below = max(board.unreadable_below, log.log_start_offset)
        before.log_start_offset = log.log_start_offset
        before.log_end_offset = log.log_end_offset
        if not _is_being_cut(log, before):
            before.flushed_offset, before.cut_count = log.flushed_offset, log.cut_count
        before.high_watermark = log.high_watermark
        before.leader_epoch = log.leader_epoch
        before.is_led = is_led
        if is_led and log.leader_epoch == board.image.leader_epoch:
            board.see_leader(node.node_id, end_offset)
        if log.leader_epoch == before.led_epoch:
            # Also after it heard that it leads no more: what was handed to its log before that is
            # still appended, and an only replica has committed it then.
            self._commit(node, board, log)
        if log.log_end_offset >= board.committed:
            board.lacking.pop(node.node_id, None)
            if board.loss is None or board.loss.ended_ns is not None:
                # While a loss goes on its length does not tell that it holds what was committed.
                board.old_copies.pop(node.node_id, None)

    def _commit(self, node: ClusterNode, board: PartitionBoard, log: PartitionLog) -> None:
        if log.high_watermark <= board.committed:
            return
        board.committed = log.high_watermark
        for tell in self.on_committed:
            tell(node, log)

    def _check(
        self, node: ClusterNode, board: PartitionBoard, replica: Replica, before: Position
    ) -> None:
        log, name = replica.log, node.name
        is_falling = log.high_watermark < before.high_watermark
        if log.log_start_offset > board.decided_start or is_falling:
            # Its leader may have decided that since it was looked at last.
            self._note_decided(board)
        found = [
            *starts.start_moves_by_a_leaders_word(board, node.node_id, log, before),
            *steps.offsets_in_order(board, name, log),
            *steps.starts_by_the_clusters_clock(
                board,
                name,
                log,
                age_ms=self._age_ms(),
                trimmed_to=self.board.trims.get(board.key, 0),
            ),
        ]
        if before.high_watermark > board.decided_start:
            # Of a copy that holds nothing but what a leader gave up all goes, and it begins anew.
            found += steps.watermark_never_falls(board, name, log, before)
            found += steps.nothing_committed_is_truncated(board, name, log, before)
        if node.node_id in board.image.in_sync_replicas:
            if not _is_being_cut(log, before) and not self._is_on_disk(node, board, log):
                found += steps.watermark_is_flushed(board, name, log)
            found += steps.in_sync_holds_committed(board, name, log)
            found += starts.in_sync_holds_the_head(board, node.node_id, log)
        if replica.is_led:
            found += steps.one_leader_an_epoch(board, node.node_id, log.leader_epoch)
            found += steps.leader_holds_committed(board, name, log, log.leader_epoch)
            if before.is_led:
                own, now_ns = node.partition(board.key), self._now_ns()
                is_alone = board.is_in_sync_alone(node.node_id, own, now_ns, for_ns=SOON_NS)
                if is_alone and not _is_being_cut(log, before):
                    found += steps.watermark_of_one_is_flushed(board, name, log, before)
                in_sync = self._in_sync_known(node, board)
                in_sync_min = board.in_sync_min(own, now_ns)
                found += steps.watermark_waits_for_enough(
                    board, name, log, before, in_sync, in_sync_min
                )
                found += steps.watermark_waits_for_all(board, name, log, self._ends(board))
        for violation in found:
            self.board.report(violation)

    def _is_on_disk(self, node: ClusterNode, board: PartitionBoard, log: PartitionLog) -> bool:
        """Whether what a log with flush=sync calls committed, and not flushed, is flushed all the
        same: a cut that began since it was flushed, between two looks, takes the promise back."""
        if not board.is_flush_sync or log.high_watermark <= log.flushed_offset:
            return False
        return durable_end(node.machine.medium(DATA), board.key) >= log.high_watermark

    def _note_decided(self, board: PartitionBoard) -> None:
        for other in self.nodes:
            replica = other.replica(board.key)
            if replica is not None:
                starts.note_decided(board, other.node_id, replica.log)

    def _in_sync_known(self, node: ClusterNode, board: PartitionBoard) -> int:
        """As the metadata that the node acts on, or the newest, say, whichever set is larger.

        An image is shown a moment before a leader acts on it, and on all that came with it.
        """
        if board.skipped_ns == self._now_ns():
            return len(board.image.replicas)
        sets = [board.image.in_sync_replicas]
        own = node.partition(board.key)
        if own is not None:
            sets.append(own.in_sync_replicas)
        return max(len(each) for each in sets)

    def _ends(self, board: PartitionBoard) -> dict[str, PartitionLog]:
        """The logs of those in sync that can be looked at."""
        found = {}
        for node in self.nodes:
            if node.node_id not in board.image.in_sync_replicas:
                continue
            replica = node.replica(board.key)
            position = board.positions.get(node.node_id)
            if replica is None or replica.log.failure is not None or position is None:
                continue
            if node.node_id in board.damaged:
                continue
            if not _is_being_cut(replica.log, position):
                found[node.name] = replica.log
        return found

    # -- deaths --------------------------------------------------------------------------------

    def on_death(self, node: ClusterNode, *, is_machine: bool) -> None:
        """Just before it dies."""
        self._see_images()
        self._look_at(node)
        if is_machine:
            self.on_crash(node)
            return
        for replica in node.replicas():
            board = self.board.partitions.get(replica.log.key)
            if board is not None and node.node_id not in board.damaged:
                self.lives.on_death(node.name, board, replica.log)

    def on_crash(self, node: ClusterNode) -> None:
        """Its machine crashes now, with or without a process."""
        self.crashed_ns[node.node_id] = node.world.loop.now_ns
        for board in self.board.partitions.values():
            position = board.positions.get(node.node_id)
            if position is not None and position.flushed_offset < board.committed:
                board.lacking[node.node_id] = None
        self._excuse_losses(node)

    def is_spare(self, node: ClusterNode) -> bool:
        """Whether another one is sure to hold whatever its disk holds."""
        for board in self.board.partitions.values():
            sure = [*board.image.in_sync_replicas, *board.image.eligible_replicas]
            others = [each for each in sure if each != node.node_id]
            is_held = any(
                each not in board.lacking and each not in board.damaged for each in others
            )
            if node.node_id in board.image.replicas and not is_held:
                return False
        return True

    def on_wipe(self, node: ClusterNode) -> None:
        """Its disk is about to be replaced by an empty one."""
        self.wiped_ns[node.node_id] = node.world.loop.now_ns
        for board in self.board.partitions.values():
            if board.positions.pop(node.node_id, None) is not None and board.committed:
                board.lacking[node.node_id] = None
            board.damaged.pop(node.node_id, None)

    def on_rollback(self, node: ClusterNode) -> None:
        """An old copy of its directory is about to take its place; it is dead. What only this one
        held is gone."""
        self.lives.forget(node.name)
        self.went_back[node.node_id] = None
        self.wiped_ns[node.node_id] = node.world.loop.now_ns
        known = self.board.newest.brokers[BrokerId(node.node_id)]
        for board in self.board.partitions.values():
            board.damaged.pop(node.node_id, None)
            if board.positions.pop(node.node_id, None) is None:
                continue
            board.lacking[node.node_id] = None
            board.old_copies[node.node_id] = int(known.epoch)
            sure = (*board.image.in_sync_replicas, *board.image.eligible_replicas)
            if all(each in board.lacking or each in board.damaged for each in sure):
                board.lose(self._now_ns(), sure=())

    def would_lose(self, node: ClusterNode) -> bool:
        """Whether a crash of its machine now would take the last copy of something committed."""
        for board in self.board.partitions.values():
            position = board.positions.get(node.node_id)
            if board.is_flush_sync or position is None or board.excuse is not None:
                continue
            others = [*board.image.in_sync_replicas, *board.image.eligible_replicas]
            is_last = all(
                each == node.node_id or each in board.lacking or each in board.damaged
                for each in others
            )
            if is_last and position.flushed_offset < board.committed:
                return True
        return False

    def _excuse_losses(self, node: ClusterNode) -> None:
        """With flush=replicated a record is gone when every one of those that were sure to hold it
        has lost its unflushed bytes, the last of them by this crash."""
        for board in self.board.partitions.values():
            if board.is_flush_sync or node.node_id not in board.lacking:
                continue
            sure = [*board.image.in_sync_replicas, *board.image.eligible_replicas]
            if all(each in board.lacking or each in board.damaged for each in sure):
                board.lose(self._now_ns(), sure=board.holders)

    # -- the whole -----------------------------------------------------------------------------

    def check_whole(self, *, is_final: bool = False) -> None:
        """The second tier: bytes of all replicas, what is derived of them."""
        self.look()
        logs: dict[PartitionKey, list[tuple[ClusterNode, PartitionLog]]] = {}
        for node in self.nodes:
            for replica in node.replicas():
                if replica.log.failure is None:
                    logs.setdefault(replica.log.key, []).append((node, replica.log))
        for key, held in logs.items():
            board = self.board.partitions.get(key)
            if board is None:
                continue
            held = [each for each in held if each[0].node_id not in board.damaged]
            for node, log in held:
                self.bytes.check(node.name, node.lives, board, log, node.machine.medium())
                if is_final:
                    self.lives.check_derived(node.name, board, log, node.machine.medium())
            if is_final:
                self.bytes.compare_whole(
                    board, [(node.name, log, node.machine.medium()) for node, log in held]
                )

    def settle(self) -> None:
        """The run is over: what is deleted or lost is not held to everything."""
        for name, gone in self.board.deleted.items():
            self.history.excuse(name, gone.excuse or Excuse.DELETED)
        for board in self.board.partitions.values():
            if board.excuse is not None:
                self.history.excuse(board.name, board.excuse)
        for board in (*self.board.deleted.values(), *self.board.partitions.values()):
            if board.loss is not None:
                self.history.losses[board.name] = board.loss
            # What is below may be gone; a leader that has not heard of it may show it still.
            if trimmed_to := max(board.decided_start, board.unreadable_below):
                self.history.trims[board.name] = trimmed_to


def _has_kept_a_time(node: ClusterNode) -> bool:
    """Whether any of its lives was long enough to store what time it was."""
    return bool(seen_bytes(node.machine.medium(DATA), CLOCK_FILE))


def _is_being_cut(log: PartitionLog, position: Position) -> bool:
    """Its tail goes just now: until that is done less than what is flushed counts as flushed."""
    return log.flushed_offset < position.flushed_offset and log.cut_count == position.cut_count
