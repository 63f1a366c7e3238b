"""What operators have set for groups, as the coordinators' cores take it. Pure."""

from tidelog.broker.groups.state.messages import GroupSettings, SettingsChanged
from tidelog.metadata.image.image import Image
from tidelog.metadata.settings.of_groups import GroupTimes, read_group_settings
from tidelog.wire.calls.groups import Assignor


def settings_of(image: Image) -> SettingsChanged:
    """For all groups, and for those that have settings of their own."""
    cluster = dict(image.cluster_configuration)
    return SettingsChanged(
        defaults=_settings(read_group_settings(cluster)),
        by_group={
            group: _settings(read_group_settings({**cluster, **own}))
            for group, own in image.group_configurations.items()
        },
    )


def _settings(times: GroupTimes) -> GroupSettings:
    return GroupSettings(
        session_timeout_ms=times.session_ms,
        session_timeout_ms_min=times.session_ms_min,
        session_timeout_ms_max=times.session_ms_max,
        heartbeat_interval_ms=times.heartbeat_ms,
        offsets_retention_ms=times.offsets_retention_ms,
        assignor=Assignor.RANGE if times.is_range else Assignor.UNIFORM,
    )
