"""Where a reader goes on that gives up what cannot be read: every way of an error keeps it."""

import pickle
from collections.abc import Callable

import pytest

from tests.broker.services.test_unreadable_batches import BODIES, FIRST, stored
from tidelog.client.engine.fetch.messages import Fetched
from tidelog.client.errors import PeerError
from tidelog.client.reading.chunk import decode
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire.calls import read_error, read_error_bytes
from tidelog.contract.errors import fill_error
from tidelog.contract.errors import read_error as read_part
from tidelog.ports.real.network.errors import decode_error, encode_error
from tidelog.v1 import errors_pb2
from tidelog.wire.errors import ErrorCode, ReadPlace, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset

PLACE = ReadPlace("orders", 3, 1 << 40)


def told(place: ReadPlace | None) -> TidelogError:
    return TidelogError(ErrorCode.CORRUPT_BATCH, tried="read", happened="damage", go_on_at=place)


def in_part(error: TidelogError) -> errors_pb2.Error:
    message = errors_pb2.Error()
    fill_error(message, error)
    return message


WAYS: dict[str, Callable[[TidelogError], TidelogError]] = {
    "trailer between nodes": lambda error: decode_error(encode_error(error)),
    "part of an answer between nodes": lambda error: read_part(in_part(error)),
    "trailer to a client": lambda error: read_error_bytes(encode_error(error)),
    "part of an answer to a client": lambda error: read_error(in_part(error)),
    "another process": lambda error: pickle.loads(pickle.dumps(error)),
    "a client in another process": lambda error: pickle.loads(
        pickle.dumps(
            PeerError(error.code, tried="read", happened="damage", go_on_at=error.go_on_at)
        )
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [PLACE, ReadPlace("t", 0, 0), None])
def test_an_error_says_where_to_go_on_whichever_way_it_comes(
    way: str, place: ReadPlace | None
) -> None:
    assert WAYS[way](told(place)).go_on_at == place


@pytest.mark.parametrize("name", BODIES)
def test_a_consumer_is_told_where_to_seek_to(name: str) -> None:
    _, data, behind = stored(name)
    fetched = Fetched(
        topic_partition=TopicPartition("orders", 3),
        data=data,
        first_offset=Offset(FIRST),
        next_offset=Offset(behind + 1),
        high_watermark=Offset(behind + 1),
        leader_epoch=LeaderEpoch(0),
        broker_id=1,
        generation=0,
    )
    decoded = decode(fetched, verify=False, key_deserializer=None, value_deserializer=None)
    assert [record.offset for record in decoded.records] == [FIRST]
    assert decoded.failed is not None
    error = decoded.failed.error
    assert isinstance(error, TidelogError)
    assert error.go_on_at == ReadPlace("orders", 3, behind)
