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
from hypothesis.stateful import invariant, precondition, rule

from tests.broker.transactions.support.house import House, identity, key
from tests.broker.transactions.support.model_processes import (
    ALONE,
    FATES,
    NAMES,
    TIMEOUT_MS,
    Producers,
)
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.answers import (
    Identity,
)
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    AppendCommitted,
    AppendRecords,
    DecidePrepared,
    Effect,
    InitTransactionalProducer,
    MarkersAnswered,
    PrepareTransaction,
    SendMarkers,
    TransactionsLoaded,
    TransactionTopics,
)
from tidelog.broker.transactions.state.records import TransactionValue, decode_record
from tidelog.broker.transactions.state.states import (
    SUCCESSION_OF,
    Decision,
    Succession,
    TransactionState,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch


class TransactionModel(Producers):
    """What happens to them."""

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
        if fate == "answer lost" and process.unknown_end is not None:
            self._request(process, process.unknown_end, "answered")

    @rule(which=st.integers(0, 9), at=st.integers(0, 3), decision=st.sampled_from(Decision))
    def end_in_vain_and_go_on(self, which: int, at: int, decision: Decision) -> None:
        """The end arrives when the next transaction has begun."""
        process = self._process(which)
        self._produce(process, at, "answered")
        self._end(process, decision, "late")
        for _ in range(3):
            self._produce(process, at, "answered")
        while process.late:
            self._send(process, process.late.pop(), is_heard=False)

    @rule(which=st.integers(0, 9), at=st.integers(0, 3))
    def stall_and_go_on(self, which: int, at: int) -> None:
        process = self._process(which)
        self._produce(process, at, "answered")
        self._pass_time(TIMEOUT_MS)
        for _ in range(3):
            self._produce(process, at, "answered")

    @rule(which=st.integers(0, 9), decision=st.sampled_from(Decision), fate=FATES)
    def end(self, which: int, decision: Decision, fate: str) -> None:
        self._end(self._process(which), decision, fate)

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
        self._pass_time(ms)

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
    def what_is_prepared_stands_until_its_token_or_an_operator_decides(self) -> None:
        for of, name in self.standing.items():
            value = self.house.value(name)
            if value.current == of:
                assert value.state is TransactionState.PREPARED, f"{of} stands, and is {value}"
            elif value.last == of and value.succession is not Succession.OPERATOR:
                asked = [each for each in Decision if (of, each) in self.asked_by_token]
                told = [SUCCESSION_OF[each] for each in asked]
                assert value.succession in told, f"{of} was prepared, and is {value}"

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
