"""The calls about transactions of producers and administrators, for the net.

Each playing has a transactional id of its own. What is not committed in the end goes to a topic of
its own, so that the topic of all holds what was promised, and nothing else.
"""

from typing import Any, Final

from tidelog.chaos.sim.clients.scene import ANYTHING, T0, TOPIC, Scene, Stage, Work
from tidelog.client import NewTopic, TopicPartition
from tidelog.client.aio import AsyncAdminClient, AsyncProducer

REPLICAS: Final = 3
"""Of which one may be struck."""


def _value(stage: Stage) -> str:
    return f"transaction-{stage.number}"


async def _make_topic(stage: Stage, admin: AsyncAdminClient) -> None:
    await admin.create_topics([NewTopic(stage.new_topic, 1, REPLICAS)])


async def _take_over(stage: Stage, producer: AsyncProducer) -> None:
    del stage
    await producer.init_transactions()


async def _init(stage: Stage, producer: AsyncProducer) -> object:
    del stage
    await producer.init_transactions()
    return None


async def _begin(stage: Stage, producer: AsyncProducer) -> None:
    """Something is in progress that is not to be read by anybody."""
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send_and_wait(stage.new_topic, _value(stage).encode())


async def _begin_here(stage: Stage, producer: AsyncProducer) -> None:
    """Something is in progress that is to be read."""
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, _value(stage).encode())
    stage.sent.append(_value(stage))


async def _send(stage: Stage, producer: AsyncProducer) -> object:
    await producer.begin_transaction()
    told = await producer.send_and_wait(TOPIC, _value(stage).encode())
    # Its transaction is aborted when the client closes; who reads everything is shown it.
    stage.sent.append(_value(stage))
    return told.partition


async def _commit(stage: Stage, producer: AsyncProducer) -> object:
    del stage
    await producer.commit_transaction()
    return None


async def _abort(stage: Stage, producer: AsyncProducer) -> object:
    del stage
    await producer.abort_transaction()
    return None


async def _offsets(stage: Stage, producer: AsyncProducer) -> object:
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction({T0: 1}, stage.group)
    return None


async def _complete(stage: Stage, producer: AsyncProducer) -> object:
    del stage
    token = await producer.prepare_transaction()
    await producer.complete(token)
    return None


async def _abandon(stage: Stage, producer: AsyncProducer) -> object:
    del stage
    token = await producer.prepare_transaction()
    await producer.abandon(token)
    return None


IN_TRANSACTIONS: Final = (
    Scene(name="init_transactions", make=Stage.transactional_producer, act=_init),
    Scene(
        name="send_in_transaction",
        make=Stage.transactional_producer,
        act=_send,
        expected=lambda _: 0,
        warm=_take_over,
        only_warm=True,
    ),
    Scene(
        name="commit_transaction",
        make=Stage.transactional_producer,
        act=_commit,
        warm=_begin_here,
        only_warm=True,
    ),
    Scene(
        name="abort_transaction",
        make=Stage.transactional_producer,
        act=_abort,
        prepare=_make_topic,
        warm=_begin,
        only_warm=True,
    ),
    Scene(
        name="send_offsets_to_transaction",
        make=Stage.transactional_producer,
        act=_offsets,
        warm=_take_over,
        only_warm=True,
    ),
    Scene(
        name="complete",
        make=Stage.transactional_producer,
        act=_complete,
        prepare=_make_topic,
        warm=_begin,
        only_warm=True,
    ),
    Scene(
        name="abandon",
        make=Stage.transactional_producer,
        act=_abandon,
        prepare=_make_topic,
        warm=_begin,
        only_warm=True,
    ),
)


# -- administrators --------------------------------------------------------------------------------


async def _open_one(stage: Stage, admin: AsyncAdminClient) -> None:
    """A transaction whose producer is gone."""
    await _make_topic(stage, admin)
    async with stage.transactional_producer() as producer:
        await _begin(stage, producer)
        # Its end would abort what is open.
        await producer.prepare_transaction()


async def _list(stage: Stage, admin: AsyncAdminClient) -> object:
    found = await admin.list_transactions()
    return stage.transactional_id in {each.transactional_id for each in found}


async def _describe(stage: Stage, admin: AsyncAdminClient) -> object:
    return [
        each.state.value for each in await admin.describe_transactions([stage.transactional_id])
    ]


async def _abort_one(stage: Stage, admin: AsyncAdminClient) -> object:
    return await admin.abort_transaction(stage.transactional_id)


async def _decide(stage: Stage, admin: AsyncAdminClient) -> object:
    await admin.decide_prepared_transaction(stage.transactional_id, "abort")
    return None


async def _producers(stage: Stage, admin: AsyncAdminClient) -> object:
    name = TopicPartition(stage.new_topic, 0)
    found = (await admin.describe_producers([name]))[name]
    return [each.transaction_start_offset for each in found]


async def _find_hanging(stage: Stage, admin: AsyncAdminClient) -> object:
    return await admin.find_hanging_transactions([TopicPartition(stage.new_topic, 0)])


async def _end_hanging(stage: Stage, admin: AsyncAdminClient) -> object:
    """Nothing hangs there: that is found out, and nothing is done."""
    name = TopicPartition(stage.new_topic, 0)
    await admin.abort_hanging_transaction(name, 0, 0)
    return None


def _scene(
    name: str,
    act: Work,
    expected: object,
    *,
    prepare: Work = _open_one,
    may_be_doubtful: bool = False,
) -> Scene:
    return Scene(
        name=name,
        make=Stage.admin,
        act=act,
        expected=lambda _: expected,
        prepare=prepare,
        warm=_reach,
        may_be_doubtful=may_be_doubtful,
    )


async def _reach(stage: Stage, admin: Any) -> None:
    del stage
    await admin.describe_cluster()


ADMINISTERING_TRANSACTIONS: Final = (
    _scene("list_transactions", _list, True),
    _scene("describe_transactions", _describe, ["prepared"]),
    _scene("abort_one_transaction", _abort_one, ANYTHING, may_be_doubtful=True),
    _scene("decide_prepared_transaction", _decide, None, may_be_doubtful=True),
    _scene("describe_producers", _producers, [0]),
    _scene("find_hanging_transactions", _find_hanging, []),
    _scene("abort_hanging_transaction", _end_hanging, None, prepare=_make_topic),
)
