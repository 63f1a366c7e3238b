"""What operators see of a partition's producers, and the end of a transaction that hangs."""

import pytest

from tests.broker.support.admission_house import (
    AdmissionHouse,
    addressed,
    key_of,
    sealed,
    with_house,
)
from tidelog.broker.services.markers.producers import LedProducers
from tidelog.broker.services.transactions.admin.partitions import ProducerView
from tidelog.wire.errors import ErrorCode, TidelogError


def producers_of(house: AdmissionHouse) -> LedProducers:
    return LedProducers(house.replicas, house.markers)


async def abort(
    house: AdmissionHouse, start: int, *, validate_only: bool = False, partition: int = 0
) -> ErrorCode | None:
    try:
        await producers_of(house).abort_hanging(
            key_of(partition), 7, start, validate_only=validate_only
        )
    except TidelogError as error:
        return error.code
    return None


def test_producers_are_shown_in_the_order_of_their_ids() -> None:
    async def work(house: AdmissionHouse) -> None:
        for producer_id in (9, 7):
            await house.write(addressed(sealed(5, producer_id=producer_id)))
        await house.end(6, producer_id=9, coordinator_epoch=4)
        views = await producers_of(house).describe_producers(key_of(0))
        assert [(each.producer_id, each.producer_epoch, each.last_sequence) for each in views] == [
            (7, 5, 0),
            (9, 6, -1),
        ]
        assert [each.transaction_start_offset for each in views] == [1, -1]
        assert [each.coordinator_epoch for each in views] == [-1, 4]
        assert all(isinstance(each, ProducerView) for each in views)

    with_house(work)


def test_a_hanging_transaction_is_ended_where_the_operator_has_seen_it() -> None:
    async def work(house: AdmissionHouse) -> None:
        await house.write(addressed(sealed(4, producer_id=8)))
        await house.write(addressed(sealed(5)))
        assert await abort(house, 0) is ErrorCode.INVALID_TRANSACTION_STATE
        assert await abort(house, 1, validate_only=True) is None
        assert house.replica().log.producer_here(7).is_open  # type: ignore[union-attr]
        for _ in range(2):
            assert await abort(house, 1) is None
        headers = await house.headers()
        assert [header.is_control for header in headers] == [False, False, True]
        assert headers[-1].producer_epoch == 6
        # Its coordinator knew of it after all: what it sends is there.
        assert await house.end(6) is None
        assert len(await house.headers()) == 3

    with_house(work)


def test_the_end_of_what_hangs_fences_no_coordinator() -> None:
    async def work(house: AdmissionHouse) -> None:
        await house.write(addressed(sealed(5)))
        await house.end(6, coordinator_epoch=4)
        await house.write(addressed(sealed(6)))
        assert await abort(house, 2) is None
        (view,) = await producers_of(house).describe_producers(key_of(0))
        assert view.coordinator_epoch == 4
        await house.write(addressed(sealed(7)))
        assert await house.end(8, coordinator_epoch=4) is None

    with_house(work)


def test_nothing_is_done_where_nothing_is_open_or_another_broker_leads() -> None:
    async def work(house: AdmissionHouse) -> None:
        assert await abort(house, 5) is None
        assert await house.headers() == []
        assert await abort(house, 5, partition=9) is ErrorCode.UNKNOWN_PARTITION
        with pytest.raises(TidelogError):
            await producers_of(house).describe_producers(key_of(9))

    with_house(work)
