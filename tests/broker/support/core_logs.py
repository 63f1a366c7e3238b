"""Logs in a core, made of a few batches each: what the tests of the core's answers begin with."""

from tests.broker.support.core_model import CoreModel
from tidelog.broker.directory.core.messages import Refuse
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode

REPLICATED = TopicSettings(is_flush_sync=False)


def code_of(model: CoreModel, token: int) -> ErrorCode | None:
    """None: it was done."""
    answer = model.answers[token]
    return answer.error.code if isinstance(answer, Refuse) else None


def bases(model: CoreModel, partition: int = 0) -> list[int]:
    return [segment.base_offset for segment in model.log(partition).segments]


def filled(count: int, *, partition: int = 0, roll_every: int = 2) -> CoreModel:
    """A model with `count` records in segments of `roll_every`, all durable."""
    model = CoreModel()
    for number in range(count):
        if number and number % roll_every == 0:
            model.roll(partition)
            model.drain()
        model.append(partition)
        model.drain()
    return model
