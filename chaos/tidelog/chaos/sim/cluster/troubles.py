"""What goes wrong with a cluster by plan, and the supervisor that starts its nodes again.

Kinds that happen at a place (a torn write, a cancelled handler) fire in the ports. The supervisor
does what an operator would: it starts what is dead, and restarts a node with a failed directory,
its machine too where a flush has failed. A partition that has stopped by itself it leaves to the
node: it has to come back to it.
"""

from typing import Final

from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.cluster.gone_files import GoneFiles, is_spare
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.chaos.sim.cluster.old_copies import OldCopies
from tidelog.chaos.sim.cluster.own_trims import OwnTrims
from tidelog.chaos.sim.cluster.small_files import SmallFiles
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.ports.clock import WRONG_STARTS_MS
from tidelog.chaos.sim.ports.medium import Inode, Medium
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.sim.quorum.shared_troubles import PAUSE_NS, draw_partition
from tidelog.chaos.sim.quorum_nodes.cluster import LoopAgenda
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World
from tidelog.metadata.image.image import PartitionImage
from tidelog.ports import FileUnusable
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey

_ACT_NS: Final = (150 * MS, 1_200 * MS)
_CUT_NS: Final = (300 * MS, 6_000 * MS)
_READ_ONLY_NS: Final = (50 * MS, 1_500 * MS)
_WATCH_NS: Final = 100 * MS
_WRONG_NS: Final = (1_000 * MS, 12_000 * MS)
_RESTART_PROBABILITY: Final = 0.12
_JUMP_MS_MAX: Final = 86_400_000
_DEAD_AT_ONCE: Final = 0.25
_LOSING_PROBABILITY: Final = 0.15
"""Of a crash that takes the last copy of something: what follows in that partition is excused."""
_OF_ALL: Final = 0.15
"""Of directories that go back in time: all of them do."""
_ALL_DIE: Final = 0.7
_SMALL: Final = 0.6
"""Of the files that go: one that is no partition's."""
_FIRST_BACK: Final = 0.6
_NAMED: Final = "simulated fault"
"""What a broker says of a disk that fails."""
_FAILING: Final = (
    FaultKind.READ_ERROR,
    FaultKind.WRITE_ERROR,
    FaultKind.FLUSH_ERROR,
    FaultKind.READ_ONLY,
)


