"""What groups are to those who look for coordinators. Pure.

Owns the kind: while `group.version` is at level 0 nobody coordinates a group.
"""

from typing import Final

from tidelog.broker.coordination.places import CoordinatedKind
from tidelog.metadata.features import GROUP_VERSION
from tidelog.metadata.internal_topics import GROUPS_TOPIC
from tidelog.wire.errors import ErrorCode

GROUPS: Final = CoordinatedKind(
    noun="group",
    plural="groups",
    topic_name=GROUPS_TOPIC,
    feature=GROUP_VERSION,
    level=1,
    off_code=ErrorCode.UNSUPPORTED_VERSION,
)
