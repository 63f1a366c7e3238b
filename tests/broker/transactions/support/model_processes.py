"""Processes that produce in transactions, what they send, what they hear, and whether that is true.

Owns everything of the model but its rules: see `transaction_model`.
"""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from tests.broker.transactions.support.house import House, born, identity, key
from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    DecideAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.messages import (
    AddPartitions,
    DecidePrepared,
    EndTransaction,
    InitTransactionalProducer,
    PrepareTransaction,
    TransactionSettings,
)
from tidelog.broker.transactions.state.records import decode_record
from tidelog.broker.transactions.state.states import (
    EPOCH_MAX,
    Decision,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

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


class Producers(RuleBasedStateMachine):
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
        self.standing: dict[Identity, str] = {}
        """Prepared, as somebody was told."""
        self.asked_by_token: dict[tuple[Identity, Decision], None] = {}
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
        if isinstance(request, DecidePrepared):
            self.asked_by_token[request.identity, request.decision] = None
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
            case PrepareTransaction(), PrepareAnswer():
                self.standing[request.identity] = request.transactional_id
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

    def _pass_time(self, ms: int) -> None:
        self.house.pass_time(ms)
        self._read_answers()
