"""What stands around a coordinator's core: appends before answers, markers after decisions."""

import asyncio

import pytest

from tests.broker.support.hand_log import turns
from tests.broker.support.transaction_glue import (
    AT_NOBODY,
    AT_OTHER,
    AT_OWN,
    REFUSED,
    Glue,
    with_glue,
)
from tests.broker.transactions.support.house import born, identity
from tests.broker.transactions.support.requests import abort, add, commit, decide, init, prepare
from tidelog.broker.coordination.log import KeyValue
from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    DecideAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.invariants import check
from tidelog.broker.transactions.state.messages import (
    PrepareTransaction,
    TransactionSettings,
    TransactionSettingsChanged,
)
from tidelog.broker.transactions.state.states import EPOCH_MAX, Decision, TransactionState
from tidelog.chaos.sim.ports.clock import WALL_START_MS
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch

LAST = identity(7, EPOCH_MAX)


async def begun(glue: Glue) -> Identity:
    """A producer with a transaction in progress on its own broker and the other."""
    by = (await glue.ask(init(), InitAnswer)).identity
    await glue.ask(add(by, AT_OWN, AT_OTHER), AddPartitionsAnswer)
    return by


def states(glue: Glue) -> list[TransactionState]:
    """As they were committed."""
    return [each.state for each in glue.shelf.values()]


def test_an_answer_waits_for_its_append_and_markers_for_the_decision() -> None:
    async def work(glue: Glue) -> None:
        by = await begun(glue)
        glue.shelf.is_auto = False
        asked = asyncio.ensure_future(glue.ask(commit(by), EndAnswer))
        await turns()
        assert not asked.done()
        assert glue.leaders.calls == [], "a decision that is not committed can be taken back"
        await glue.shelf.commit()
        assert asked.done()
        assert len(glue.leaders.calls) == 2
        await glue.shelf.commit()
        assert states(glue)[-1] is TransactionState.COMPLETE_COMMIT
        assert glue.meter.transactions_committed == 1

    with_glue(work)


def test_an_end_is_complete_only_when_every_leader_has_said_so() -> None:
    """Trap 12, the sender's side: offsets at `__groups` are a partition among the others."""

    async def work(glue: Glue) -> None:
        groups = glue.leaders.hang(AT_OTHER)
        by = await begun(glue)
        await glue.ask(commit(by), EndAnswer)
        await turns()
        assert states(glue)[-1] is TransactionState.PREPARE_COMMIT
        next_one = identity(by.producer_id, by.producer_epoch + 1)
        assert await glue.code(add(next_one, AT_OWN)) is ErrorCode.CONCURRENT_TRANSACTIONS
        groups.set_result(None)
        await turns()
        assert states(glue)[-1] is TransactionState.COMPLETE_COMMIT
        await glue.ask(add(next_one, AT_OWN), AddPartitionsAnswer)

    with_glue(work)


def test_what_a_leader_refuses_is_sent_again_to_it_alone() -> None:
    async def work(glue: Glue) -> None:
        glue.leaders.answers[AT_OTHER] = REFUSED
        by = await begun(glue)
        await glue.ask(commit(by), EndAnswer)
        await glue.pass_ms(1_000)
        assert len(glue.leaders.sent(AT_OWN)) == 1
        assert len(glue.leaders.sent(AT_OTHER)) > 2
        assert len(set(map(repr, glue.leaders.sent(AT_OTHER)))) == 1, "it is the same marker"
        del glue.leaders.answers[AT_OTHER]
        await glue.pass_ms(2_000)
        assert states(glue)[-1] is TransactionState.COMPLETE_COMMIT

    with_glue(work)


def test_a_failover_sends_the_markers_of_every_decision_that_it_loads() -> None:
    async def work(glue: Glue) -> None:
        lost = glue.leaders.hang(AT_OTHER)
        by = await begun(glue)
        await glue.ask(abort(by), EndAnswer)
        await turns()
        del glue.leaders.hanging[AT_OTHER]
        await glue.lead()
        assert [each.coordinator_epoch for each in glue.leaders.sent(AT_OTHER)] == [1, 2]
        assert states(glue)[-1] is TransactionState.COMPLETE_ABORT
        lost.cancel()

    with_glue(work)


def test_what_was_answered_to_the_core_before_is_not_told_to_the_next() -> None:
    """Each core counts its sendings from 1: an answer of before would be taken for one of now."""

    async def work(glue: Glue) -> None:
        old = glue.leaders.hang(AT_OTHER)
        by = await begun(glue)
        await glue.ask(commit(by), EndAnswer)
        await turns()
        new = glue.leaders.hang(AT_OTHER)
        await glue.lead()
        cores = len(glue.cores)
        # The leader has heard of the newer coordinator, which is on this very broker.
        old.set_result(TidelogError(ErrorCode.NOT_COORDINATOR, tried="write", happened="a newer"))
        await turns()
        assert len(glue.cores) == cores, "the new one was not deposed"
        assert states(glue)[-1] is TransactionState.PREPARE_COMMIT
        new.set_result(None)
        await turns()
        assert states(glue)[-1] is TransactionState.COMPLETE_COMMIT

    with_glue(work)


