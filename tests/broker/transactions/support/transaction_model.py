"""Producers, operators, leaders and failures around one core, as hypothesis draws them.

What must never be: an identity that two processes work with; a zombie that decides or adds; a
commit that nobody asked for under that very identity; two decisions of one transaction; a
transaction that begins before the one before it is ended everywhere; data without a record that
names its partition. What must come once everything is calm: every decision is complete, what nobody
decided is aborted, and only what is prepared is still open. A process that has an id for itself is
never told that it is fenced.
"""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.transactions.support.house import House, born, identity, key
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    DecideAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    AddPartitions,
    AppendCommitted,
    AppendRecords,
    DecidePrepared,
    Effect,
    EndTransaction,
    InitTransactionalProducer,
    MarkersAnswered,
    PrepareTransaction,
    SendMarkers,
    TransactionSettings,
    TransactionsLoaded,
    TransactionTopics,
)
from tidelog.broker.transactions.state.records import TransactionValue, decode_record
from tidelog.broker.transactions.state.states import EPOCH_MAX, Decision, TransactionState
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey

TIMEOUT_MS = 1_000
NAMES = ("young", "old", "oldest")
ALONE = "alone"
"""An id that one process has for itself throughout: it must never be told that it is fenced."""
FATES = st.sampled_from(["answered", "answered", "answered", "answered", "answer lost", "late"])
SUCCESS = (AddPartitionsAnswer, EndAnswer, PrepareAnswer)


class Process(msgspec.Struct, eq=False):
    """A producer: what it knows, and what it sent."""

    number: int
    name: str
    identity: Identity | None = None
    """The last one that it was given."""
    must_renew: bool = False
    """After an error, or an answer that was lost."""
    is_prepared: bool = False
    unknown_end: EndTransaction | None = None
    """Whose answer was lost: it may be sent again."""
    late: list[msgspec.Struct] = msgspec.field(default_factory=list)
    waiting: dict[int, tuple[msgspec.Struct, bool]] = msgspec.field(default_factory=dict)
    """Requests by id, and whether the process still listens."""


