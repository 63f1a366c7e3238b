"""Batches of transactions at the produce handler: what is asked, and what producers hear."""

import asyncio

import pytest

from tests.broker.support.admission_house import (
    FENCED,
    AdmissionHouse,
    addressed,
    key_of,
    sealed,
    with_house,
)
from tidelog.broker.services.produce import admission
from tidelog.broker.services.produce.handler import Acks, PartitionAcknowledgement
from tidelog.broker.transactions import verifier
from tidelog.broker.transactions.state.states import EPOCH_MAX, FENCING_EPOCH
from tidelog.wire.batch import encode_batch
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.errors import ErrorCode, TidelogError

AWAY = TidelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, tried="add", happened="nobody leads")
BUSY = TidelogError(ErrorCode.CONCURRENT_TRANSACTIONS, tried="add", happened="not completed yet")


def code_of(answer: PartitionAcknowledgement) -> ErrorCode | None:
    return None if answer.error is None else answer.error.code


def test_one_transaction_in_several_partitions_is_one_question() -> None:
    async def work(house: AdmissionHouse) -> None:
        answers = await house.write(*(addressed(sealed(5), number) for number in range(4)))
        assert [code_of(answer) for answer in answers] == [None] * 4
        (question,) = house.coordinator.questions
        assert question.transactional_id == "t"
        assert question.keys == tuple(key_of(number) for number in range(4))
        assert question.timeout_ms == 10_000, "the deadline of the request"
        assert house.meter.verifications == 1

    with_house(work, partitions=4)


def test_what_the_coordinator_says_goes_to_the_producer_and_nothing_is_stored() -> None:
    async def work(house: AdmissionHouse) -> None:
        house.coordinator.refusal = FENCED
        (answer,) = await house.write(addressed(sealed(5)))
        assert code_of(answer) is FENCED.code
        assert answer.error is not None
        assert "t-0" in answer.error.tried, "in the words of the producer"
        assert await house.headers() == []
        assert house.meter.verification_refusals == {FENCED.code.name: 1}

    with_house(work)


def test_later_batches_wait_for_the_same_answer() -> None:
    async def work(house: AdmissionHouse) -> None:
        house.coordinator.is_prompt = False
        writing = [house.begin(addressed(sealed(5, sequence))) for sequence in range(3)]
        await house.settled()
        (question,) = house.coordinator.questions
        question.answer.set_result(None)
        answers = [(await each)[0] for each in writing]
        assert [answer.base_offset for answer in answers] == [0, 1, 2]

    with_house(work)


def test_an_answer_that_arrives_after_the_leadership_changed_verifies_nothing() -> None:
    async def work(house: AdmissionHouse) -> None:
        house.coordinator.is_prompt = False
        writing = house.begin(addressed(sealed(5)))
        await house.settled()
        await house.lead_anew(2)
        (answer,) = await writing
        assert code_of(answer) is ErrorCode.FENCED_LEADER_EPOCH
        house.coordinator.questions[0].answer.set_result(None)
        await house.settled()
        again = house.begin(addressed(sealed(5)))
        await house.settled()
        assert len(house.coordinator.questions) == 2
        house.coordinator.questions[1].answer.set_result(None)
        assert code_of((await again)[0]) is None

    with_house(work)


