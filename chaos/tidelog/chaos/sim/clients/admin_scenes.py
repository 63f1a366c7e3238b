"""The calls of the asyncio admin client, for the net."""

from typing import Any, Final

from tidelog.chaos.sim.clients.scene import ANYTHING, T0, TOPIC, Scene, Stage, Work
from tidelog.client import NewTopic
from tidelog.client.aio import AsyncAdminClient

REPLICAS: Final = 2
"""Of three nodes, one of which may be struck."""


def _new(stage: Stage) -> NewTopic:
    return NewTopic(stage.new_topic, 1, REPLICAS)


async def _make_topic(stage: Stage, admin: AsyncAdminClient) -> None:
    await admin.create_topics([_new(stage)])


async def _make_group(stage: Stage, admin: AsyncAdminClient) -> None:
    await admin.alter_group_offsets(stage.group, {T0: 1})


async def _reach(stage: Stage, admin: AsyncAdminClient) -> None:
    del stage
    await admin.describe_cluster()


async def _create(stage: Stage, admin: AsyncAdminClient) -> object:
    return [each.name for each in await admin.create_topics([_new(stage)])]


async def _delete(stage: Stage, admin: AsyncAdminClient) -> object:
    return len(await admin.delete_topics([stage.new_topic]))


async def _grow(stage: Stage, admin: AsyncAdminClient) -> object:
    return await admin.create_partitions({stage.new_topic: 2})


async def _list(stage: Stage, admin: AsyncAdminClient) -> object:
    del stage
    return TOPIC in await admin.list_topics()


async def _describe(stage: Stage, admin: AsyncAdminClient) -> object:
    del stage
    return [each.name for each in await admin.describe_topics([TOPIC])]


async def _cluster(stage: Stage, admin: AsyncAdminClient) -> object:
    del stage
    return len((await admin.describe_cluster()).brokers)


async def _start(stage: Stage, admin: AsyncAdminClient) -> object:
    del stage
    await admin.start()
    return None


async def _offsets(stage: Stage, admin: AsyncAdminClient) -> object:
    del stage
    found = (await admin.list_partition_offsets({T0: "latest"}))[T0]
    return None if found is None else found.offset


async def _groups(stage: Stage, admin: AsyncAdminClient) -> object:
    del stage
    await admin.list_groups()
    return None


async def _describe_group(stage: Stage, admin: AsyncAdminClient) -> object:
    return list(await admin.describe_groups([stage.group])) and 1


async def _delete_group(stage: Stage, admin: AsyncAdminClient) -> object:
    await admin.delete_groups([stage.group])
    return None


async def _group_offsets(stage: Stage, admin: AsyncAdminClient) -> object:
    found = await admin.list_group_offsets(stage.group)
    return {name: each.offset for name, each in found[stage.group].items()}


async def _alter(stage: Stage, admin: AsyncAdminClient) -> object:
    await admin.alter_group_offsets(stage.group, {T0: 2})
    return None


async def _reset(stage: Stage, admin: AsyncAdminClient) -> object:
    found = await admin.reset_group_offsets(stage.group, {T0: "earliest"})
    return {name: each.offset for name, each in found.items()}


async def _forget(stage: Stage, admin: AsyncAdminClient) -> object:
    await admin.delete_group_offsets(stage.group, [T0])
    return None


async def _remove(stage: Stage, admin: AsyncAdminClient) -> object:
    return await admin.remove_group_members(stage.group)


def _scene(
    name: str,
    act: Work,
    expected: object = None,
    *,
    prepare: Work | None = None,
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


def _named(stage: Stage) -> Any:
    return [stage.new_topic]


ADMINISTERING: Final = (
    Scene(
        name="create_topics",
        make=Stage.admin,
        act=_create,
        expected=_named,
        warm=_reach,
        may_be_doubtful=True,
    ),
    _scene("delete_topics", _delete, 1, prepare=_make_topic, may_be_doubtful=True),
    Scene(
        name="create_partitions",
        make=Stage.admin,
        act=_grow,
        expected=lambda stage: {stage.new_topic: 2},
        prepare=_make_topic,
        warm=_reach,
        may_be_doubtful=True,
    ),
    _scene("list_topics", _list, expected=True),
    _scene("describe_topics", _describe, [TOPIC]),
    _scene("describe_cluster", _cluster, ANYTHING),
    _scene("start_admin", _start),
    Scene(
        name="list_partition_offsets",
        make=Stage.admin,
        act=_offsets,
        expected=lambda stage: len(stage.values),
        warm=_reach,
    ),
    _scene("list_groups", _groups, prepare=_make_group),
    _scene("describe_groups", _describe_group, 1, prepare=_make_group),
    _scene("delete_groups", _delete_group, prepare=_make_group, may_be_doubtful=True),
    _scene("list_group_offsets", _group_offsets, {T0: 1}, prepare=_make_group),
    _scene("alter_group_offsets", _alter, prepare=_make_group),
    _scene("reset_group_offsets", _reset, {T0: 0}, prepare=_make_group),
    _scene("delete_group_offsets", _forget, prepare=_make_group, may_be_doubtful=True),
    _scene("remove_group_members", _remove, ANYTHING, prepare=_make_group, may_be_doubtful=True),
)
