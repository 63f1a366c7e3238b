"""Settings that change while the cluster runs, as the admin client calls them."""

from collections.abc import Iterable

import msgspec

from tidelog.client.shared.checked import checked
from tidelog.client.sync.admin.base import AdminBase, all_or_raise
from tidelog.client.types.admin import ConfigDescription, ConfigResource
from tidelog.client.wire import admin as wire_admin
from tidelog.wire.errors import TidelogError


class ConfigCalls(AdminBase):
    """Describe, alter, reset."""

    @checked
    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        names: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[ConfigDescription]:
        """Settings of each resource with where they come from; without names: all of them."""
        resources = list(config_resources)
        wanted = list(names)
        answers = self._ask_in_portions(
            "describe settings",
            wire_admin.DESCRIBE_CONFIGS,
            resources,
            lambda part: wire_admin.describe_configs_request(part, wanted),
            self._limit_ms(timeout_ms),
        )
        found = [each for part, data in answers for each in wire_admin.read_configs(data, part)]
        return all_or_raise(found)

    @checked
    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Set the settings named, unset those with the value None; the others stay. The first
        resource that was refused raises, the others are changed.
        """
        answers = self._ask_in_portions(
            "alter settings",
            wire_admin.ALTER_CONFIGS,
            list(config_resources),
            lambda part: wire_admin.alter_configs_request(part, validate_only=validate_only),
            self._limit_ms(timeout_ms),
            validate_only=validate_only,
        )
        for error in [each for _, data in answers for each in wire_admin.read_alterations(data)]:
            if isinstance(error, TidelogError):
                raise error

    @checked
    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Unset the settings named, whatever their values."""
        unset = [
            msgspec.structs.replace(resource, configs=dict.fromkeys(resource.configs))
            for resource in config_resources
        ]
        self.alter_configs(unset, validate_only, timeout_ms)
