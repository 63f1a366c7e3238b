"""The calls of consumers, with and without a group, for the net."""

from typing import Any, Final

from tidelog.chaos.sim.clients.scene import T0, TOPIC, Scene, Stage
from tidelog.client import OffsetAndMetadata
from tidelog.client.aio import AsyncConsumer

_WAIT_MS: Final = 60_000
_READ_MAX: Final = 10_000


def _subscribed(stage: Stage) -> AsyncConsumer:
    return stage.consumer(TOPIC)


def _assigned(stage: Stage) -> AsyncConsumer:
    consumer = stage.consumer()
    consumer.assign([T0])
    return consumer


def _member(stage: Stage) -> AsyncConsumer:
    return stage.consumer(TOPIC, group=True)


def _simple_member(stage: Stage) -> AsyncConsumer:
    consumer = stage.consumer(group=True)
    consumer.assign([T0])
    return consumer


async def _reach(stage: Stage, consumer: AsyncConsumer) -> None:
    """Metadata are known, nothing else."""
    del stage
    await consumer.partitions_for_topic(TOPIC)


async def _first(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    record = await consumer.getone()
    return record.offset, record.value.decode()


def _first_value(stage: Stage) -> object:
    return 0, stage.values[0]


async def _many(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    found = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=2)
    return [record.value.decode() for record in found[T0]][:1]


async def _batches(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return [batch.first_offset for batch in await consumer.get_batches(timeout_ms=_WAIT_MS)][:1]


async def _position(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return await consumer.position(T0)


async def _seek(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    consumer.seek(T0, 1)
    return (await consumer.getone()).offset


async def _seek_to_end(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    await consumer.seek_to_end(T0)
    return await consumer.position(T0)


async def _seek_to_beginning(stage: Stage, consumer: AsyncConsumer) -> object:
    await consumer.seek_to_beginning(T0)
    return await _first(stage, consumer)


async def _beginning(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return await consumer.beginning_offsets([T0])


async def _end(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return await consumer.end_offsets([T0])


async def _times(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    found = (await consumer.offsets_for_times({T0: 0}))[T0]
    return None if found is None else found.offset


async def _partitions(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return await consumer.partitions_for_topic(TOPIC)


async def _topics(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return TOPIC in await consumer.topics()


async def _start(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    await consumer.start()
    return await consumer.bootstrap_connected()


async def _read_all(stage: Stage, consumer: AsyncConsumer) -> None:
    """Up to the end: parked, or a member that has nothing to do."""
    for _ in range(_READ_MAX):
        if (await consumer.getone()).offset + 1 >= len(stage.values):
            return


async def _read_on(stage: Stage, consumer: AsyncConsumer) -> object:
    wanted = stage.write()
    for _ in range(_READ_MAX):
        if (await consumer.getone()).value.decode() == wanted:
            return True
    return False


async def _wakes(stage: Stage, consumer: AsyncConsumer) -> None:
    await _first(stage, consumer)


async def _seek_back(stage: Stage, consumer: AsyncConsumer) -> object:
    """A consumer at work is sent elsewhere."""
    consumer.seek(T0, 0)
    return await _first(stage, consumer)


# Groups.


async def _commit(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    await consumer.commit({T0: OffsetAndMetadata(1)})
    return None


async def _commit_delivered(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    await consumer.commit()
    return await consumer.committed(T0) is not None


async def _committed(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return await consumer.committed(T0)


async def _offset(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    return (await consumer.getone()).offset


async def _stop(stage: Stage, consumer: AsyncConsumer) -> object:
    del stage
    await consumer.stop()
    return None


async def _begin_at_commit(stage: Stage, admin: Any) -> None:
    await admin.alter_group_offsets(stage.group, {T0: 1})


READING: Final = (
    Scene(name="first_record", make=_subscribed, act=_first, expected=_first_value, warm=_reach),
    Scene(name="first_of_assigned", make=_assigned, act=_first, expected=_first_value, warm=_reach),
    Scene(
        name="getmany", make=_subscribed, act=_many, expected=lambda s: s.values[:1], warm=_reach
    ),
    Scene(name="get_batches", make=_assigned, act=_batches, expected=lambda _: [0], warm=_reach),
    Scene(name="position", make=_assigned, act=_position, expected=lambda _: 0, warm=_reach),
    Scene(name="seek_then_read", make=_assigned, act=_seek, expected=lambda _: 1, warm=_reach),
    Scene(
        name="seek_to_end",
        make=_assigned,
        act=_seek_to_end,
        expected=lambda s: len(s.values),
        warm=_reach,
    ),
    Scene(
        name="seek_to_beginning",
        make=_assigned,
        act=_seek_to_beginning,
        expected=_first_value,
        warm=_reach,
    ),
    Scene(
        name="beginning_offsets",
        make=_assigned,
        act=_beginning,
        expected=lambda _: {T0: 0},
        warm=_reach,
    ),
    Scene(
        name="end_offsets",
        make=_assigned,
        act=_end,
        expected=lambda s: {T0: len(s.values)},
        warm=_reach,
    ),
    Scene(name="offsets_for_times", make=_assigned, act=_times, expected=lambda _: 0, warm=_reach),
    Scene(name="partitions_for_topic", make=_assigned, act=_partitions, expected=lambda _: {0}),
    Scene(name="topics", make=_assigned, act=_topics, expected=lambda _: True, warm=_reach),
    Scene(name="start_consumer", make=_assigned, act=_start, expected=lambda _: True, warm=_reach),
    Scene(
        name="read_on",
        make=_subscribed,
        act=_read_on,
        expected=lambda _: True,
        warm=_read_all,
        only_warm=True,
    ),
    Scene(
        name="seek_at_work",
        make=_assigned,
        act=_seek_back,
        expected=_first_value,
        warm=_read_all,
        only_warm=True,
    ),
    Scene(name="stop_consumer", make=_subscribed, act=_stop, warm=_wakes, only_warm=True),
)
"""Without a group."""

MEMBERS: Final = (
    Scene(name="member_first", make=_member, act=_first, expected=_first_value, warm=_reach),
    Scene(
        name="member_from_commit",
        make=_member,
        act=_offset,
        expected=lambda _: 1,
        prepare=_begin_at_commit,
        warm=_reach,
    ),
    Scene(
        name="member_read_on",
        make=_member,
        act=_read_on,
        expected=lambda _: True,
        warm=_read_all,
        only_warm=True,
    ),
    Scene(
        name="member_commit",
        make=_member,
        act=_commit_delivered,
        expected=lambda _: True,
        warm=_wakes,
        only_warm=True,
    ),
    Scene(name="member_stop", make=_member, act=_stop, warm=_wakes, only_warm=True),
    Scene(name="commit", make=_simple_member, act=_commit, warm=_reach),
    Scene(
        name="committed",
        make=_simple_member,
        act=_committed,
        expected=lambda _: 1,
        prepare=_begin_at_commit,
        warm=_reach,
    ),
    Scene(
        name="committed_again",
        make=_simple_member,
        act=_committed,
        expected=lambda _: 1,
        warm=_commit,
        only_warm=True,
    ),
)
"""With one."""
