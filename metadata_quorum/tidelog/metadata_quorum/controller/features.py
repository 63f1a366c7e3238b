"""Feature levels: what the cluster has agreed to speak, and who cannot.

Pure. It must never finalise a level that a registered broker cannot speak, nor lower one without
being told to: what was written at the higher level would have no reader.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.metadata.features import METADATA_VERSION, OFF, SUPPORTED
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import FeatureRange, FeatureRecord
from tidelog.metadata.refusals.common import refuse_duplicates
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import did_you_mean
from tidelog.wire.refusals import invalid


class FeatureState(msgspec.Struct, frozen=True, kw_only=True):
    """One feature."""

    name: str
    finalised_level: int
    level_min: int
    level_max: int
    """What every node can speak, together with `level_min`; below it: there is no such level."""


def describe_features(
    image: Image, supported: Mapping[str, FeatureRange] = SUPPORTED
) -> tuple[FeatureState, ...]:
    """All features, in ascending order of name."""
    states = []
    for name in sorted({**dict(image.features), **supported}):
        ranges = [supported.get(name, OFF)]
        ranges += [_spoken(broker.features, name) for broker in image.brokers.values()]
        states.append(
            FeatureState(
                name=name,
                finalised_level=image.features.get(name, 0),
                level_min=max(each.level_min for each in ranges),
                level_max=min(each.level_max for each in ranges),
            )
        )
    return tuple(states)


def finalise_features(
    image: Image,
    levels: Sequence[tuple[str, int]],
    *,
    allow_downgrade: bool,
    supported: Mapping[str, FeatureRange] = SUPPORTED,
) -> Decision[None]:
    """Raise or lower levels, all or none. The answer is `describe_features` of the image after."""
    tried = "finalise feature levels"
    refuse_duplicates([name for name, _ in levels], tried=tried, what="feature")
    records = []
    for name, level in levels:
        _check_level(image, name, level, allow_downgrade=allow_downgrade, supported=supported)
        if image.features.get(name, 0) != level:
            records.append(FeatureRecord(name=name, level=level))
    return Decision(records=tuple(records), answer=None)


def check_broker_speaks(image: Image, features: Mapping[str, FeatureRange], *, tried: str) -> None:
    """UNSUPPORTED_VERSION if a level in force is none of the broker's."""
    for name, level in image.features.items():
        spoken = _spoken(features, name)
        if not spoken.level_min <= level <= spoken.level_max:
            raise TidelogError(
                ErrorCode.UNSUPPORTED_VERSION,
                tried=tried,
                happened=f"the cluster runs {name} at level {level}, "
                f"the broker speaks {spoken.level_min} to {spoken.level_max}",
            )


def _check_level(
    image: Image,
    name: str,
    level: int,
    *,
    allow_downgrade: bool,
    supported: Mapping[str, FeatureRange],
) -> None:
    tried = f"finalise {name[:100]} at level {level}"
    if name not in supported:
        raise invalid(tried, "there is no such feature", did_you_mean(name, supported))
    _check_spoken(tried, "the controller", supported[name], level)
    for broker in image.brokers.values():
        _check_spoken(tried, f"broker {broker.broker_id}", _spoken(broker.features, name), level)
    present = image.features.get(name, 0)
    if level >= present:
        return
    if name == METADATA_VERSION:
        raise invalid(
            tried,
            f"{name} is at {present}; lowering it would lose what records of that level say",
            "Restore an export of the metadata that was made before the level was raised.",
        )
    if not allow_downgrade:
        raise invalid(
            tried,
            f"the level in force, {present}, is higher",
            "Allow the downgrade in so many words if that is intended.",
        )


def _check_spoken(tried: str, who: str, spoken: FeatureRange, level: int) -> None:
    if not spoken.level_min <= level <= spoken.level_max:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=tried,
            happened=f"{who} speaks levels {spoken.level_min} to {spoken.level_max}",
        )


def _spoken(features: Mapping[str, FeatureRange], name: str) -> FeatureRange:
    """A node that does not name a feature has it off."""
    return features.get(name, OFF)
