"""What was read ahead of a paused partition: kept, and in nobody's way."""

from collections.abc import Callable

import pytest

from tests.client.engine.test_engine_consumer import T0, World, batch, part
from tests.client.support.engine_world import view
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import MetadataArrived, SendFetch, StreamOpened
from tidelog.client.types.records import TopicPartition

T1 = TopicPartition("t", 1)


def fill_window(world: World, sent: SendFetch) -> int:
    """The broker uses all of the credit for t-0, of which there is much; the offset behind it."""
    credit_bytes = sent.credit_bytes
    offset: int = sent.positions[0].fetch_offset
    while credit_bytes > 0:
        data = batch(offset)
        world.answer(part(data, offset), epoch=sent.session_epoch)
        offset += 1
        credit_bytes -= len(data)
    return offset


def read_two(world: World) -> SendFetch:
    """Both partitions from their first record, at one broker."""
    world.core.assign([T0, T1], world.now_ns)
    world.tick()
    world.core.seek(T0, 0)
    world.core.seek(T1, 0)
    world.step(MetadataArrived(view=view({"t": [(1, 3), (1, 3)]})))
    (sent,) = world.step(StreamOpened(broker_id=1, stream=1))
    assert isinstance(sent, SendFetch)
    return sent


def take_all(world: World, name: TopicPartition) -> list[int]:
    """The first offsets of what there is, all of this partition."""
    taken: list[int] = []
    while (fetched := world.core.take()) is not None:
        assert fetched.topic_partition == name
        world.core.partitions[name].hand_over(fetched.next_offset)
        taken.append(fetched.first_offset)
    return taken


@pytest.mark.parametrize("silence", [ConsumerCore.pause, ConsumerCore.hold])
def test_what_waits_of_a_paused_partition_leaves_the_others_room(
    silence: Callable[[ConsumerCore, TopicPartition], None],
) -> None:
    world = World()
    end = fill_window(world, read_two(world))
    silence(world.core, T0)
    (sent,) = world.tick()
    assert isinstance(sent, SendFetch)
    assert sent.credit_bytes >= 1_000, "t-1 gets the room of a grant"
    world.answer(part(batch(0), 0, partition=1), epoch=sent.session_epoch)
    assert take_all(world, T1) == [0]
    kept_to = world.core.partitions[T0].fetch_offset
    assert kept_to is not None
    assert end // 2 < kept_to < end, "only the newest made room"


def test_a_paused_partition_that_made_room_is_read_on_once_the_user_has_the_rest() -> None:
    world = World()
    end = fill_window(world, read_two(world))
    for _ in range(3):
        world.core.pause(T0)
        world.tick()
        world.core.resume(T0)
        assert not any(isinstance(each, SendFetch) for each in world.tick()), "nothing comes again"
    taken = take_all(world, T0)
    (sent,) = world.tick()
    assert isinstance(sent, SendFetch)
    (position,) = sent.positions
    assert taken == list(range(position.fetch_offset)), "without a gap"
    assert position.fetch_offset < end
    assert position.last_fetched_epoch == 0


def test_a_paused_partition_keeps_everything_while_it_stands_in_nobodys_way() -> None:
    world = World()
    end = fill_window(world, world.read_from(0))
    world.core.pause(T0)
    world.tick(60_000)
    assert world.core.partitions[T0].fetch_offset == end, "there is no other partition"
    world.core.resume(T0)
    assert take_all(world, T0) == list(range(end))