class ClusterTroubles:
    """Acts now and then with a kind that is active."""

    def __init__(
        self,
        world: World,
        nodes: list[ClusterNode],
        watch: ClusterWatch,
        *,
        are_copies_trimmed: bool,
    ) -> None:
        """`are_copies_trimmed`: as by an earlier version (`own_trims`)."""
        self._world = world
        self._nodes = nodes
        self._watch = watch
        self._agenda = LoopAgenda(world.loop)
        self._random = world.seeds.purpose("nemesis")
        self.gone_files = GoneFiles(world, watch, self._agenda)
        self.small_files = SmallFiles(world, watch)
        self._acts = {
            FaultKind.PROCESS_CRASH: self._crash_process,
            FaultKind.MACHINE_CRASH: self._crash_machine,
            FaultKind.PAUSE: self._pause,
            FaultKind.WALL_JUMP: self._jump_wall,
            FaultKind.WRONG_START_CLOCK: self._start_wrong,
            FaultKind.PARTITION: self._partition,
            FaultKind.PARTITION_ONE_WAY: self._partition_one_way,
            FaultKind.READ_ONLY: self._make_read_only,
            FaultKind.BIT_FLIP: self._flip_bit,
            FaultKind.WIPE: self._wipe,
            FaultKind.ROLLBACK: self._roll_back,
            FaultKind.GONE_FILE: self._take_file,
        }
        self.old_copies = OldCopies(world, watch)
        self.own_trims = OwnTrims(world, watch, world.seeds.purpose("own trims"))
        self._are_copies_trimmed = are_copies_trimmed
        self.others: list[str] = []
        """Processes that no fault kills, and whose links may be cut: clients."""
        self.is_over = False
        self.restarts = 0
        self.restores = 0
        self.violations: list[str] = []
        self._cut_number = 0
        self.resumed: ClusterNode | None = None
        """The node that was stopped and went on last: somebody new asks it at once."""

    def start(self) -> None:
        """Act now and then; start again whatever died."""
        for node in self._nodes:
            if node.is_wanted:
                node.start()
        self._agenda.after(self._random.between(*_ACT_NS), self._act)
        self._keep()

    def kill(self, node: ClusterNode, *, is_machine: bool) -> None:
        """With a last look at it."""
        if node.is_alive:
            self._watch.on_death(node, is_machine=is_machine)
            node.kill(is_machine=is_machine)

    def _act(self) -> None:
        if self.is_over:
            return
        self._agenda.after(self._random.between(*_ACT_NS), self._act)
        kinds = [kind for kind in self._acts if self._world.faults.is_active(kind)]
        alive = [node for node in self._nodes if node.is_alive]
        if not kinds or not alive:
            return
        victim = alive[self._random.below(len(alive))]
        kind = kinds[self._random.below(len(kinds))]
        self._world.trace.note(victim.name, f"nemesis:{kind.value}")
        self._acts[kind](victim)

    # -- the supervisor ------------------------------------------------------------------------

    def _keep(self) -> None:
        self._agenda.after(_WATCH_NS, self._keep)
        for node in self._nodes:
            is_due = self.is_over or self._random.chance(_RESTART_PROBABILITY)
            if not node.is_alive:
                if node.is_wanted and is_due:
                    self.restart(node)
            elif is_due and self._is_failed(node):
                self.restart(node)
            elif is_due and self._restore(node):
                self.kill(node, is_machine=False)
                node.start()
            self._judge_stopped(node)

    def _is_failed(self, node: ClusterNode) -> bool:
        """Whether an operator would restart it."""
        is_failed = any(medium.is_failed for medium in node.machine.media.values())
        return is_failed or bool(node.stopped_directories())

    def _judge_stopped(self, node: ClusterNode) -> None:
        """A partition stops for a cause only."""
        for key, error in node.stopped_replicas():
            self._judge_end(node, error, key)

    def _restore(self, node: ClusterNode) -> bool:
        """Bring back, as from a copy, what rotted or is gone where the cluster has no other copy
        that it may count on: the in-sync set has shrunk to this one meanwhile, or nobody leads and
        it alone may hold what was acknowledged."""
        for replica in node.replicas():
            board = self._watch.board.partitions.get(replica.log.key)
            failure = replica.log.failure
            if board is None or failure is None or not self._is_rot(node, failure):
                continue
            if set(_holding(board.image)) == {node.node_id}:
                node.machine.medium().unflip()
                node.machine.medium().give_back()
                board.damaged.pop(node.node_id, None)
                self.restores += 1
                self._world.trace.note(node.name, "operator:restore")
                return True
        return False

    def _is_rot(self, node: ClusterNode, error: BaseException) -> bool:
        """Whether the error may come of a bit that has rotted on its disk, or of a file that was
        taken away. What that stops is one partition: a directory that has failed for it says so by
        another error."""
        medium = node.machine.medium()
        is_corrupt = isinstance(error, TidelogError) and error.code is ErrorCode.STORAGE_CORRUPT
        is_of_files = is_corrupt or isinstance(error, FileUnusable)
        return (is_corrupt and bool(medium.flips)) or (is_of_files and medium.has_lost_files)

    def _is_headless(
        self, node: ClusterNode, error: BaseException, key: PartitionKey | None
    ) -> bool:
        """Whether the error may come of a copy that no leader has trimmed: it stops one partition,
        never a directory or a node."""
        is_corrupt = isinstance(error, TidelogError) and error.code is ErrorCode.STORAGE_CORRUPT
        return is_corrupt and key is not None and self._watch.board.is_headless(key, node.node_id)

    def restart(self, node: ClusterNode) -> None:
        """Judge how it ended, repair what an operator would, start it."""
        self._judge_stopped(node)
        errors: list[BaseException] = [*node.stopped_directories()]
        if node.process is not None and node.process.exit_error is not None:
            errors.append(node.process.exit_error)
        for error in errors:
            self._judge_end(node, error)
        is_failed = any(medium.is_failed for medium in node.machine.media.values())
        self.kill(node, is_machine=is_failed)
        if is_failed and not node.machine.is_down:
            self._watch.on_crash(node)
            node.machine.crash()
        self.old_copies.take(node)
        if self._are_copies_trimmed:
            self.own_trims.take(node)
        self.restarts += 1
        node.start()

    def _judge_end(
        self, node: ClusterNode, error: BaseException, key: PartitionKey | None = None
    ) -> None:
        if self._is_rot(node, error) or self._is_headless(node, error, key):
            return
        if not isinstance(error, TidelogError):
            self.violations.append(f"bug: {node.name} ended with {error!r}")
            return
        felt = any(self._world.faults.felt(kind) for kind in _FAILING)
        if error.code is ErrorCode.STORAGE_CORRUPT:
            self.violations.append(f"false_corruption: {node.name}: {error}")
        elif error.code is ErrorCode.STORAGE_FAILED:
            if not felt and _NAMED not in error.happened:
                self.violations.append(f"false_failure: {node.name}: {error}")
        elif error.code not in (ErrorCode.STORAGE_FULL, ErrorCode.CLOSED):
            self.violations.append(f"bug: {node.name} ended with {error}")

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.is_over = True
        self._world.heal()

    # -- acts ----------------------------------------------------------------------------------

    def _crash_process(self, victim: ClusterNode) -> None:
        self._world.faults.took_effect(FaultKind.PROCESS_CRASH, victim.name)
        self.kill(victim, is_machine=False)

    def _crash_machine(self, victim: ClusterNode) -> None:
        """Mostly while something is not flushed, if that comes soon."""
        life = victim.process

        def crash() -> None:
            if victim.process is not life or not victim.is_alive or self.is_over:
                return
            if self._random.chance(_LOSING_PROBABILITY) or not self._watch.would_lose(victim):
                self._world.faults.took_effect(FaultKind.MACHINE_CRASH, victim.name)
                self.kill(victim, is_machine=True)

        def on_change(is_name: bool) -> None:
            del is_name
            self._agenda.after(self._random.below(2 * MS), crash)

        if self._random.chance(_DEAD_AT_ONCE):
            crash()
        else:
            victim.machine.medium().watchers.append(on_change)

    def _pause(self, victim: ClusterNode) -> None:
        process = victim.process
        assert process is not None, "it is alive"
        if not process.is_paused:
            process.pause()
            self._agenda.after(self._random.between(*PAUSE_NS), self._resume, victim, process)

    def _resume(self, victim: ClusterNode, process: Process) -> None:
        process.resume()
        self.resumed = victim

    def _jump_wall(self, victim: ClusterNode) -> None:
        """Of the machine whose clock is wrong now and then."""
        victim = self._clock_victim()
        victim.machine.jump_wall(self._random.between(-_JUMP_MS_MAX, _JUMP_MS_MAX))

    def _start_wrong(self, victim: ClusterNode) -> None:
        """Its process dies, and the next one finds a wrong clock; later somebody puts it right."""
        victim = self._clock_victim()
        self.kill(victim, is_machine=False)
        offset_ms = WRONG_STARTS_MS[self._random.below(len(WRONG_STARTS_MS))]
        victim.machine.set_wrong_clock(offset_ms)
        self._agenda.after(self._random.between(*_WRONG_NS), victim.machine.put_clock_right)

    def _clock_victim(self) -> ClusterNode:
        return self._nodes[self._nodes[0].plan.wrong_clock - 1]

    def _partition(self, victim: ClusterNode) -> None:
        """As drawn, clients on either side; healed later."""
        names = [*(node.name for node in self._nodes), *self.others]
        for source, target in draw_partition(self._random, names, victim.name):
            self._world.fabric.cut(source, target, FaultKind.PARTITION)
        self._heal_later()

    def _partition_one_way(self, victim: ClusterNode) -> None:
        is_inward = self._random.chance(0.5)
        for other in self._nodes:
            if other is not victim and self._random.chance(0.7):
                source, target = (other, victim) if is_inward else (victim, other)
                self._world.fabric.cut(source.name, target.name, FaultKind.PARTITION_ONE_WAY)
        self._heal_later()

    def _heal_later(self) -> None:
        self._cut_number += 1
        self._agenda.after(self._random.between(*_CUT_NS), self._end_cut, self._cut_number)

    def _end_cut(self, number: int) -> None:
        if number == self._cut_number:
            self._world.fabric.heal()

    def _make_read_only(self, victim: ClusterNode) -> None:
        """Of the machine whose disks fail."""
        del victim
        plan = self._nodes[0].plan
        media = self._nodes[plan.faulty_disk - 1].machine.media.values()
        for medium in list(media):
            medium.is_read_only = True
            self._agenda.after(
                self._random.between(*_READ_ONLY_NS), setattr, medium, "is_read_only", False
            )

    def _flip_bit(self, victim: ClusterNode) -> None:
        """Once a run, on the machine whose disks fail, in what another in-sync replica holds."""
        plan = self._nodes[0].plan
        victim = self._nodes[plan.faulty_disk - 1]
        medium = victim.machine.medium()
        if self._world.faults.felt(FaultKind.BIT_FLIP):
            return
        places = []
        for replica in victim.replicas():
            board = self._watch.board.partitions.get(replica.log.key)
            if board is not None and replica.log.failure is None and is_spare(victim, board):
                places += [(board, path, inode) for path, inode in rottable(medium, replica.log)]
        if not places:
            return
        board, path, inode = places[self._random.below(len(places))]
        board.damaged[victim.node_id] = None
        medium.flip_bit(path, inode, self._random, self._world.faults)

    def _wipe(self, victim: ClusterNode) -> None:
        """Once a run, of one that does not vote and holds nothing that no other copy holds."""
        victim = self._nodes[-1]
        if victim.planned.is_controller or not victim.is_alive or not victim.is_wanted:
            return
        self._watch.look()
        if self._world.faults.felt(FaultKind.WIPE) or not self._watch.is_spare(victim):
            return
        self._watch.on_wipe(victim)
        victim.kill(is_machine=False)
        victim.machine.wipe(DATA)
        victim.is_wiped = True

    def _roll_back(self, victim: ClusterNode) -> None:
        """An old copy of the victim's directory takes its place; mostly everything else dies as
        well, so that it may be the first to come back. Now and then of all nodes: such a cluster
        may lose what was written since, and has to come back all the same. Where there is no copy
        yet the victim dies for one."""
        self._watch.look()
        if not self.old_copies.has_copy(victim):
            self.kill(victim, is_machine=False)
            self.old_copies.take(victim, is_certain=True)
            return
        is_of_all = self._random.chance(_OF_ALL)
        victims = self._nodes if is_of_all else [victim]
        restored = [each for each in victims if self.old_copies.may_restore(each)]
        if is_of_all and len(restored) < len(self._nodes):
            return
        may_lose = is_of_all or self._random.chance(_LOSING_PROBABILITY)
        if not restored or not (may_lose or self._watch.is_spare(victim)):
            return
        kills_all = is_of_all or self._random.chance(_ALL_DIE)
        for node in self._nodes:
            if node in restored or kills_all:
                self.kill(node, is_machine=False)
        for node in restored:
            self.old_copies.restore(node)
            if self._random.chance(_FIRST_BACK):
                node.start()

    def _take_file(self, victim: ClusterNode) -> None:
        """A partition's files, or one of the small files, mostly while everything else dies too."""
        self._watch.look()
        if not (self._random.chance(_SMALL) and self.small_files.may_take(victim)):
            self.gone_files.take(victim)
            return
        kills_all = self._random.chance(_ALL_DIE)
        for node in self._nodes:
            if node is victim or kills_all:
                self.kill(node, is_machine=False)
        self.small_files.take(victim)
        if self._random.chance(_FIRST_BACK):
            victim.start()


def _holding(partition: PartitionImage) -> tuple[BrokerId, ...]:
    """Whose logs hold every acknowledged record, or are the only ones that may."""
    sure = (*partition.in_sync_replicas, *partition.eligible_replicas)
    return sure or partition.last_known_eligible


def rottable(medium: Medium, log: PartitionLog) -> list[tuple[str, Inode]]:
    """Segments of which every durable byte is of batches that are flushed and committed."""
    found: list[tuple[str, Inode]] = []
    for segment in log.segments:
        inode = medium.find(segment.key.path)
        is_settled = segment.next_offset <= min(log.flushed_offset, log.high_watermark)
        if is_settled and isinstance(inode, Inode) and inode.durable:
            found.append((segment.key.path, inode))
    return found
