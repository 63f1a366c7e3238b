"""What the glue does for a core that stages offsets: asks, appends, is refused, is deposed.

Trap 21 (redpanda 23176): a call while the partition changes leaders is answered NOT_COORDINATOR
before any lock or wait. Trap 31 (librdkafka 5511), the broker's side: it is answered although the
coordinator of the transaction never is.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.broker.groups.coordinator.test_coordinator import AT, Coordinator
from tests.broker.support.hand_log import HandLog, turns
from tidelog.broker.groups.state.answers import Response
from tidelog.broker.groups.state.messages import AnyRequest, EndStaged
from tidelog.broker.groups.state.records import MEANINGLESS
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.ports import TaskScope
from tidelog.wire.calls.groups import (
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    OffsetToCommit,
    SendOffsets,
    SendOffsetsAnswer,
    StoredOffset,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId

SENT = OffsetToCommit(key=AT, committed_offset=Offset(5), leader_epoch=LeaderEpoch(-1))
SEND = SendOffsets(
    transactional_id="x",
    producer_id=ProducerId(7),
    producer_epoch=ProducerEpoch(0),
    group="g",
    offsets=(SENT,),
)
END = EndStaged(end=Identity(ProducerId(7), ProducerEpoch(1)), decision=Decision.COMMIT)
Work = Callable[[Coordinator, HandLog], Awaitable[None]]


def run(work: Work) -> None:
    """A coordinator that leads in epoch 1."""

    async def main() -> None:
        coordinator = Coordinator()
        async with TaskScope() as scope:
            scope.start(coordinator.it.run(), name="coordinator")
            coordinator.it.lead(LeaderEpoch(1))
            await turns()
            await work(coordinator, coordinator.logs[1])
            scope.cancel()

    asyncio.run(main())


def ask(coordinator: Coordinator, request: AnyRequest) -> "asyncio.Future[Response]":
    return asyncio.ensure_future(coordinator.it.ask(request))


def code_of(asked: "asyncio.Future[Response]") -> ErrorCode:
    error = asked.exception()
    assert isinstance(error, TidelogError), error
    return error.code


def test_offsets_are_verified_appended_in_the_transaction_and_then_answered() -> None:
    async def work(coordinator: Coordinator, log: HandLog) -> None:
        asked = ask(coordinator, SEND)
        await turns()
        assert not log.appends, "the coordinator of the transaction is asked first"
        log.verifying[0].set_result(None)
        await turns()
        assert log.producers == [(7, 0)]
        assert not asked.done(), "it is not committed yet"
        await log.end(0)
        assert asked.result() == SendOffsetsAnswer()
        ended = ask(coordinator, END)
        await turns()
        assert log.producers == [(7, 0), None], "the fold is no part of any transaction"
        assert not ended.done(), "trap 12: the marker is answered when the offsets show"
        await log.end(1)
        await ended
        fetched = ask(coordinator, FetchOffsets(group="g", require_stable=True))
        await turns()
        assert not fetched.done(), "a reader goes on from what a coordinator can vouch for"
        assert log.appends[-1] == [MEANINGLESS]
        await log.end(2)
        found = fetched.result()
        assert isinstance(found, FetchOffsetsAnswer)
        ((_, stored),) = found.offsets
        assert isinstance(stored, StoredOffset)
        assert stored.committed_offset == 5

    run(work)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FENCED_PRODUCER_EPOCH,
        ErrorCode.INVALID_TRANSACTION_STATE,
    ],
)
def test_an_append_that_its_partition_refuses_takes_no_other_with_it(code: ErrorCode) -> None:
    async def work(coordinator: Coordinator, log: HandLog) -> None:
        asked = ask(coordinator, SEND)
        await turns()
        log.verifying[0].set_result(None)
        await turns()
        plain = ask(coordinator, CommitOffsets(group="g", offsets=(SENT,)))
        await turns()
        await log.refuse(0, TidelogError(code, tried="append", happened="a marker was first"))
        assert code_of(asked) is code
        await log.end(1)
        await plain
        assert log.loads == 1, "nothing is loaded anew"
        core = coordinator.it.core
        assert core is not None
        assert not core.groups["g"].staged

    run(work)


@pytest.mark.parametrize("is_in_the_log", [False, True])
def test_trap_13_an_end_waits_until_it_is_known_what_was_before_it(is_in_the_log: bool) -> None:
    """The marker is committed, and of an append of its transaction nobody knows yet: behind the
    marker it is refused, and must not count."""

    async def work(coordinator: Coordinator, log: HandLog) -> None:
        asked = ask(coordinator, SEND)
        await turns()
        log.verifying[0].set_result(None)
        await turns()
        ended = ask(coordinator, END)
        await turns()
        assert len(log.appends) == 1, "nothing is folded yet"
        if is_in_the_log:
            await log.end(0)
            await log.end(1)
        else:
            over = TidelogError(
                ErrorCode.TRANSACTION_ABORTED, tried="append", happened="it is over"
            )
            await log.refuse(0, over)
            assert code_of(asked) is ErrorCode.TRANSACTION_ABORTED
        await ended
        found = await coordinator.it.ask(FetchOffsets(group="g"))
        assert isinstance(found, FetchOffsetsAnswer)
        assert len(found.offsets) == is_in_the_log

    run(work)


def test_an_append_whose_fate_is_unknown_ends_the_core() -> None:
    async def work(coordinator: Coordinator, log: HandLog) -> None:
        asked = ask(coordinator, SEND)
        await turns()
        log.verifying[0].set_result(None)
        await turns()
        await log.refuse(0, TidelogError(ErrorCode.STORAGE_FAILED, tried="append", happened="EIO"))
        assert code_of(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert coordinator.it.core is None

    run(work)


@pytest.mark.parametrize("phase", ["verifying", "appending", "ending"])
def test_trap_21_who_leads_no_more_says_so_at_once_whatever_is_waited_for(phase: str) -> None:
    async def work(coordinator: Coordinator, log: HandLog) -> None:
        asked = ask(coordinator, SEND)
        await turns()
        if phase != "verifying":
            log.verifying[0].set_result(None)
            await turns()
        if phase == "ending":
            await log.end(0)
            await asked
            asked = ask(coordinator, END)
            await turns()
        assert not asked.done()
        coordinator.it.lead(None)
        await asyncio.sleep(0)
        assert code_of(asked) is ErrorCode.NOT_COORDINATOR
        for request in (SEND, END, CommitOffsets(group="g", offsets=(SENT,))):
            # No turn of the loop, hence no lock and no wait.
            with pytest.raises(TidelogError) as caught:
                coordinator.it.ask(request).send(None)
            assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(work)


def test_trap_31_who_cannot_reach_the_transaction_s_coordinator_says_so_and_serves_others() -> None:
    async def work(coordinator: Coordinator, log: HandLog) -> None:
        asked = ask(coordinator, SEND)
        plain = ask(coordinator, CommitOffsets(group="g", offsets=(SENT,)))
        await turns()
        await log.end(0)
        await plain
        gone = TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, tried="add partitions", happened="no answer"
        )
        log.verifying[0].set_exception(gone)
        await turns()
        assert code_of(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(log.appends) == 1, "nothing of it was stored"

    run(work)


def test_a_partition_that_is_led_elsewhere_is_the_group_s_and_not_the_producer_s_affair() -> None:
    async def work(coordinator: Coordinator, log: HandLog) -> None:
        asked = ask(coordinator, SEND)
        await turns()
        moved = TidelogError(ErrorCode.NOT_LEADER, tried="verify", happened="2 leads it")
        log.verifying[0].set_exception(moved)
        await turns()
        assert code_of(asked) is ErrorCode.NOT_COORDINATOR

    run(work)
