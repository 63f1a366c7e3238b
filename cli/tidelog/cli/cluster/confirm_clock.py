"""`tidelog cluster confirm-clock`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.clock_text import span
from tidelog.cli.show.errors import EXIT_OK
from tidelog.wire.moments import moment

if TYPE_CHECKING:
    from tidelog.client import ConfigResource
    from tidelog.client.types.admin import BrokerStatus

COMMAND: Final = "tidelog cluster confirm-clock"
SETTING: Final = "clock.confirmed.ms"
DESCRIPTION: Final = (
    "Say that the clock of a node without others to ask is right. Such a node deletes nothing by "
    "time after its clock has jumped away from the time that it stored last, for instance because "
    "its machine was off for days; `tidelog cluster describe` shows it as `held`. Without "
    "--execute only shows what its clock says: compare it with a clock that you trust. With a "
    "wrong clock, records that should be kept would be deleted for good."
)
EXAMPLES: Final = (
    (COMMAND, "what does the clock say?"),
    (f"{COMMAND} --execute", "it is right: go on deleting by it"),
)


def configure(parser: Parser) -> None:
    """Whether to do it, form and address."""
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(
        parser,
        "a list of {broker_id, clock_wall_ms, clock_skew_ms, is_changed}: the brokers that hold "
        "their clocks",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show what is held, and confirm it."""
    with admin_client(arguments) as admin:
        held = [each for each in admin.list_brokers() if each.clock_state == "held"]
        if held and arguments.execute:
            admin.alter_configs([resource(each) for each in held])
    if arguments.json:
        print_json(
            [
                {
                    "broker_id": each.broker_id,
                    "clock_wall_ms": each.clock_wall_ms,
                    "clock_skew_ms": each.clock_skew_ms,
                    "is_changed": arguments.execute,
                }
                for each in held
            ]
        )
    else:
        print(as_text(held, is_executed=arguments.execute))
    return EXIT_OK


def resource(broker: "BrokerStatus") -> "ConfigResource":
    """The setting that the broker waits for."""
    from tidelog.client import ConfigResource, ConfigResourceType

    return ConfigResource(
        ConfigResourceType.BROKER, str(broker.broker_id), {SETTING: str(broker.clock_wall_ms)}
    )


def as_text(held: "list[BrokerStatus]", *, is_executed: bool) -> str:
    """What a person reads."""
    if not held:
        return "no broker holds its clock: there is nothing to confirm"
    lines = [
        f"broker {each.broker_id}: its clock shows {moment(each.clock_wall_ms)}, "
        f"{span(each.clock_skew_ms)} off the time that it stored last"
        for each in held
    ]
    if is_executed:
        return "\n".join([*lines, "confirmed; it deletes by this time from now on"])
    return "\n".join([*lines, "nothing was done; if that is the time, add --execute"])