def test_trap_3_an_abort_between_answer_and_append_is_found_in_the_turn() -> None:
    async def work(house: AdmissionHouse) -> None:
        house.coordinator.is_prompt = False
        writing = house.begin(addressed(sealed(5)))
        await house.settled()
        ending = asyncio.ensure_future(house.end(6))
        await asyncio.sleep(0)
        house.coordinator.questions[0].answer.set_result(None)
        (answer,) = await writing
        assert code_of(answer) in (
            ErrorCode.TRANSACTION_ABORTED,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        assert await ending is None
        assert [header.is_control for header in await house.headers()] == [True]
        assert house.replica().log.last_stable_offset == 1

    with_house(work)


def test_a_resend_is_answered_with_its_offset_and_asks_nobody() -> None:
    async def work(house: AdmissionHouse) -> None:
        for _ in range(3):
            (answer,) = await house.write(addressed(sealed(5)))
            assert (code_of(answer), answer.base_offset) == (None, 0)
        assert len(house.coordinator.questions) == 1

    with_house(work)


@pytest.mark.parametrize("epoch", [0, 5])
def test_trap_6_and_11_a_producer_that_stalled_is_told_that_its_transaction_is_over(
    epoch: int,
) -> None:
    """Not that it is fenced: it goes on by a takeover with its last identity."""

    async def work(house: AdmissionHouse) -> None:
        await house.write(addressed(sealed(5)))
        assert await house.end(6) is None
        asked = len(house.coordinator.questions)
        (answer,) = await house.write(addressed(sealed(epoch, 1)))
        assert code_of(answer) is ErrorCode.TRANSACTION_ABORTED
        assert len(house.coordinator.questions) == asked

    with_house(work)


def test_trap_5_a_first_batch_is_told_to_wait_for_the_end_of_the_transaction_before() -> None:
    async def work(house: AdmissionHouse) -> None:
        await house.write(addressed(sealed(5)))
        (answer,) = await house.write(addressed(sealed(6)))
        assert code_of(answer) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert answer.error is not None
        assert answer.error.retriable
        assert len(house.coordinator.questions) == 1
        assert await house.end(6) is None
        (answer,) = await house.write(addressed(sealed(6)))
        assert code_of(answer) is None

    with_house(work)


def test_a_coordinator_that_still_finishes_an_end_is_asked_again_before_the_producer_hears() -> (
    None
):
    async def work(house: AdmissionHouse) -> None:
        house.coordinator.refusals = [BUSY] * 3
        (answer,) = await house.write(addressed(sealed(5)))
        assert code_of(answer) is None
        assert len(house.coordinator.questions) == 4
        house.coordinator.refusals = [BUSY] * 100
        (answer,) = await house.write(addressed(sealed(5, producer_id=8)), transactional_id="u")
        assert code_of(answer) is ErrorCode.CONCURRENT_TRANSACTIONS
        waits_ms = [question.timeout_ms for question in house.coordinator.questions[4:]]
        assert waits_ms[0] == 10_000
        assert waits_ms == sorted(waits_ms, reverse=True), "within the deadline of the request"
        assert len(waits_ms) < 10
        assert house.verifier.in_flight == 0

    with_house(work)


def test_a_producer_that_is_told_to_come_again_uses_up_nobody_s_count_of_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a coordinator is away its producers try for as long as that takes."""
    monkeypatch.setattr(admission, "NEW_PRODUCERS_MAX", 2)

    async def work(house: AdmissionHouse) -> None:
        house.coordinator.refusal = AWAY
        for _ in range(5):
            (answer,) = await house.write(addressed(sealed(5)))
            assert code_of(answer) is AWAY.code
        house.coordinator.refusal = None
        codes = []
        for producer_id in (7, 8, 9):
            batch = addressed(sealed(5, producer_id=producer_id))
            (answer,) = await house.write(batch, transactional_id=f"t{producer_id}")
            codes.append(code_of(answer))
        assert codes == [None, None, ErrorCode.RESOURCE_EXHAUSTED]

    with_house(work)


def test_trap_30_questions_of_a_broker_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "CALLS_MAX", 2)

    async def work(house: AdmissionHouse) -> None:
        house.coordinator.is_prompt = False
        writing = [
            house.begin(addressed(sealed(5, producer_id=number)), transactional_id=f"t{number}")
            for number in range(3)
        ]
        (answer,) = await writing[2]
        assert code_of(answer) is ErrorCode.RESOURCE_EXHAUSTED
        assert answer.error is not None
        assert answer.error.retriable
        for question in house.coordinator.questions:
            question.answer.set_result(None)
        assert [code_of((await each)[0]) for each in writing[:2]] == [None, None]
        house.coordinator.is_prompt = True
        (answer,) = await house.write(addressed(sealed(5, producer_id=2)), transactional_id="t2")
        assert code_of(answer) is None
        assert house.verifier.in_flight == 0

    with_house(work)


def test_without_the_feature_nothing_of_a_transaction_is_taken() -> None:
    async def work(house: AdmissionHouse) -> None:
        with pytest.raises(TidelogError) as caught:
            await house.write(addressed(sealed(5)))
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED
        assert "transaction.version=2" in caught.value.hint
        error = await house.end(6)
        assert error is not None
        assert error.code is ErrorCode.NOT_IMPLEMENTED

    with_house(work, level=0)


PLAIN = encode_batch([(1, None, b"v", ())])
UNNUMBERED = encode_batch([(1, None, b"v", ())], is_transactional=True)
WRONG: dict[str, tuple[PartitionBatch, str]] = {
    "no transactional id": (addressed(sealed(5)), ""),
    "no flag": (addressed(sealed(5, is_transactional=False)), "t"),
    "nothing of a producer": (addressed(PLAIN), "t"),
    "an epoch that only markers have": (addressed(sealed(FENCING_EPOCH)), "t"),
    "a control batch": (addressed(sealed(5, is_control=True)), "t"),
    "no sequence": (addressed(sealed(5, -1)), "t"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_refused_with_what_to_do_and_asks_nobody(what: str) -> None:
    batch, transactional_id = WRONG[what]

    async def work(house: AdmissionHouse) -> None:
        (answer,) = await house.write(batch, transactional_id=transactional_id)
        assert code_of(answer) is ErrorCode.INVALID_ARGUMENT
        assert answer.error is not None
        assert answer.error.hint
        assert house.coordinator.questions == []
        assert await house.headers() == []

    with_house(work)


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.NONE])
def test_a_transaction_needs_acks_all(acks: Acks) -> None:
    async def work(house: AdmissionHouse) -> None:
        with pytest.raises(TidelogError) as caught:
            await house.write(addressed(sealed(5)), acks=acks)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert "acks=all" in caught.value.hint

    with_house(work)


def test_a_transactional_id_has_at_most_249_bytes() -> None:
    async def work(house: AdmissionHouse) -> None:
        with pytest.raises(TidelogError) as caught:
            await house.write(addressed(sealed(5)), transactional_id="ä" * 125)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        await house.write(addressed(sealed(EPOCH_MAX)), transactional_id="ä" * 124)

    with_house(work)


def test_a_batch_of_no_transaction_is_refused_while_its_producer_has_one_open() -> None:
    async def work(house: AdmissionHouse) -> None:
        await house.write(addressed(sealed(5)))
        plain = addressed(sealed(5, 1, is_transactional=False))
        (answer,) = await house.write(plain, transactional_id="")
        assert code_of(answer) is ErrorCode.INVALID_TRANSACTION_STATE
        (answer,) = await house.write(addressed(PLAIN), transactional_id="")
        assert code_of(answer) is None, "that of another one is not"

    with_house(work)


def test_a_coordinator_of_groups_asks_ahead_and_appends_by_itself() -> None:
    async def work(house: AdmissionHouse) -> None:
        replica = house.replica()
        owner = replica.directory.owner
        await owner.verify_transaction(
            replica.log, transactional_id="t", producer_id=7, producer_epoch=5, timeout_ms=10
        )
        house.coordinator.refusal = FENCED
        with pytest.raises(TidelogError) as caught:
            await owner.verify_transaction(
                replica.log, transactional_id="t", producer_id=7, producer_epoch=6, timeout_ms=10
            )
        assert caught.value.code is FENCED.code

    with_house(work)
