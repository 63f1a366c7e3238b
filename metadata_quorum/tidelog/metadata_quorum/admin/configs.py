"""Settings and quotas: changed on the active controller, described from any image."""

from typing import Final

from tidelog.contract.errors import fill_error
from tidelog.metadata.image.image import Image
from tidelog.metadata.refusals.common import refuse_too_many
from tidelog.metadata.settings.kinds import Scope, Source
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.admin.execution import Execute, write
from tidelog.metadata_quorum.controller.settings.configuration import (
    CHANGES_MAX,
    Alteration,
    Change,
    Operation,
    Target,
    alter_configurations,
    describe,
)
from tidelog.metadata_quorum.controller.settings.quotas import Quota, alter_quotas
from tidelog.metadata_quorum.port import Executed
from tidelog.ports import RequestContext
from tidelog.v1 import config_admin_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.refusals import invalid

TARGETS_MAX: Final = 1_000
_SCOPES: Final[dict[int, Scope]] = {
    config_admin_pb2.CONFIG_TARGET_KIND_TOPIC: Scope.TOPIC,
    config_admin_pb2.CONFIG_TARGET_KIND_BROKER: Scope.BROKER,
    config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER: Scope.CLUSTER,
    config_admin_pb2.CONFIG_TARGET_KIND_GROUP: Scope.GROUP,
}
_SOURCES: Final = {
    Source.TARGET: config_admin_pb2.CONFIG_SOURCE_TARGET,
    Source.BROKER: config_admin_pb2.CONFIG_SOURCE_BROKER,
    Source.CLUSTER: config_admin_pb2.CONFIG_SOURCE_CLUSTER,
    Source.DEFAULT: config_admin_pb2.CONFIG_SOURCE_DEFAULT,
}


class ConfigExecution:
    """The calls that change settings and quotas."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller

    def table(self) -> dict[str, Execute]:
        """By full method name."""
        return {
            "/tidelog.v1.ConfigService/AlterConfigs": self.alter_configs,
            "/tidelog.v1.ConfigService/AlterQuotas": self.alter_quotas,
        }

    async def alter_configs(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`AlterConfigs`."""
        del context
        asked = config_admin_pb2.AlterConfigsRequest.FromString(message)
        refused: dict[int, TidelogError] = {}
        alterations: list[Alteration] = []
        for place, each in enumerate(asked.alterations):
            try:
                alterations.append(_read_alteration(each))
            except TidelogError as error:
                refused[place] = error
        written = await write(
            self._controller,
            lambda image: alter_configurations(image, alterations),
            validate_only=asked.validate_only,
            tried="change settings",
            timeout_ms=timeout_ms,
        )
        outcomes = iter(written.answer)
        response = config_admin_pb2.AlterConfigsResponse()
        for place, each in enumerate(asked.alterations):
            result = response.results.add(target=each.target)
            outcome = refused[place] if place in refused else next(outcomes)
            if outcome is not None:
                fill_error(result.error, outcome)
        return Executed(response=response.SerializeToString(), applied_index=written.index)

    async def alter_quotas(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`AlterQuotas`."""
        del context
        asked = config_admin_pb2.AlterQuotasRequest.FromString(message)
        quotas = [_read_quota(each) for each in asked.quotas]
        written = await write(
            self._controller,
            lambda image: alter_quotas(image, quotas),
            validate_only=asked.validate_only,
            tried="set quotas",
            timeout_ms=timeout_ms,
        )
        response = config_admin_pb2.AlterQuotasResponse()
        return Executed(response=response.SerializeToString(), applied_index=written.index)


def describe_configs(image: Image, message: bytes) -> bytes:
    """Answers `DescribeConfigs` from an image."""
    asked = config_admin_pb2.DescribeConfigsRequest.FromString(message)
    tried = "describe settings"
    refuse_too_many(len(asked.targets), TARGETS_MAX, tried=tried, what="targets")
    refuse_too_many(len(asked.names), CHANGES_MAX, tried=tried, what="settings")
    names = tuple(dict.fromkeys(asked.names))
    response = config_admin_pb2.DescribeConfigsResponse()
    for each in asked.targets:
        description = response.descriptions.add(target=each)
        try:
            values = describe(
                image,
                _read_target(each, tried=tried),
                names=names,
            )
        except TidelogError as error:
            fill_error(description.error, error)
            continue
        for value in values:
            description.values.add(
                name=value.setting.name,
                value=value.value,
                source=_SOURCES[value.source],
                documentation=value.setting.documentation,
            )
    return response.SerializeToString()


def describe_quotas(image: Image, message: bytes) -> bytes:
    """`DescribeQuotas`, from an image."""
    asked = config_admin_pb2.DescribeQuotasRequest.FromString(message)
    wanted = dict.fromkeys(asked.client_ids)
    response = config_admin_pb2.DescribeQuotasResponse()
    for client_id, quota in image.quotas.items():
        if not wanted or client_id in wanted:
            response.quotas.add(
                client_id=client_id,
                produce_bytes_per_second=quota.produce_bytes_per_second,
                fetch_bytes_per_second=quota.fetch_bytes_per_second,
                requests_per_second=quota.requests_per_second,
            )
    return response.SerializeToString()


def _read_alteration(message: config_admin_pb2.ConfigAlteration) -> Alteration:
    return Alteration(
        target=_read_target(message.target, tried="change settings"),
        changes=tuple(
            Change(name=each.name, value=each.value)
            if each.HasField("value")
            else Change(name=each.name, operation=Operation.DELETE)
            for each in message.changes
        ),
    )


def _read_target(message: config_admin_pb2.ConfigTarget, *, tried: str) -> Target:
    scope = _SCOPES.get(message.kind)
    if scope is not None:
        return Target(scope=scope, name=message.name)
    raise invalid(
        tried,
        f"the kind of target is number {message.kind}",
        "Set `kind` to TOPIC, GROUP, BROKER or CLUSTER.",
    )


def _read_quota(message: config_admin_pb2.Quota) -> Quota:
    return Quota(
        client_id=message.client_id,
        produce_bytes_per_second=message.produce_bytes_per_second
        if message.HasField("produce_bytes_per_second")
        else None,
        fetch_bytes_per_second=message.fetch_bytes_per_second
        if message.HasField("fetch_bytes_per_second")
        else None,
        requests_per_second=message.requests_per_second
        if message.HasField("requests_per_second")
        else None,
    )
