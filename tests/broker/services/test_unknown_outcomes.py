"""What a writer is told when nobody knows whether its batch is stored: may it send it again?"""

import asyncio
from typing import cast

import pytest

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.directory.core.role_errors import indeterminate
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.produce.handler import (
    Acks,
    PartitionAcknowledgement,
    ProduceHandler,
    Submitted,
)
from tidelog.broker.services.produce.wire import fill_response, read_response
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.ports.real.clock import RealClock
from tidelog.v1 import produce_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

PLACE = (TopicId(bytes(16)), PartitionId(0))
KEY = PartitionKey(TopicId(bytes(16)), PartitionId(0))
LED_ELSEWHERE = indeterminate(KEY)
FULL = TidelogError(ErrorCode.STORAGE_FULL, tried=f"append to {KEY}", happened="no space")
DAMAGED = TidelogError(ErrorCode.CORRUPT_BATCH, tried="read the batch at byte 0", happened="x")


def answer_to(failure: TidelogError | None, *, has_identity: bool) -> PartitionAcknowledgement:
    """As it reaches another broker, which passed the batch on; None: nothing happens in time."""

    async def wait() -> PartitionAcknowledgement:
        outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if failure is not None:
            outcome.set_exception(failure)
        handler = ProduceHandler(cast(Replicas, None), RealClock(), BrokerLimits())
        submitted = Submitted(
            [PLACE], Acks.ALL, 1, [outcome], lambda *_: "orders-0", [0], [has_identity]
        )
        (answer,) = await handler.wait(submitted)
        return answer

    response = produce_pb2.ProduceResponse()
    fill_response(response, [asyncio.run(wait())])
    assert response.acknowledgements[0].error.retriable == (has_identity or failure is FULL)
    (answer,) = read_response(response)
    return answer


@pytest.mark.parametrize("failure", [LED_ELSEWHERE, None], ids=["deposed", "late"])
def test_a_numbered_batch_of_unknown_outcome_may_be_sent_again(
    failure: TidelogError | None,
) -> None:
    error = answer_to(failure, has_identity=True).error
    assert error is not None
    assert error.retriable
    assert "Send the batch again" in error.hint
    assert "stored once" in error.hint


@pytest.mark.parametrize("failure", [LED_ELSEWHERE, None], ids=["deposed", "late"])
def test_of_a_batch_without_a_number_no_answer_claims_that_sending_it_again_is_safe(
    failure: TidelogError | None,
) -> None:
    error = answer_to(failure, has_identity=False).error
    assert error is not None
    assert not error.retriable
    assert "Read the partition before" in error.hint


@pytest.mark.parametrize("has_identity", [True, False])
def test_what_is_surely_not_stored_is_told_as_the_list_of_errors_says(has_identity: bool) -> None:
    error = answer_to(FULL, has_identity=has_identity).error
    assert error is not None
    assert error.retriable
    assert error.hint == FULL.hint


@pytest.mark.parametrize("failure", [LED_ELSEWHERE, FULL, DAMAGED, None])
def test_errors_of_writes_name_the_topic_and_not_its_id(failure: TidelogError | None) -> None:
    error = answer_to(failure, has_identity=False).error
    assert error is not None
    assert error.tried.startswith("produce to orders-0")
    assert PLACE[0].hex() not in f"{error.tried} {error.happened}"
    assert failure is not DAMAGED or error.tried.endswith("read the batch at byte 0")