class TransactionModel(RuleBasedStateMachine):
    """Four transactional ids, three of them near the last epoch."""

    @initialize()
    def begin(self) -> None:
        wall_ms = 1_700_000_000_000
        self.house = House(
            settings=TransactionSettings(timeout_ms_default=TIMEOUT_MS),
            log=(
                born("old", identity(7, 32_763), wall_ms, TIMEOUT_MS),
                born("oldest", identity(9, 32_766), wall_ms, TIMEOUT_MS),
                born(ALONE, identity(11, 32_764), wall_ms, TIMEOUT_MS),
            ),
            a=2,
            b=1,
        )
        self.house.may_expire = False
        self.made = 0
        self.processes: list[Process] = []
        self.holders: dict[Identity, int] = {}
        self.zombies: dict[tuple[str, Identity], None] = {}
        self.shared: dict[str, None] = {}
        """Ids that more than one process, or an old call of one, has taken over."""
        self.asked: dict[tuple[Identity, Decision], None] = {}
        self.answered: dict[Identity, Decision] = {}
        self.wrote: dict[Identity, str] = {}
        self.tokens: list[tuple[str, Identity]] = []
        self.accepted: list[tuple[Identity, PartitionKey]] = []
        """What a leader may append any time."""
        for name in (*NAMES, ALONE):
            process = self._start(name)
            self._request(process, InitTransactionalProducer(transactional_id=name), "answered")

    def _start(self, name: str) -> Process:
        if any(each.name == name for each in self.processes):
            self.shared[name] = None
        self.made += 1
        process = Process(number=self.made, name=name)
        self.processes.append(process)
        return process

    def _process(self, which: int) -> Process:
        """One makes one call at a time: the one before is given up, its outcome unknown."""
        process = self.processes[which % len(self.processes)]
        for request_id, (before, is_heard) in list(process.waiting.items()):
            process.waiting[request_id] = (before, False)
            if is_heard:
                self._give_up(process, before)
        return process

    def _give_up(self, process: Process, request: msgspec.Struct) -> None:
        process.must_renew = True
        if isinstance(request, EndTransaction):
            process.unknown_end = request

    # What processes do.

    @precondition(lambda self: len(self.processes) < 7)
    @rule(name=st.sampled_from(NAMES))
    def start_another(self, name: str) -> None:
        process = self._start(name)
        self._request(process, InitTransactionalProducer(transactional_id=name), "answered")

    @rule(which=st.integers(0, 9), fate=FATES)
    def take_over(self, which: int, fate: str) -> None:
        process = self._process(which)
        process.must_renew = True
        self._request(
            process,
            InitTransactionalProducer(transactional_id=process.name, expected=process.identity),
            fate,
        )

    @rule(which=st.integers(0, 9), fate=FATES)
    def take_over_from_anybody(self, which: int, fate: str) -> None:
        process = self._process(which)
        if process.name != ALONE:
            self.shared[process.name] = None
            self._request(process, InitTransactionalProducer(transactional_id=process.name), fate)

    @rule(which=st.integers(0, 9), at=st.integers(0, 3), fate=FATES)
    def produce(self, which: int, at: int, fate: str) -> None:
        self._produce(self._process(which), at, fate)

    @rule(
        which=st.integers(0, 9),
        at=st.integers(0, 3),
        decision=st.sampled_from(Decision),
        fate=FATES,
    )
    def transact(self, which: int, at: int, decision: Decision, fate: str) -> None:
        process = self._process(which)
        self._produce(process, at, "answered")
        self._end(process, decision, fate)

    @rule(which=st.integers(0, 9), decision=st.sampled_from(Decision), fate=FATES)
    def end(self, which: int, decision: Decision, fate: str) -> None:
        self._end(self._process(which), decision, fate)

    def _produce(self, process: Process, at: int, fate: str) -> None:
        """As a producer does that goes on after an error."""
        if process.must_renew:
            self._request(
                process,
                InitTransactionalProducer(transactional_id=process.name, expected=process.identity),
                "answered",
            )
        if process.identity is None or process.must_renew or process.is_prepared:
            return
        topics = self.house.topics.items()
        known = [key(name, each) for name, count in topics for each in range(count)]
        self._request(
            process,
            AddPartitions(
                transactional_id=process.name,
                identity=process.identity,
                keys=(known[at % len(known)],),
            ),
            fate,
        )

    def _end(self, process: Process, decision: Decision, fate: str) -> None:
        if process.identity is not None and not process.must_renew:
            self._request(
                process,
                EndTransaction(
                    transactional_id=process.name, identity=process.identity, decision=decision
                ),
                fate,
            )

    @rule(which=st.integers(0, 9), fate=FATES)
    def end_again(self, which: int, fate: str) -> None:
        process = self._process(which)
        if process.unknown_end is not None:
            self._request(process, process.unknown_end, fate)

    @rule(which=st.integers(0, 9), fate=FATES)
    def prepare(self, which: int, fate: str) -> None:
        process = self._process(which)
        if process.identity is not None and not process.must_renew:
            self.tokens.append((process.name, process.identity))
            self._request(
                process,
                PrepareTransaction(
                    transactional_id=process.name, identity=process.identity, principal="alice"
                ),
                fate,
            )

    @precondition(lambda self: self.tokens)
    @rule(
        which=st.integers(0, 9),
        token=st.integers(0, 9),
        decision=st.sampled_from(Decision),
        fate=FATES,
    )
    def decide(self, which: int, token: int, decision: Decision, fate: str) -> None:
        name, decided = self.tokens[-1 - token % len(self.tokens)]
        self._request(
            self._process(which),
            DecidePrepared(transactional_id=name, identity=decided, decision=decision),
            fate,
        )

    @rule(name=st.sampled_from((*NAMES, ALONE)))
    def abort_as_operator(self, name: str) -> None:
        self.house.send(AbortTransaction(transactional_id=name))

    @precondition(lambda self: any(each.late for each in self.processes))
    @rule(which=st.integers(0, 9), place=st.integers(0, 9), count=st.integers(1, 3))
    def process_late(self, which: int, place: int, count: int) -> None:
        """Requests that their sender has given up reach the coordinator after all."""
        late = [each for each in self.processes if each.late]
        process = late[which % len(late)]
        for _ in range(min(count, len(process.late))):
            self._send(process, process.late.pop(place % len(process.late)), is_heard=False)

    @precondition(lambda self: self.accepted)
    @rule(which=st.integers(0, 9))
    def append_late(self, which: int) -> None:
        """A leader was told yes, and gets to the append only now."""
        self._append(*self.accepted.pop(which % len(self.accepted)))

    def _request(self, process: Process, request: msgspec.Struct, fate: str) -> None:
        if isinstance(request, InitTransactionalProducer):
            # From here on it asks for no end any more: a takeover may have aborted.
            process.unknown_end = None
        if fate != "answered":
            self._give_up(process, request)
        if fate == "late":
            process.late.append(request)
            if isinstance(request, InitTransactionalProducer) and request.expected is None:
                assert process.name != ALONE, "it has had an identity since it began"
                self.shared[process.name] = None
            return
        self._send(process, request, is_heard=fate == "answered")

    def _send(self, process: Process, request: msgspec.Struct, *, is_heard: bool) -> None:
        if isinstance(request, EndTransaction | DecidePrepared):
            self.asked[request.identity, request.decision] = None
        was_zombie = self._is_zombie(request)
        request_id = self.house.send(request)
        result = self.house.answers.get(request_id)
        assert not (was_zombie and isinstance(result, SUCCESS)), f"{request} of a zombie: {result}"
        process.waiting[request_id] = (request, is_heard)
        self._read_answers()

    def _is_zombie(self, request: msgspec.Struct) -> bool:
        if isinstance(request, AddPartitions | EndTransaction | PrepareTransaction):
            return (request.transactional_id, request.identity) in self.zombies
        return False

    # What they hear.

    def _read_answers(self) -> None:
        # In the order in which the core took the requests.
        for request_id in sorted(self.house.answers):
            for process in self.processes:
                if request_id in process.waiting:
                    request, is_heard = process.waiting.pop(request_id)
                    result = self.house.answers.pop(request_id)
                    self._judge(request, result)
                    if is_heard:
                        self._hear(process, request, result)

    def _judge(self, request: msgspec.Struct, result: object) -> None:
        """What an answer says is true whoever hears it."""
        match request, result:
            case AddPartitions(), AddPartitionsAnswer():
                self._check_committed(request)
                self.accepted += [(request.identity, each) for each in request.keys]
            case (EndTransaction(), EndAnswer()) | (DecidePrepared(), DecideAnswer()):
                assert isinstance(request, EndTransaction | DecidePrepared)
                told = self.answered.setdefault(request.identity, request.decision)
                assert told is request.decision, f"{request.identity} was told {told}"
            case InitTransactionalProducer(), InitAnswer() if request.expected is None:
                assert isinstance(result, InitAnswer)
                for each in [each for each in self.holders if each != result.identity]:
                    self.zombies[request.transactional_id, each] = None
            case _:
                pass

    def _check_committed(self, request: AddPartitions) -> None:
        """Yes is said of what no failover takes back."""
        for record in reversed(self.house.log[: self.house.committed_end]):
            decoded = decode_record(record.key, record.value)
            assert decoded is not None
            if decoded[0].transactional_id == request.transactional_id:
                value = decoded[1]
                if value is not None and value.current == request.identity:
                    touched = {(each.topic_id, n) for each in value.topics for n in each.partitions}
                    if all((each.topic_id, each.partition) in touched for each in request.keys):
                        return
        raise AssertionError(f"{request} is answered yes and stands nowhere")

    def _hear(self, process: Process, request: msgspec.Struct, result: object) -> None:
        match result:
            case InitAnswer() | EndAnswer():
                assert result.identity.producer_epoch <= EPOCH_MAX, f"{result.identity} works"
                holder = self.holders.setdefault(result.identity, process.number)
                assert holder == process.number, f"{result.identity} works for two processes"
                process.identity = result.identity
                process.must_renew = process.is_prepared = False
                process.unknown_end = None
            case AddPartitionsAnswer():
                self._append(*self.accepted.pop())
            case PrepareAnswer():
                process.is_prepared = True
            case TidelogError():
                self._hear_refusal(process, request, result)
            case _:
                pass

    def _hear_refusal(self, process: Process, request: msgspec.Struct, error: TidelogError) -> None:
        if error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
            is_own = process.name not in self.shared
            assert not is_own, f"{process} has the id for itself and is fenced: {request} {error}"
            process.identity = None
            process.must_renew = True
        elif error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            process.must_renew |= not isinstance(request, DecidePrepared)

    def _append(self, of: Identity, at: PartitionKey) -> None:
        name = next(
            (each.name for each in self.processes if self.holders.get(of) == each.number), ""
        )
        is_gone = all(key(topic, 0).topic_id != at.topic_id for topic in self.house.topics)
        if not is_gone and self.house.leaders.produce(at, of):
            self.wrote[of] = name

    # What befalls them.

    @precondition(lambda self: self.house.sends)
    @rule(
        which=st.integers(0, 9),
        count=st.integers(1, 2),
        how=st.sampled_from(["taken", "lost", "refused", "unknown topic"]),
    )
    def answer_markers(self, which: int, count: int, how: str) -> None:
        send_id = list(self.house.sends)[which % len(self.house.sends)]
        keys = self.house.sends[send_id].keys[:count]
        code = {
            "lost": ErrorCode.DEADLINE_EXCEEDED,
            "refused": ErrorCode.NOT_LEADER,
            "unknown topic": ErrorCode.UNKNOWN_TOPIC_ID,
        }.get(how)
        error = TidelogError(code, tried="write", happened="said the leader") if code else None
        self.house.answer_markers(send_id, keys, error, is_taken=how in ("taken", "lost"))
        self._read_answers()

    @rule(ms=st.sampled_from([1, 60, 300, TIMEOUT_MS]))
    def pass_time(self, ms: int) -> None:
        self.house.pass_time(ms)
        self._read_answers()

    @rule(count=st.integers(1, 3))
    def commit_appends(self, count: int) -> None:
        self.house.commit(min(count, len(self.house.ends)))
        self._read_answers()

    @rule(surviving=st.integers(0, 4))
    def fail_over(self, surviving: int) -> None:
        self.house.fail_over(min(surviving, len(self.house.ends)))
        self._read_answers()

    @rule(
        what=st.sampled_from(["leaders", "leaders", "log", "producer ids"]),
        is_well=st.sampled_from([True, False]),
    )
    def change_the_weather(self, what: str, is_well: bool) -> None:
        match what:
            case "leaders":
                self.house.are_leaders_up = is_well
            case "log":
                self.house.is_auto = is_well
            case _:
                self.house.is_granting = is_well
                if is_well and self.house.is_asked_for_ids:
                    self.house.grant(20)

    @rule(is_new=st.booleans())
    def change_topics(self, is_new: bool) -> None:
        known = [each for each in self.house.topics if each.startswith("c")]
        if is_new:
            self.made += 1
            self.house.set_topic(f"c{self.made}", 1)
        elif known:
            self.house.delete_topic(known[0])
            self._read_answers()

    @rule(back=st.integers(0, 12))
    def continue_from_an_earlier_record(self, back: int) -> None:
        """Any prefix of the log, continued, ends what it holds as the live core does."""
        length = max(0, len(self.house.log) - back)
        loaded = self.house.load(self.house.log[:length])
        before = {name: each.value for name, each in loaded.transactions.by_id.items()}
        _run(self.house, loaded)
        for name, value in before.items():
            after = loaded.transactions.by_id[name].value
            if not value.is_ending:
                assert after == value, f"`{name}`: a load has changed {value} to {after}"
                continue
            live = self._next_record(name, length)
            expected = live if live is not None else after
            assert not after.is_ending, f"`{name}` is not completed"
            assert _essence(after) == _essence(expected), f"`{name}`: {after}, and {expected} live"
            assert after.current == value.successor

    def _next_record(self, name: str, length: int) -> TransactionValue | None:
        for record in self.house.log[length:]:
            decoded = decode_record(record.key, record.value)
            if decoded is not None and decoded[0].transactional_id == name:
                return decoded[1]
        return None

    # What must hold.

    @invariant()
    def nothing_is_committed_that_nobody_asked_for(self) -> None:
        for (producer_id, epoch), decision in self.house.leaders.decisions.items():
            of = identity(producer_id, epoch)
            if decision is Decision.COMMIT:
                assert (of, decision) in self.asked, f"{of} is committed by nobody"
            told = self.answered.get(of, decision)
            assert told is decision, f"{of} was told {told}, and is {decision.name}"

    @invariant()
    def no_id_has_two_open_transactions(self) -> None:
        open_of: dict[str, Identity] = {}
        for producer_id, epochs in self.house.leaders.open_transactions().items():
            for epoch in epochs:
                of = identity(producer_id, epoch)
                other = open_of.setdefault(self.wrote[of], of)
                assert other == of, f"`{self.wrote[of]}` has {other} and {of} open"

    def teardown(self) -> None:
        house = self.house
        if house.is_deposed:
            house.fail_over()
        house.is_auto = house.are_leaders_up = house.is_granting = True
        house.commit(len(house.ends))
        if house.is_asked_for_ids:
            house.grant(100)
        house.answer_all(ErrorCode.NOT_LEADER, is_taken=False)
        house.pass_time(5 * TIMEOUT_MS)
        self._read_answers()
        states = {name: house.value(name).state for name in house.core.transactions.by_id}
        prepared = [name for name, each in states.items() if each is TransactionState.PREPARED]
        for name, each in states.items():
            is_done = name in prepared or house.value(name).is_idle
            assert is_done, f"`{name}` is {each.name} though everything is calm"
        for name in prepared:
            house.send(
                DecidePrepared(
                    transactional_id=name,
                    identity=house.value(name).current,
                    decision=Decision.ABORT,
                )
            )
        house.pass_time(5 * TIMEOUT_MS)
        assert not house.leaders.open_transactions(), "something is open, and nothing in progress"
        self.nothing_is_committed_that_nobody_asked_for()


def _essence(value: TransactionValue) -> TransactionValue:
    return msgspec.structs.replace(value, updated_ms=0)


def _run(house: House, core: TransactionCoordinatorCore) -> None:
    """Everything is answered and committed at once; no time passes."""
    now = {"now_ms": house.now_ms, "wall_ms": house.wall_ms}
    topics = {key(name, 0).topic_id: count for name, count in house.topics.items()}
    effects: list[Effect] = [
        *core.step(TransactionsLoaded(coordinator_epoch=LeaderEpoch(10_000), **now)),
        *core.step(TransactionTopics(partition_counts=topics, **now)),
    ]
    while effects:
        effect = effects.pop(0)
        match effect:
            case AppendRecords():
                effects += core.completed(AppendCommitted(token=effect.token))
            case SendMarkers():
                results = tuple((each, None) for each in effect.keys)
                effects += core.step(
                    MarkersAnswered(send_id=effect.send_id, results=results, **now)
                )
            case _:
                pass