def test_a_coordinator_that_a_leader_calls_old_steps_down() -> None:
    async def work(glue: Glue) -> None:
        glue.leaders.answers[AT_OTHER] = TidelogError(
            ErrorCode.NOT_COORDINATOR, tried="write", happened="a newer one has written"
        )
        by = await begun(glue)
        await glue.ask(commit(by), EndAnswer)
        await turns()
        assert glue.it.core is None
        assert await glue.code(init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_glue(work)


def test_whoever_waits_when_an_append_fails_asks_again_and_finds_the_state_before_it() -> None:
    async def work(glue: Glue) -> None:
        by = await begun(glue)
        glue.shelf.is_auto = False
        asked = asyncio.ensure_future(glue.code(commit(by)))
        await turns()
        await glue.shelf.lose()
        assert await asked is ErrorCode.NOT_COORDINATOR
        glue.shelf.is_auto = True
        await glue.lead()
        after = (await glue.ask(commit(by), EndAnswer)).identity
        assert after == identity(by.producer_id, by.producer_epoch + 1)

    with_glue(work)


def test_who_is_no_coordinator_says_so_before_anything_is_waited_for() -> None:
    """Trap 21."""

    async def work(glue: Glue) -> None:
        glue.is_in_contact = False
        glue.it.lead(None)
        asked = glue.it.ask(init())
        with pytest.raises(TidelogError) as caught:
            asked.send(None)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    with_glue(work)


def test_who_was_replaced_and_has_not_heard_of_it_fences_nobody() -> None:
    """What was never appended proves nothing: the next coordinator may have given the identity."""

    async def work(glue: Glue) -> None:
        by = (await glue.ask(init(), InitAnswer)).identity
        newer = identity(by.producer_id, by.producer_epoch + 1)
        glue.shelf.is_auto = False
        for request in (commit(newer), commit(by, "other"), decide(newer, Decision.COMMIT, "u")):
            asked = asyncio.ensure_future(glue.code(request))
            await turns()
            assert not asked.done()
            await glue.shelf.lose()
            assert await asked is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert glue.meter.transaction_fences == 0
        # One append speaks for all who were refused before it began.
        zombies = [asyncio.ensure_future(glue.code(commit(newer))) for _ in range(3)]
        await turns()
        assert len(glue.shelf.under_way) == 1
        await glue.shelf.commit()
        await glue.shelf.commit()
        assert {await each for each in zombies} == {ErrorCode.FENCED_PRODUCER_EPOCH}

    with_glue(work)


def test_a_later_leadership_does_not_vouch_for_an_earlier_refusal() -> None:
    async def work(glue: Glue) -> None:
        by = (await glue.ask(init(), InitAnswer)).identity
        newer = identity(by.producer_id, by.producer_epoch + 1)
        glue.shelf.is_auto = False
        asked = asyncio.ensure_future(glue.code(commit(newer)))
        await turns()
        glue.it.lead(LeaderEpoch(3))
        await turns()
        await glue.shelf.lose()
        glue.shelf.is_auto = True
        assert await asked is ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_glue(work)


def test_taking_over_at_the_last_epoch_takes_one_epoch_and_rotates() -> None:
    """Traps 7 and 8: the answer's identity is the new one, and it may be told before its time."""

    async def work(glue: Glue) -> None:
        await glue.ask(add(LAST, AT_OWN, AT_OTHER), AddPartitionsAnswer)
        waits = glue.leaders.hang(AT_OTHER)
        assert await glue.code(init()) is ErrorCode.CONCURRENT_TRANSACTIONS
        await turns()
        (marker,) = glue.leaders.sent(AT_OWN)
        assert marker.identity == identity(7, EPOCH_MAX + 1), "one epoch, never two"
        assert glue.shelf.values()[-1].next_producer_id == 5_000
        # A leader that asks for the coming identity is told "again", not that it is a zombie.
        asked = add(identity(5_000, 0), AT_OWN)
        assert await glue.code(asked) is ErrorCode.CONCURRENT_TRANSACTIONS
        waits.set_result(None)
        await turns()
        taken = (await glue.ask(init(), InitAnswer)).identity
        assert taken.producer_id == 5_000
        check(glue.cores[-1].transactions)

    with_glue(work, born("t", LAST, WALL_START_MS))


def test_a_timeout_at_the_last_epoch_rotates_beside_a_delayed_abort() -> None:
    """Trap 9: nothing stays open, also when there was no producer id at first."""

    async def work(glue: Glue) -> None:
        glue.ids.is_there = False
        await glue.lead()
        await glue.ask(add(LAST, AT_OWN), AddPartitionsAnswer)
        assert await glue.code(abort(LAST)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await glue.pass_ms(62_000)
        assert states(glue)[-1] is TransactionState.ONGOING, "put off, never left out"
        glue.ids.is_there = True
        await glue.pass_ms(3_000)
        assert states(glue)[-1] is TransactionState.COMPLETE_ABORT
        assert await glue.code(abort(LAST)) is ErrorCode.TRANSACTION_ABORTED
        goes_on = (await glue.ask(init(LAST), InitAnswer)).identity
        assert goes_on == identity(5_100, 0)
        assert glue.meter.transaction_timeouts == 1

    with_glue(work, born("t", LAST, WALL_START_MS))


@pytest.mark.parametrize("is_moved", [False, True])
def test_every_open_transaction_times_out_also_one_that_was_loaded(is_moved: bool) -> None:
    """Trap 23."""

    async def work(glue: Glue) -> None:
        by = await begun(glue)
        if is_moved:
            await glue.pass_ms(50_000)
            await glue.lead()
        await glue.pass_ms(59_000)
        assert states(glue)[-1] is TransactionState.ONGOING, "in full after a load"
        await glue.pass_ms(2_000)
        assert states(glue)[-1] is TransactionState.COMPLETE_ABORT
        assert {each.key for each in glue.leaders.sent(AT_OWN)} == {AT_OWN}
        assert await glue.code(commit(by)) is ErrorCode.TRANSACTION_ABORTED
        noted = [values["what"] for event, values in glue.events.told if "noted" in event]
        assert noted == ["timed_out"]

    with_glue(work)


def test_a_prepared_transaction_has_no_timeout_and_is_decided_by_its_token() -> None:
    """Trap 32."""

    async def work(glue: Glue) -> None:
        by = await begun(glue)
        await glue.ask(prepare(by), PrepareAnswer)
        assert glue.it.prepared() == {"alice": 1}
        await glue.pass_ms(100_000)
        await glue.lead()
        await glue.pass_ms(100_000)
        assert states(glue)[-1] is TransactionState.PREPARED
        assert glue.leaders.calls == []
        noted = [values["what"] for event, values in glue.events.told if "noted" in event]
        assert set(noted) == {"prepared_long"}
        assert await glue.code(init()) is ErrorCode.TRANSACTION_PREPARED
        for _ in range(2):
            await glue.ask(decide(by, Decision.COMMIT), DecideAnswer)
            await turns()
        assert states(glue)[-1] is TransactionState.COMPLETE_COMMIT
        assert glue.it.prepared() == {}

    with_glue(work)


def test_what_is_prepared_elsewhere_counts_also_after_a_failover() -> None:
    async def work(glue: Glue) -> None:
        glue.it.hear_prepared({"alice": 10})
        by = await begun(glue)
        assert await glue.code(prepare(by)) is ErrorCode.RESOURCE_EXHAUSTED
        await glue.lead()
        assert await glue.code(prepare(by)) is ErrorCode.RESOURCE_EXHAUSTED
        bobs = PrepareTransaction(transactional_id="t", identity=by, principal="bob")
        await glue.ask(bobs, PrepareAnswer)

    with_glue(work)


def test_a_partition_that_nobody_leads_keeps_the_end_from_being_complete() -> None:
    async def work(glue: Glue) -> None:
        by = (await glue.ask(init(), InitAnswer)).identity
        await glue.ask(add(by, AT_NOBODY, AT_OWN), AddPartitionsAnswer)
        await glue.ask(commit(by), EndAnswer)
        await glue.pass_ms(5_000)
        assert states(glue)[-1] is TransactionState.PREPARE_COMMIT
        # Until its topic is deleted, as this broker knows it.
        glue.it.show({})
        await turns()
        assert states(glue)[-1] is TransactionState.COMPLETE_COMMIT

    with_glue(work)


def is_tombstone(record: KeyValue) -> bool:
    """Whether its key is gone."""
    return record[1] is None


def test_an_id_is_forgotten_only_while_the_node_s_clock_is_trusted() -> None:
    async def work(glue: Glue) -> None:
        await glue.ask(init(), InitAnswer)
        glue.it.configure(
            TransactionSettingsChanged(settings=TransactionSettings(id_expiration_ms=60_000))
        )
        glue.time.is_trusted = False
        await glue.pass_ms(1_300_000, 10_000)
        assert not is_tombstone(glue.shelf.records[-1])
        glue.time.is_trusted = True
        await glue.pass_ms(610_000, 10_000)
        assert is_tombstone(glue.shelf.records[-1])
        assert glue.it.core is not None
        assert glue.it.core.transactions.by_id == {}

    with_glue(work)


def test_zombies_are_counted() -> None:
    async def work(glue: Glue) -> None:
        by = (await glue.ask(init(), InitAnswer)).identity
        await glue.ask(init(), InitAnswer)
        assert await glue.code(commit(by)) is ErrorCode.FENCED_PRODUCER_EPOCH
        assert glue.meter.transaction_fences == 1

    with_glue(work)
