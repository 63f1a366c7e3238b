"""The throttle of moving replicas, while a command waits for moves.

Owns what it was before, and that it is so again afterwards; or how a person does that.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.cli.frame.parser import Parser, number

if TYPE_CHECKING:
    from tidelog.client.types.admin import ConfigDescription, ConfigResource

THROTTLE: Final = "reassignment.throttle.bytes.per.second"
REMOVE_THROTTLE: Final = f"tidelog config delete --cluster {THROTTLE}"
STAYS: Final = f"the throttle stays when all has moved: `{REMOVE_THROTTLE}` removes it"
_BYTES_MAX: Final = 1 << 40

Say = Callable[[str], None]


class ConfigAdmin(Protocol):
    """What is needed of the admin client."""

    def describe_configs(
        self,
        config_resources: "Sequence[ConfigResource]",
        names: Sequence[str] = (),
        timeout_ms: int | None = None,
    ) -> "list[ConfigDescription]":
        """What it was."""
        ...

    def alter_configs(
        self,
        config_resources: "Sequence[ConfigResource]",
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """As it was."""
        ...


def add_throttle(parser: Parser, of: str = "") -> None:
    """--throttle; `of`: what it goes with."""
    parser.add_argument(
        "--throttle",
        type=number(1, _BYTES_MAX),
        default=0,
        metavar="BYTES",
        help=f"{of}copy at most so many bytes a second to each broker",
    )


class Throttle:
    """Of one command; 0 bytes: it sets none, and leaves what is there."""

    def __init__(self, admin: ConfigAdmin, bytes_per_second: int) -> None:
        self._admin = admin
        self.bytes_per_second = bytes_per_second
        self._before: str | None = None

    def remember(self) -> None:
        """What is set now."""
        if not self.bytes_per_second:
            return
        from tidelog.client import ConfigResource, ConfigResourceType

        cluster = ConfigResource(ConfigResourceType.CLUSTER)
        (described,) = self._admin.describe_configs([cluster], [THROTTLE])
        for entry in described.entries:
            if entry.name == THROTTLE and entry.source == "cluster":
                self._before = entry.value

    def restore(self, say: Say) -> None:
        """As it was before."""
        if not self.bytes_per_second:
            return
        from tidelog.client import ConfigResource, ConfigResourceType

        cluster = ConfigResource(ConfigResourceType.CLUSTER, "", {THROTTLE: self._before})
        self._admin.alter_configs([cluster])
        if self._before is None:
            say("the throttle is removed")
        else:
            # Perhaps of a command that was interrupted, which nobody else tells.
            was = f"{self._before} bytes/s again, as it was set before"
            say(f"the throttle is {was}; `{REMOVE_THROTTLE}` removes it")

    def advice(self) -> str:
        """What a person has to do in its place; begins where another sentence ends."""
        if not self.bytes_per_second:
            return ""
        undo = REMOVE_THROTTLE
        if self._before is not None:
            undo = f"tidelog config set --cluster {THROTTLE}={self._before}"
        return f"; the throttle stays: afterwards `{undo}`"
