"""The calls of producers, for the net."""

from typing import Final

from tidelog.chaos.sim.clients.scene import TOPIC, Scene, Stage
from tidelog.client.aio import AsyncProducer


def _value(stage: Stage, number: int) -> str:
    return f"scene-{stage.number}-{number}"


async def _reach(stage: Stage, producer: AsyncProducer) -> None:
    del stage
    await producer.partitions_for(TOPIC)


async def _one_before(stage: Stage, producer: AsyncProducer) -> None:
    value = _value(stage, 0)
    await producer.send_and_wait(TOPIC, value.encode())
    stage.sent.append(value)


async def _send(stage: Stage, producer: AsyncProducer) -> object:
    value = _value(stage, 1)
    told = await producer.send_and_wait(TOPIC, value.encode())
    stage.sent.append(value)
    return told.partition


async def _send_batch(stage: Stage, producer: AsyncProducer) -> object:
    values = [_value(stage, number) for number in range(1, 4)]
    future = await producer.send_batch(TOPIC, [value.encode() for value in values])
    await future
    stage.sent += values
    return None


async def _flush(stage: Stage, producer: AsyncProducer) -> object:
    values = [_value(stage, number) for number in range(1, 4)]
    futures = [await producer.send(TOPIC, value.encode()) for value in values]
    await producer.flush()
    for future in futures:
        await future
    stage.sent += values
    return None


async def _stop(stage: Stage, producer: AsyncProducer) -> object:
    values = [_value(stage, number) for number in range(1, 4)]
    futures = [await producer.send(TOPIC, value.encode()) for value in values]
    await producer.stop()
    for future in futures:
        await future
    stage.sent += values
    return None


async def _partitions(stage: Stage, producer: AsyncProducer) -> object:
    del stage
    return await producer.partitions_for(TOPIC)


async def _start(stage: Stage, producer: AsyncProducer) -> object:
    del stage
    await producer.start()
    return await producer.bootstrap_connected()


WRITING: Final = (
    Scene(
        name="send",
        make=Stage.producer,
        act=_send,
        expected=lambda _: 0,
        warm=_reach,
    ),
    Scene(
        name="send_at_work",
        make=Stage.producer,
        act=_send,
        expected=lambda _: 0,
        warm=_one_before,
        only_warm=True,
    ),
    Scene(name="send_batch", make=Stage.producer, act=_send_batch, warm=_one_before),
    Scene(name="flush", make=Stage.producer, act=_flush, warm=_one_before),
    Scene(name="stop_producer", make=Stage.producer, act=_stop, warm=_one_before),
    Scene(
        name="partitions_for",
        make=Stage.producer,
        act=_partitions,
        expected=lambda _: {0},
    ),
    Scene(
        name="start_producer",
        make=Stage.producer,
        act=_start,
        expected=lambda _: True,
        warm=_reach,
    ),
)
