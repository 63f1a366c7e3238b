"""Random runs: every fault that a member, its disk and the network can have, from one seed."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.metadata_quorum.raft.harness import STEP_MS, Quorum, member
from tests.metadata_quorum.raft.safety import check_log_matching
from tidelog.metadata_quorum.raft.effects import Accepted, Role
from tidelog.metadata_quorum.raft.inputs import (
    AddLearner,
    CorruptEntry,
    PeerDied,
    Promote,
    RemoveMember,
    Transfer,
)
from tidelog.metadata_quorum.raft.types import MemberId, Options
from tidelog.wire.ids import LogIndex

SMALL: Final = Options(
    append_bytes_max=20,
    append_entries_max=3,
    in_flight_appends_max=3,
    entries_kept=3,
    catch_up_entries_max=5,
    uncommitted_bytes_max=200,
)


class Storm:
    """One run."""

    def __init__(self, seed: int, *, voters: int = 3, options: Options = SMALL) -> None:
        self.random = random.Random(seed)
        self.quorum = Quorum(*range(1, voters + 1), options=options, joining=[9], seed=seed)
        self.counts: Counter[str] = Counter()
        self.corrupted: MemberId | None = None
        self.loss = self.random.choice([0.0, 0.02, 0.2])
        self.repeat = self.random.choice([0.0, 0.1])
        self.faults: list[tuple[float, Callable[[], None]]] = [
            (0.30, self._tick),
            (0.30, self._flush),
            (0.10, self._propose),
            (0.02, self._read),
            (0.01, self._change_members),
            (0.003, self._transfer),
            (0.01, self._snapshot),
            (0.05, self._fetch),
            (0.006, self._crash),
            (0.03, self._start),
            (0.004, self._cut),
            (0.02, self._heal),
            (0.002, self._corrupt),
            (0.004, self._hint),
            (0.001, self._pause),
        ]

    def run(self, events: int) -> None:
        """The storm, then calm: everybody comes back and the quorum must go on."""
        weights = [weight for weight, _ in self.faults]
        actions = [action for _, action in self.faults]
        for event in range(events):
            if self.quorum.network and self.random.random() < 0.75:
                self._deliver()
            else:
                self.random.choices(actions, weights)[0]()
            if event % 50 == 0:
                self._check_logs()
        self._calm()

    def _check_logs(self) -> None:
        machines = self.quorum.machines.values()
        check_log_matching([each.core for each in machines if each.core is not None])

    def _calm(self) -> None:
        quorum = self.quorum
        quorum.heal()
        for own_id, machine in quorum.machines.items():
            if machine.core is None:
                quorum.start(own_id)
        quorum.run(5_000)
        leader = quorum.elect()
        request = quorum.propose(leader, b"calm")
        quorum.run(3_000)
        outcome = quorum.at(leader).answers[request]
        assert isinstance(outcome, Accepted), f"nothing goes on: {outcome}"
        for each in quorum.state(leader).members:
            assert quorum.state(each.id).applied_index >= outcome.index, "a member lags for ever"
            assert not quorum.state(each.id).is_repairing, "a repair never ends"
        self._check_logs()

    def _up(self) -> list[MemberId]:
        return [own_id for own_id, each in self.quorum.machines.items() if each.core is not None]

    def _any(self) -> MemberId | None:
        up = self._up()
        return self.random.choice(up) if up else None

    def _deliver(self) -> None:
        network = self.quorum.network
        place = 0 if self.random.random() < 0.6 else self.random.randrange(len(network))
        message = network.pop(place)
        if self.random.random() < self.repeat:
            network.append(message)
            self.counts["repeated"] += 1
        if self.random.random() < self.loss or not self.quorum.can_reach(message):
            self.counts["lost"] += 1
            return
        self.quorum.step(message)

    def _tick(self) -> None:
        for own_id in self._up():
            self.quorum.tick(own_id, self.random.choice([STEP_MS, STEP_MS, 2 * STEP_MS]))

    def _flush(self) -> None:
        for own_id in self._up():
            writes = len(self.quorum.at(own_id).writes)
            if writes and self.random.random() < 0.8:
                self.quorum.flush(own_id, self.random.randint(1, writes))

    def _propose(self) -> None:
        leader = self.quorum.leader()
        if leader is not None:
            data = b"%d" % self.random.randrange(1_000_000)
            self.quorum.propose(leader, data)
            self.counts["proposed"] += 1

    def _read(self) -> None:
        reader = self._any()
        if reader is not None:
            self.quorum.read(reader)

    def _change_members(self) -> None:
        leader = self.quorum.leader()
        if leader is None:
            return
        self.counts["changes"] += 1
        target = self.random.choice(list(self.quorum.machines))
        kind = self.random.randrange(3)
        if kind == 0:
            learner = member(target.node_id)
            self.quorum.request(leader, lambda n: AddLearner(request_id=n, member=learner))
        elif kind == 1:
            self.quorum.request(leader, lambda n: Promote(request_id=n, member_id=target))
        elif len(self.quorum.state(leader).members.voters) > 3:
            self.quorum.request(leader, lambda n: RemoveMember(request_id=n, member_id=target))

    def _transfer(self) -> None:
        leader = self.quorum.leader()
        if leader is not None:
            self.counts["transfers"] += 1
            self.quorum.request(leader, lambda n: Transfer(request_id=n, to=None))

    def _snapshot(self) -> None:
        own_id = self._any()
        if own_id is None:
            return
        state = self.quorum.state(own_id)
        last = state.snapshot.end_index - 1 if state.snapshot else 0
        is_resetting = len(self.quorum.at(own_id).applied) != state.applied_index
        has_writes = bool(self.quorum.at(own_id).writes)
        if state.applied_index > last and not is_resetting and not has_writes:
            self.quorum.take_snapshot(own_id)
            self.counts["snapshots"] += 1

    def _fetch(self) -> None:
        for own_id in self._up():
            if self.quorum.at(own_id).fetch is not None:
                self.quorum.finish_fetch(own_id)
                self.counts["fetches"] += 1

    def _crash(self) -> None:
        own_id = self._any()
        if own_id is not None:
            self.counts["crashes"] += 1
            writes = len(self.quorum.at(own_id).writes)
            self.quorum.crash(
                own_id,
                writes_done=self.random.randint(0, writes),
                torn_entries=self.random.choice([None, -1, 0, 1]),
            )

    def _start(self) -> None:
        for own_id, machine in self.quorum.machines.items():
            if machine.core is None:
                self.quorum.start(own_id)
                return

    def _cut(self) -> None:
        own_id = self.random.choice(list(self.quorum.machines))
        self.counts["cuts"] += 1
        if self.random.random() < 0.5:
            self.quorum.isolate(own_id)
        else:
            other = self.random.choice(list(self.quorum.machines))
            self.quorum.cut.add((own_id, other))

    def _heal(self) -> None:
        self.quorum.heal()

    def _corrupt(self) -> None:
        """One member only, once its last repair is over: what a majority loses is lost."""
        if self.corrupted is not None:
            machine = self.quorum.at(self.corrupted)
            state = machine.running.describe() if machine.core is not None else None
            if state is None or state.is_repairing or machine.disk.hard_state.repair is not None:
                return
        own_id = self._any()
        if own_id is None:
            return
        machine = self.quorum.at(own_id)
        if not machine.disk.entries or machine.writes or machine.disk.hard_state.repair:
            return
        entry = self.random.choice(machine.disk.entries)
        self.corrupted = own_id
        self.counts["corruptions"] += 1
        machine.disk.corrupt_from = entry.index
        if self.random.random() < 0.5:
            self.quorum.restart(own_id)
        else:
            self.quorum.give(own_id, CorruptEntry(index=LogIndex(entry.index)))

    def _hint(self) -> None:
        own_id = self._any()
        about = self.random.choice(list(self.quorum.machines))
        if own_id is not None:
            self.quorum.give(own_id, PeerDied(node_id=about.node_id))

    def _pause(self) -> None:
        own_id = self._any()
        if own_id is not None:
            was_leader = self.quorum.state(own_id).role is Role.LEADER
            self.quorum.tick(own_id, 5_000)
            is_alone = self.quorum.state(own_id).members.voters == (own_id,)
            still = self.quorum.state(own_id).role is Role.LEADER
            assert not (was_leader and still) or is_alone, "a paused leader leads on"
            self.counts["pauses"] += 1
